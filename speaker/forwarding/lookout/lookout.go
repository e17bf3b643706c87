// Package lookout checks at intervals whether somebody has disturbed our rules.
package lookout

import (
	"context"
	"time"
)

// Every is the time between two questions, where no other is better.
const Every = 250 * time.Millisecond

// Keep asks so often whether what must be kept is disturbed, which must cost next to nothing,
// and calls tell after each time that it is, until ctx ends.
func Keep(ctx context.Context, every time.Duration, disturbed func() bool, tell func()) {
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
