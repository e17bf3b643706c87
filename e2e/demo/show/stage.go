package show

import (
	"fmt"
	"io"
	"time"
)

// stage is where the demo speaks. It is a writer for the progress of others, too.
type stage struct {
	out   io.Writer
	began time.Time
}

// Write passes on the progress of the lab, indented.
func (s *stage) Write(text []byte) (int, error) {
	_, err := fmt.Fprintf(s.out, "  %s", text)
	return len(text), err
}

// chapter begins a part of the demo.
func (s *stage) chapter(title string) {
	fmt.Fprintf(s.out, "\n== %s (%.0f s)\n", title, time.Since(s.began).Seconds())
}

// say tells one line.
func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, "  "+format+"\n", args...) }

// plain tells text as it is.
func (s *stage) plain(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// step tells what is done before it is done, and how long it took after.
func (s *stage) step(what string, do func() error) error {
	began := time.Now()
	fmt.Fprintf(s.out, "  %s … ", what)
	if err := do(); err != nil {
		fmt.Fprintln(s.out, "failed")
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(s.out, "%.1f s\n", time.Since(began).Seconds())
	return nil
}
