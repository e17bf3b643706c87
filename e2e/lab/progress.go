package lab

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// teller writes progress lines that begin with the seconds since it was made.
type teller struct {
	mu    sync.Mutex
	to    io.Writer
	began time.Time
}

// newTeller makes a teller; a nil writer discards.
func newTeller(to io.Writer) *teller {
	if to == nil {
		to = io.Discard
	}
	return &teller{to: to, began: time.Now()}
}

// tell writes a line. A progress line that cannot be written is no failure.
func (t *teller) tell(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.to, "%6.1fs  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}
