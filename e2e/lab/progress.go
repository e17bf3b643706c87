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

// tellEvery is how often a step that takes long is told of: also of the slowest, lest one think that it hangs.
const tellEvery = 10 * time.Second

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

// every tells again and again that this goes on, until done is called.
func (t *teller) every(interval time.Duration, what string) (done func()) {
	ended, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				t.tell("building %s …", what)
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-gone
	}
}
