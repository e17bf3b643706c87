package command

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A loop that comes round late is none that is stuck.
func TestGuardEndsOnlyAStuckPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		stuckAfter := began.Add(time.Hour)
		asked := 0
		healthy := func(ctx context.Context) error {
			if asked++; time.Now().Before(stuckAfter) && asked%guardMisses == 0 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		err := guard(t.Context(), healthy)
		if took := time.Since(stuckAfter); took < 0 || took > 2*guardMisses*(guardEvery+guardWithin) {
			t.Errorf("ended %v after it was stuck", took)
		}
		if err == nil || !strings.Contains(err.Error(), "3 times in a row") {
			t.Errorf("error %v", err)
		}
	})
}

func TestGuardEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, healthy := range map[string]func(context.Context) error{
			"healthy": func(context.Context) error { return nil },
			"stuck":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), guardWithin/2)
			if err := guard(ctx, healthy); err != nil {
				t.Errorf("%s: error %v", name, err)
			}
			cancel()
		}
	})
}
