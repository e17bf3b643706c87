package bfd

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

var (
	addrA = netip.MustParseAddr("192.0.2.1")
	addrB = netip.MustParseAddr("192.0.2.2")
)

func wantedTo(peer netip.Addr) desired.BFD {
	return desired.BFD{Peer: peer, Transmit: 50 * time.Millisecond, Receive: 50 * time.Millisecond, Multiplier: 3}
}

// cable is a network of two ends whose packets take a millisecond.
type cable struct {
	mu   sync.Mutex
	ends map[netip.Addr]*end
	cut  bool
	hops int
}

type end struct {
	cable *cable
	addr  netip.Addr
	fail  error // of dialing and listening
	// starved: what comes waits until somebody looks, as in a socket whose reader has no processor.
	starved bool
	waiting []datagram

	lock sync.Locker
	hear map[kind]func(datagram)
}

func newCable() *cable { return &cable{ends: map[netip.Addr]*end{}, hops: maxHops} }

func (c *cable) end(a netip.Addr) *end {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &end{cable: c, addr: a, hear: map[kind]func(datagram){}}
	c.ends[a] = e
	return e
}

func (c *cable) pull(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

func (e *end) listen(k kind, lock sync.Locker, hear func(datagram)) (listener, error) {
	e.cable.mu.Lock()
	defer e.cable.mu.Unlock()
	if e.fail != nil {
		return nil, e.fail
	}
	e.lock, e.hear[k] = lock, hear
	return inlet1{e, k}, nil
}

func (e *end) dial(k key) (sender, error) {
	e.cable.mu.Lock()
	defer e.cable.mu.Unlock()
	return outlet1{e, k.peer, kindOf(k)}, e.fail
}

type inlet1 struct {
	*end
	kind kind
}

func (i inlet1) drain() {
	i.cable.mu.Lock()
	waiting, hear := i.waiting, i.hear[i.kind]
	i.waiting = nil
	i.cable.mu.Unlock()
	for _, d := range waiting {
		hear(d)
	}
}

func (i inlet1) close() error {
	i.cable.mu.Lock()
	defer i.cable.mu.Unlock()
	delete(i.hear, i.kind)
	return nil
}

type outlet1 struct {
	from *end
	to   netip.Addr
	kind kind
}

func (outlet1) over() int { return 0 }

func (o outlet1) send(b []byte) error {
	c := o.from.cable
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil
	}
	hops := c.hops
	time.AfterFunc(time.Millisecond, func() {
		c.mu.Lock()
		to := c.ends[o.to]
		hear, lock, k := to.hear[o.kind], to.lock, o.kind
		if to.starved {
			to.waiting, hear = append(to.waiting, datagram{kind: k, from: o.from.addr, to: o.to, hops: hops, body: b}), nil
		}
		c.mu.Unlock()
		if hear == nil {
			return
		}
		lock.Lock()
		defer lock.Unlock()
		hear(datagram{kind: k, from: o.from.addr, to: o.to, hops: hops, body: b})
	})
	return nil
}

func (outlet1) close() error { return nil }

// runOn starts sessions at an end; they run until stop.
func runOn(t *testing.T, e *end) (s *Sessions, stop func()) {
	t.Helper()
	s = newSessions(slog.New(slog.DiscardHandler), e, []byte("a boot"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func state(s *Sessions) State { return s.Status()["p"].State }

func TestSessionsComeUpAndNoticeACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		a, stopA := runOn(t, c.end(addrA))
		b, stopB := runOn(t, c.end(addrB))
		defer stopA()
		defer stopB()
		a.Set("", map[string]desired.BFD{"p": wantedTo(addrB)}, nil)
		b.Set("", map[string]desired.BFD{"p": wantedTo(addrA), "same": wantedTo(addrA)}, nil)
		time.Sleep(5 * time.Second)
		if state(a) != Up || state(b) != Up || b.Status()["same"] != b.Status()["p"] {
			t.Fatalf("%+v and %+v", a.Status(), b.Status())
		}
		time.Sleep(10 * time.Minute)
		if a.Status()["p"].Failures != 0 || a.Status()["p"].Detection != 150*time.Millisecond {
			t.Errorf("after ten minutes: %+v", a.Status()["p"])
		}
		<-a.Changed()
		began := time.Now()
		c.pull(true)
		<-a.Changed()
		if took := time.Since(began); took > 151*time.Millisecond || state(a) != Down || a.Status()["p"].Diag != Expired || a.Status()["p"].Failures != 1 {
			t.Errorf("after %v: %+v", took, a.Status()["p"])
		}
		c.pull(false)
		time.Sleep(5 * time.Second)
		if state(a) != Up || state(b) != Up {
			t.Errorf("the cable is back: %v and %v", state(a), state(b))
		}
		c.mu.Lock()
		c.hops = 254
		c.mu.Unlock()
		time.Sleep(time.Second)
		if _, rejected := a.Stats(); state(a) != Down || rejected[RejectedHops] == 0 {
			t.Errorf("packets over two hops: %v, rejected %v", state(a), rejected)
		}
	})
}

