package kernelwatch

import (
	"context"
	"time"
)

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
