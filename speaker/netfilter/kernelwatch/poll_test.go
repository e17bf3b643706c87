package kernelwatch_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// TestKeep holds that a disturbance is told soon, and as long as it lasts.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var disturbed atomic.Bool
		var told atomic.Int64
		go kernelwatch.Poll(ctx, kernelwatch.Interval, disturbed.Load, func() { told.Add(1) })
		for _, step := range []struct {
			disturbed bool
			want      int64
		}{{false, 0}, {true, 4}, {false, 4}, {true, 8}} {
			disturbed.Store(step.disturbed)
			time.Sleep(time.Second)
			synctest.Wait()
			if told.Load() != step.want {
				t.Errorf("told %d times by now, want %d", told.Load(), step.want)
			}
		}
		stop()
		synctest.Wait()
	})
}