// TestSessionsWithOneRouter from several addresses of the node are told apart by what the router
// calls them, and before it does, by address.
func TestSessionsWithOneRouter(t *testing.T) {
	s := newSessions(slog.New(slog.DiscardHandler), newCable().end(addrA), []byte("a boot"))
	own, far := wantedTo(addrB), wantedTo(addrB)
	own.Local = addrA
	far.MultiHop, far.MinTTL = true, 250
	s.Set("", map[string]desired.BFD{"any": wantedTo(addrB), "own": own, "far": far}, nil)
	another := addrA.Next().Next().Next()
	named := func(name string) *session { return s.all[s.names[name]] }
	for _, c := range []struct {
		calls    uint32
		to       netip.Addr
		multiHop bool
		hops     int
		want     *session
		reason   Reason
	}{
		{0, addrA, false, 255, named("own"), ""},
		{0, another, false, 255, named("any"), ""},
		{named("any").machine.local, addrA, false, 255, named("any"), ""},
		{named("own").machine.local, addrA, false, 255, named("own"), ""},
		{named("own").machine.local, another, false, 255, nil, RejectedUnknown},
		{0, addrA, false, 254, nil, RejectedHops},
		{0, addrA, true, 250, named("far"), ""},
		{0, addrA, true, 249, nil, RejectedHops},
	} {
		for range 20 { // maps have no order
			for _, name := range []string{"any", "own", "far"} {
				named(name).machine.quiet = time.Time{}
			}
			p := Packet{State: Down, Multiplier: 3, My: 7, Your: c.calls, DesiredTx: time.Second, RequiredRx: time.Second}
			got, _, reason := s.find(datagram{kind: kind{multiHop: c.multiHop}, from: addrB, to: c.to, hops: c.hops, body: p.Append(nil)})
			if got != c.want || reason != c.reason {
				t.Fatalf("%+v: %p, %q", c, got, reason)
			}
		}
	}
}

// facing are the two sides of a cable, for each other, after time enough to come up.
func facing(t *testing.T, c *cable) (a *Sessions, stopA func(), b *Sessions, stopB func()) {
	t.Helper()
	a, stopA = runOn(t, c.end(addrA))
	b, stopB = runOn(t, c.end(addrB))
	a.Set("", map[string]desired.BFD{"p": wantedTo(addrB)}, nil)
	b.Set("", map[string]desired.BFD{"p": wantedTo(addrA)}, nil)
	time.Sleep(5 * time.Second)
	return a, stopA, b, stopB
}

// TestPartedSessions: the peer hears AdminDown, which is no failure, and the
// session is wanted again.
func TestPartedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		a, stopA, b, stopB := facing(t, c)
		defer stopA()
		defer stopB()
		a.Set("", nil, nil)
		time.Sleep(20 * time.Millisecond)
		if got := b.Status()["p"]; got.State != Down || got.Diag != NeighborDown || got.Failures != 0 || len(a.Status()) != 0 {
			t.Errorf("the peer says %+v", got)
		}
		a.Set("", map[string]desired.BFD{"p": wantedTo(addrB)}, nil)
		time.Sleep(5 * time.Second)
		if state(a) != Up || state(b) != Up {
			t.Errorf("wanted again: %v and %v", state(a), state(b))
		}
		a.Set("", nil, nil)
		time.Sleep(time.Minute)
		a.mu.Lock()
		if len(a.all) != 0 {
			t.Errorf("left behind: %+v", a.all)
		}
		a.mu.Unlock()
		a.Set("", nil, nil) // as its owner does after Changed
		c.mu.Lock()
		if len(c.ends[addrA].hear) != 0 {
			t.Error("it listens for nobody")
		}
		c.mu.Unlock()
		if err := b.Goodbye(t.Context(), 0); err != nil {
			t.Error(err)
		}
	})
}

