package agent_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
)

// A disturbance has the kernel written again at once, though nothing changed.
func TestDisturbance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		s := &source{changed: make(chan struct{}, 1)}
		disturbed := make(chan struct{}, 1)
		a := agent.New(agent.Config{
			Options: desired.Options{Node: "a"}, Source: s, Forwarding: forwarder{w}, Disturbed: disturbed, Health: health{w},
			Layer2: layer2{w}, BGP: bgp{w}, Reporter: w, Log: slog.New(slog.DiscardHandler), Resync: time.Hour,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		disturbed <- struct{}{}
		synctest.Wait()
		if w.applied != 0 {
			t.Errorf("applied %d times before the cluster is known", w.applied)
		}
		s.set(cluster(vip(1)))
		synctest.Wait()
		before := w.applied
		w.kernel = nil
		disturbed <- struct{}{}
		synctest.Wait()
		if w.applied != before+1 || len(w.kernel) == 0 {
			t.Errorf("applied %d times, want %d; the kernel has %d ports", w.applied, before+1, len(w.kernel))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
