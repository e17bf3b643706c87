package probe

import (
	"sync"
	"time"
)

// A process that has not run for heldUp was held up; it looks every look.
const (
	heldUp = 250 * time.Millisecond
	look   = 20 * time.Millisecond
)

// Stalls knows when this process was held up last, as on a machine that does much else.
type Stalls struct {
	end chan struct{}

	mu   sync.Mutex
	last time.Time // when a stall ended
}

// WatchStalls looks for stalls until Stop.
func WatchStalls() *Stalls {
	s := &Stalls{end: make(chan struct{})}
	go func() {
		ticks := time.NewTicker(look)
		defer ticks.Stop()
		for before := time.Now(); ; {
			select {
			case <-s.end:
				return
			case <-ticks.C:
			}
			now := time.Now()
			if now.Sub(before) > heldUp {
				s.mu.Lock()
				s.last = now
				s.mu.Unlock()
			}
			before = now
		}
	}()
	return s
}

// Stop ends the watch.
func (s *Stalls) Stop() { close(s.end) }

// Since tells whether a stall has ended after that time. The process that asks may run before the watch does.
func (s *Stalls) Since(began time.Time) bool {
	time.Sleep(2 * look)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.After(began)
}
