// Package lookout checks at intervals whether somebody has disturbed our rules.
package lookout

import (
	"context"
	"time"
)

// Every is the time between two questions, which must cost next to nothing.
const Every = 250 * time.Millisecond

// Keep calls tell after each time that disturbed says yes, until ctx ends.
func Keep(ctx context.Context, disturbed func() bool, tell func()) {
	ticker := time.NewTicker(Every)
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
