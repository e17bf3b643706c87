package agent_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

func (w forwarder) CleanWithin() time.Duration {
	w.Lock()
	defer w.Unlock()
	return w.cleanIn
}

// eventful is a kernel that takes 100 ms, in which the cluster may change.
type eventful struct {
	forwarder
	meanwhile func()
}

func (e eventful) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	time.Sleep(100 * time.Millisecond)
	e.meanwhile()
	return e.forwarder.Apply(ctx, want)
}

// runWhile runs an agent on a first snapshot, in the bubble of a synctest.
func runWhile(t *testing.T, w *world, s *source, meanwhile func()) {
	a := agent.New(agent.Config{
		Options: desired.Options{Node: "a"}, Source: s, Forwarding: eventful{forwarder{w}, meanwhile}, Health: health{w},
		Layer2: layer2{w}, BGP: bgp{w}, Reporter: w, Log: slog.New(slog.DiscardHandler), Resync: time.Minute,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	s.set(cluster(vip(1)))
	time.Sleep(3050 * time.Millisecond) // in the midst of a pass, if one follows another
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNewsComesBeforeStaleFlows has an address come while the kernel is written: it is
// announced first, and then flows are looked at, of both passes at once.
func TestNewsComesBeforeStaleFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{changed: make(chan struct{}, 1)}
		w := &world{}
		var announced []int // when flows were looked at
		w.cleaning = func() error {
			announced = append(announced, len(w.sessions["tor"].Routes))
			return nil
		}
		news := []*view.Cluster{cluster(vip(1), vip(2))}
		runWhile(t, w, s, func() {
			for len(news) > 0 {
				s.set(news[0])
				news = news[1:]
			}
		})
		if len(announced) != 1 || announced[0] != 2 {
			t.Errorf("flows were looked at when so many routes were announced: %v, want once, at 2", announced)
		}
	})
}

// TestStaleFlowsDoNotWaitForEver has the cluster change all the time.
func TestStaleFlowsDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{changed: make(chan struct{}, 1)}
		w := &world{}
		cleaned := 0
		w.cleaning = func() error { cleaned++; return nil }
		runWhile(t, w, s, func() { s.set(cluster(vip(1))) })
		if cleaned != 2 {
			t.Errorf("flows were looked at %d times in 3 s, want 2: a second after they were put off", cleaned)
		}
	})
}

// TestANewServiceGetsItsAddressBeforeFlowsAreLookedAt: its endpoints and its address come a little later than it
// does, and nothing of what came before can lead to where nothing serves.
func TestANewServiceGetsItsAddressBeforeFlowsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const putOff = 100 * time.Millisecond
		var looked []time.Duration // at flows, since the Service came
		var began time.Time
		w := &world{cleanIn: putOff, cleaning: func() error {
			looked = append(looked, time.Since(began))
			time.Sleep(30 * time.Millisecond)
			return nil
		}}
		wake, _, stop := run(t, w)
		t.Cleanup(stop)
		began = time.Now()
		wake(cluster(vip(1)))
		time.Sleep(putOff / 2)
		wake(cluster(vip(1), vip(2)))
		if since := time.Since(began); since != putOff/2 || len(w.session("tor").Routes) != 2 {
			t.Errorf("after %v the routes are %v", since, w.session("tor").Routes)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		w.Lock()
		defer w.Unlock()
		if len(looked) != 1 || looked[0] != putOff {
			t.Errorf("flows were looked at after %v, want once, after %v", looked, putOff)
		}
	})
}
