package kernelwatch

import (
	"context"
	"time"
)

// Work may take one part in so many of the time: without a limit, a node that others write to all
// the time would do nothing else. A while at once is always allowed.
const (
	share  = 20
	atOnce = 3 * time.Second
	// healing is the share of repairs: while rules are gone nothing is served, which is worse
	// than a node that is busy.
	healing = 4
	// longest is how long nothing is allowed at the most. Work that was slow since the node is
	// overloaded would have all wait for minutes.
	longest = 15 * time.Second
)

// RateLimit is a token bucket of time: it limits the share that work takes which other programs cause.
type RateLimit struct {
	credit time.Duration
	since  time.Time // when the credit was last counted
}

// NewRateLimit returns a full one.
func NewRateLimit() RateLimit { return RateLimit{credit: atOnce, since: time.Now()} }

// Allowed reports whether work may begin.
func (b *RateLimit) Allowed() bool {
	now := time.Now()
	b.credit = min(b.credit+now.Sub(b.since)/share, atOnce)
	b.since = now
	return b.credit > 0
}

// Wait returns for how long work may not begin yet; 0 if it may.
func (b *RateLimit) Wait() time.Duration {
	if b.Allowed() {
		return 0
	}
	return (1 - b.credit) * share
}

// Spend counts the time that work took. It may be more than was left.
func (b *RateLimit) Spend(d time.Duration) { b.credit = max(b.credit-d, -longest/share) }

// Healed counts the time that work took which repaired what others had broken.
func (b *RateLimit) Healed(d time.Duration) { b.Spend(d * healing / share) }

// Pace spaces readings that are made again and again, so that they take a small share of the time however much
// there is to read. The zero value says that it is time for one.
type Pace struct{ next time.Time }

// Due reports whether it is time for a reading.
func (p *Pace) Due() bool { return !time.Now().Before(p.next) }

// Read notes a reading that began then: the next one is due after a pause of at least this length, and of
// so many times what this one took.
func (p *Pace) Read(began time.Time, least time.Duration, times int) {
	now := time.Now()
	p.next = now.Add(max(least, time.Duration(times)*now.Sub(began)))
}

// Interval is the time between two looks, where no other is better.
const Interval = 250 * time.Millisecond

// Poll calls disturbed at each interval, until ctx ends, and tell each time that it returns true.
// disturbed must cost next to nothing.
func Poll(ctx context.Context, every time.Duration, disturbed func() bool, tell func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if disturbed() {
			tell()
		}
	}
}
