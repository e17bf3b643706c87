package agent_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/bridge"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// mute serves pulse's socket, and answers until it is stopped.
func mute(t *testing.T, path string, stopped *atomic.Bool) {
	t.Helper()
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan socket.Event)
	go socket.Serve(t.Context(), listener, events, testlog.New(t))
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case e := <-events:
				if !e.Ended && !stopped.Load() {
					e.From.Tell(e.Number, &api.State{Settled: true})
				}
			}
		}
	}()
}

// TestAStoppedPulseDelaysNoChange has pulse stop in the midst of its work: what is withdrawn, programmed and announced to
// routers does not wait for it, and what it owes is an error until it has caught up.
func TestAStoppedPulseDelaysNoChange(t *testing.T) {
	t.Parallel()
	const within, changes = 500 * time.Millisecond, 10
	path := filepath.Join(t.TempDir(), "pulse.sock")
	var stopped atomic.Bool
	mute(t, path, &stopped)
	client := socket.NewClient(path, testlog.New(t))
	go func() { _ = client.Run(t.Context()) }()
	w, s := &world{}, &source{changed: make(chan struct{}, 1)}
	a := agent.New(agent.Config{
		Options: desired.Options{Node: "a"}, Source: s, Forwarding: forwarder{w}, Health: health{w}, Layer2: bridge.NewLayer2(client), BGP: bgp{w},
		Reporter: w, Log: slog.New(slog.DiscardHandler), Resync: 100 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	until := func(what string, within time.Duration, ok func() bool) {
		t.Helper()
		for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
			if time.Since(began) > within {
				t.Fatalf("%s: not within %v", what, within)
			}
		}
	}
	for i := range changes {
		began := time.Now()
		s.set(cluster(vip(1 + i%2)))
		until("a change", within, func() bool {
			routes := w.session("tor").Routes
			_, there := routes[addr.HostPrefix(vip(1+i%2))]
			return there && len(routes) == 1
		})
		t.Logf("change %d took %v", i, time.Since(began))
		if i == 0 {
			until("pulse's answer", time.Minute, func() bool { state, _ := client.State(); return state.Settled })
			stopped.Store(true)
		}
	}
	failing := func() bool {
		w.Lock()
		defer w.Unlock()
		return w.outcome.Err != nil
	}
	until("an error", time.Minute, failing)
	stopped.Store(false)
	s.set(cluster(vip(3)))
	until("no error", time.Minute, func() bool { return !failing() })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
