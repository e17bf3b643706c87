package run_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/run"
)

func untilDone(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestAllStopTogether(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		second func(context.Context) error
		want   string
	}{
		"the context ends":         {untilDone, ""},
		"one fails":                {func(context.Context) error { return broken }, "second: broken"},
		"one ends without reason":  {func(context.Context) error { return nil }, "second: ended by itself"},
		"one fails while it stops": {func(ctx context.Context) error { <-ctx.Done(); return broken }, "second: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				stopped := false
				first := func(ctx context.Context) error { defer func() { stopped = true }(); return untilDone(ctx) }
				err := run.All(ctx, run.Func("first", first), run.Func("second", test.second))
				got := ""
				if err != nil {
					got = err.Error()
				}
				if got != test.want {
					t.Errorf("All = %q, want %q", got, test.want)
				}
				if !stopped {
					t.Error("the first task still runs")
				}
			})
		})
	}
}

// waiting is a task that is ready once it waits for nothing.
type waiting struct {
	run.Task
	what error
}

func (w *waiting) Ready() error { return w.what }

func TestReadyOnceAllTasksAre(t *testing.T) {
	t.Parallel()
	kernel := errors.New("waits for the kernel")
	first, second := run.Func("first", untilDone), &waiting{run.Func("second", untilDone), kernel}
	if err := run.Ready(first, second); !errors.Is(err, kernel) {
		t.Errorf("Ready = %v, want %v", err, kernel)
	}
	second.what = nil
	if err := run.Ready(first, second); err != nil {
		t.Errorf("Ready = %v, want nil", err)
	}
}