// TestRestart: a planned restart is not noticed, nor is a short one that was not.
func TestRestart(t *testing.T) {
	for name, planned := range map[string]bool{"planned": true, "crash": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCable()
				a, stopA, b, stopB := facing(t, c)
				defer stopB()
				away := 40 * time.Millisecond
				if planned {
					away = 50 * time.Second
					if err := a.Goodbye(t.Context(), time.Minute); err != nil {
						t.Fatal(err)
					}
				}
				stopA()
				time.Sleep(away)
				a, stopA = runOn(t, c.end(addrA))
				defer stopA()
				a.Set("", map[string]desired.BFD{"p": wantedTo(addrB)}, nil)
				time.Sleep(2 * time.Second)
				if got := b.Status()["p"]; state(a) != Up || got.State != Up || got.Failures != 0 || got.Detection != 150*time.Millisecond {
					t.Errorf("new %+v, peer %+v", a.Status()["p"], got)
				}
			})
		})
	}
}

// TestRestartOfABusyProcess: the peer goes on, and what it says is in the socket by the end of
// the time for listening, though the reader of the socket had no processor until then.
func TestRestartOfABusyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		a, stopA, b, stopB := facing(t, c)
		defer stopB()
		if err := a.Goodbye(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		stopA()
		busy := c.end(addrA)
		busy.starved = true
		again, stop := runOn(t, busy)
		defer stop()
		again.Set("", map[string]desired.BFD{"p": wantedTo(addrB)}, nil)
		time.Sleep(listenFirst + 10*time.Millisecond)
		c.mu.Lock()
		busy.starved = false
		c.mu.Unlock()
		time.Sleep(5 * time.Second)
		if got := b.Status()["p"]; state(again) != Up || got.State != Up || got.Failures != 0 {
			t.Errorf("%v, and the peer says %+v", state(again), got)
		}
	})
}

func TestHoldOnGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		a, stopA, _, stopB := facing(t, c)
		defer stopA()
		defer stopB()
		c.pull(true)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := a.Goodbye(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody answered, and it says %v", err)
		}
	})
}

// TestTrouble: what cannot be opened is told, and tried again when Changed says so.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		e := c.end(addrA)
		e.fail = errors.New("no sockets left")
		a, stop := runOn(t, e)
		defer stop()
		want := map[string]desired.BFD{"p": wantedTo(addrB)}
		a.Set("", want, nil)
		if got := a.Status()["p"].Trouble; got != "no sockets left" {
			t.Errorf("trouble is told as %q", got)
		}
		c.mu.Lock()
		e.fail = nil
		c.mu.Unlock()
		<-a.Changed()
		a.Set("", want, nil)
		if got := a.Status()["p"].Trouble; got != "" {
			t.Errorf("still %q", got)
		}
	})
}

// TestDiscriminatorsGoByTheKey: the processes of a boot have one discriminator for a session, by the key, and what any pod can
// read of the machine does not tell it.
func TestDiscriminatorsGoByTheKey(t *testing.T) {
	of := func(key view.Secret) uint32 {
		s := New(slog.New(slog.DiscardHandler))
		s.Set(key, nil, nil)
		s.Set("", nil, nil) // replaces none
		return s.discriminator(keyOf(desired.BFD{Peer: addrB}))
	}
	first, unknown := of("key"), of("")
	if of("key") != first {
		t.Error("a process that is restarted has another discriminator")
	}
	if of("another") == first || of("") == unknown {
		t.Error("a discriminator does not go by the key")
	}
}
