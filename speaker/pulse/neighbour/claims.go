package neighbour

import (
	"maps"
	"slices"
	"sync"

	"fairlead.dev/fairlead/internal/signal"
)

// maxClaims bounds the claims that wait to be taken, so that a station which sends them
// without end costs no memory. A true one comes again.
const maxClaims = 1 << 14

// claims holds what other stations claim until it is taken.
type claims struct {
	news chan struct{}

	mu      sync.Mutex
	waiting map[Claim]struct{}
}

func (c *claims) note(claim Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[Claim]struct{}{}
	}
	if len(c.waiting) >= maxClaims {
		return
	}
	c.waiting[claim] = struct{}{}
	signal.Send(c.news)
}

func (c *claims) take() []Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Collect(maps.Keys(c.waiting))
	clear(c.waiting)
	return all
}
