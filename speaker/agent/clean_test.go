package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/addr"
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

// searching is a kernel with a connection table that takes long to be looked through.
type searching struct {
	forwarder
	clean func() (time.Duration, error)
}

func (s searching) Clean() (time.Duration, error) { return s.clean() }

// TestALongSearchForStaleFlowsDelaysNoPass: the rules of what changes meanwhile are written at once, the flows that this
// makes stale are looked for next, and the search takes a third of the time.
func TestALongSearchForStaleFlowsDelaysNoPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 2 * time.Second
		var searches atomic.Int32
		w, s := &world{}, &source{changed: make(chan struct{}, 1)}
		a := agent.New(agent.Config{
			Options: desired.Options{Node: "a"}, Source: s, Health: health{w},
			Forwarding: searching{forwarder{w}, func() (time.Duration, error) {
				searches.Add(1)
				time.Sleep(took)
				return 0, nil
			}},
			Layer2: layer2{w}, BGP: bgp{w}, Reporter: w, Log: slog.New(slog.DiscardHandler), Resync: time.Hour,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		const changes = 60
		for i := range changes { // one each second
			s.set(cluster(vip(1 + i%2)))
			time.Sleep(time.Millisecond)
			routes := w.session("tor").Routes
			if _, announced := routes[addr.HostPrefix(vip(1+i%2))]; !announced || len(routes) != 1 {
				t.Errorf("a millisecond after change %d the routes are %v", i, routes)
			}
			time.Sleep(time.Second - time.Millisecond)
		}
		if n := searches.Load(); n < changes/6-1 || n > changes/6+1 {
			t.Errorf("%d searches of %v in %d s, want a third of the time", n, took, changes)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// To look for stale flows takes as long as the connection table is: what is announced and
// withdrawn does not wait for it. What fails is told, and tried again soon.
func TestStaleFlowsHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		cleaned, wanted := 0, 0
		w.cleaning = func() error {
			if len(w.answers.Claims) != wanted || len(w.sessions["tor"].Routes) != wanted {
				t.Errorf("flows are looked for while %d claims and %d routes are told, want %d", len(w.answers.Claims), len(w.sessions["tor"].Routes), wanted)
			}
			if cleaned++; cleaned <= 2 {
				return errors.New("no buffer space")
			}
			return nil
		}
		wake, _, stop := run(t, w)
		defer stop()
		told := func() (int, error) {
			w.Lock()
			defer w.Unlock()
			return cleaned, w.outcome.Err
		}
		wanted = 1
		wake(cluster(vip(1)))
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if n, err := told(); err == nil || n != 2 {
			t.Errorf("soon: cleaned %d times, error %v: want that of the first", n, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before, err := told()
		if err != nil || before < 3 {
			t.Errorf("a second later: cleaned %d times, error %v", before, err)
		}
		w.Lock()
		wanted = 0
		w.Unlock()
		wake(cluster())
		time.Sleep(500 * time.Millisecond) // searches rest
		synctest.Wait()
		if n, _ := told(); n != before+1 {
			t.Errorf("cleaned %d times, want %d", n, before+1)
		}
	})
}

// TestSearchesThatArePutOffAreMade: a search for stale flows that had no time for all of them is made again when it is due, though
// nothing changes.
func TestSearchesThatArePutOffAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var searched []time.Duration
		w, s := &world{}, &source{changed: make(chan struct{}, 1)}
		a := agent.New(agent.Config{
			Options: desired.Options{Node: "a"}, Source: s, Health: health{w},
			Forwarding: searching{forwarder{w}, func() (again time.Duration, err error) {
				if searched = append(searched, time.Since(began)); len(searched) < 3 {
					again = 5 * time.Second
				}
				return again, nil
			}},
			Layer2: layer2{w}, BGP: bgp{w}, Reporter: w, Log: slog.New(slog.DiscardHandler), Resync: time.Hour,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		s.set(cluster(vip(1)))
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []time.Duration{0, 5 * time.Second, 10 * time.Second}; !slices.Equal(searched, want) {
			t.Errorf("flows were looked for after %v, want %v", searched, want)
		}
	})
}
