package hello

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSettles(t *testing.T) {
	w := newWorld(2, 1)
	w.hosts[0].want.Key = nil
	w.start(0)
	w.run(10 * testDetect)
	if w.hosts[0].state.view(w.now).Settled {
		t.Fatal("settled without a key")
	}
	w.set(0, func(want *Wanted) { want.Key = testKey })
	w.run(testDetect - time.Millisecond)
	if w.hosts[0].state.view(w.now).Settled {
		t.Fatal("settled before a detection time with a key had passed")
	}
	w.run(2 * time.Millisecond)
	if !w.hosts[0].state.view(w.now).Settled {
		t.Fatal("not settled after a detection time with a key")
	}
	w.expect(t, "settled", 0)
}

func TestRestartWithHold(t *testing.T) {
	w := started(t, 2, 1)
	h := w.hosts[0]
	restart := func(hold time.Duration) {
		h.state.part(w.now, hold)
		w.send(0, h.state.hellos(w.now))
		h.state = nil
	}
	serves := func() bool { return w.hosts[1].state.view(w.now).CanServe(h.name, vip) }

	restart(10 * time.Second)
	w.run(9 * time.Second)
	if !serves() {
		t.Fatal("a node that restarts lost its addresses before its hold ran out")
	}
	// The new process does not serve yet; the kernel does.
	h.want.Serving = false
	w.start(0)
	w.run(500 * time.Millisecond)
	if !serves() {
		t.Fatal("a node that has restarted lost its addresses before its hold ran out")
	}
	w.set(0, func(want *Wanted) { want.Serving = true })
	w.run(10 * testDetect)
	if !serves() {
		t.Fatal("a node that has restarted and serves again lost its addresses")
	}
	w.set(0, func(want *Wanted) { want.Serving = false })
	w.run(2 * testDelay)
	if serves() || !w.alive(1, 0) {
		t.Fatal("a node that stopped serving must be alive and unable at once")
	}

	// A hold ends by itself, is capped, and does not outlive a process that
	// comes back but never serves.
	w.set(0, func(want *Wanted) { want.Serving = true })
	w.run(testDetect)
	restart(time.Hour)
	w.run(MaxHold - time.Second)
	h.want.Serving = false
	w.start(0)
	w.run(900 * time.Millisecond)
	if !serves() {
		t.Fatal("lost within its hold")
	}
	w.run(2 * testInterval)
	if serves() || !w.alive(1, 0) {
		t.Fatal("a node that came back unable must not serve after its hold")
	}
	h.state = nil
	w.run(testDetect + testInterval)
	w.expect(t, "died after all")
}

func TestHoldRunsOut(t *testing.T) {
	w := started(t, 2, 1)
	h := w.hosts[0]
	h.state.part(w.now, 3*time.Second)
	w.send(0, h.state.hellos(w.now))
	h.state = nil
	w.run(2900 * time.Millisecond)
	w.expect(t, "within its hold", 0, 1)
	w.run(200 * time.Millisecond)
	w.expect(t, "after its hold", 1)
	if n := w.hosts[1].state.figures().Deaths; n != 1 {
		t.Errorf("%d deaths, want 1", n)
	}
	if silent := w.hosts[1].state.view(w.now).Silent; !slices.Equal(silent, []string{"node-0"}) {
		t.Errorf("%v count as silent", silent)
	}
}

func TestLeavingIsNoDeath(t *testing.T) {
	for name, leave := range map[string]func(w *world){
		"wanted":  func(w *world) { w.set(0, func(want *Wanted) { want.Leaving = true }) },
		"goodbye": func(w *world) { w.goodbye(0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			w := started(t, 2, 1)
			leave(w)
			w.run(2 * testDelay)
			for _, h := range w.hosts {
				if h.state.view(w.now).CanServe("node-0", vip) {
					t.Errorf("%s thinks that a leaving node can serve", h.name)
				}
			}
			w.hosts[0].state = nil
			w.run(testDetect + testInterval)
			w.expect(t, "left", 1)
			if silent := w.hosts[1].state.view(w.now).Silent; len(silent) > 0 {
				t.Errorf("%v count as silent", silent)
			}
			if n := w.hosts[1].state.figures().Deaths; n != 0 {
				t.Errorf("leaving was counted as %d deaths", n)
			}
		})
	}
}

// TestHoldIsCapped by the receiver too, whatever the sender asks for.
func TestHoldIsCapped(t *testing.T) {
	w := started(t, 2, 1)
	s := w.hosts[0].state
	h := hello{Node: s.node, Incarnation: s.incarnation, Seq: s.seq + 1, Hold: time.Minute, said: s.said}
	w.hosts[1].state.hear(w.now, seal(datagramOf(version, h.Seq, h), testKey), attacker)
	w.hosts[0].state = nil
	w.run(MaxHold - testInterval)
	w.expect(t, "within the longest hold", 0, 1)
	w.run(2 * testInterval)
	w.expect(t, "after the longest hold", 1)
}

// TestAnyBootIsBelieved: the id of a new process is random, and lower than the
// one before in half of all restarts; nobody is locked out for it.
func TestAnyBootIsBelieved(t *testing.T) {
	w := started(t, 2, 1)
	lower, higher := 0, 0
	for range 20 {
		before := w.hosts[0].state.incarnation
		w.start(0) // a crash and restart faster than detection
		if w.hosts[0].state.incarnation < before {
			lower++
		} else {
			higher++
		}
		w.run(testInterval)
		w.expect(t, "restarted", 0, 1)
		w.run(2 * testDetect)
		w.expect(t, "some time after", 0, 1)
	}
	if lower == 0 || higher == 0 {
		t.Fatalf("%d lower and %d higher boots: the test must see both", lower, higher)
	}
	if n := w.hosts[1].state.figures().Deaths; n != 0 {
		t.Errorf("%d deaths", n)
	}
}

// TestBlockedPort: a firewall between the nodes leaves Kubernetes' word, in
// either direction that it blocks, and the log says it once.
func TestBlockedPort(t *testing.T) {
	for name, cuts := range map[string][][2]int{
		"both ways":    {{0, 1}, {1, 0}},
		"towards us":   {{1, 0}},
		"away from us": {{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, 1)
			for _, cut := range cuts {
				w.cut[cut] = true
			}
			ready := func(ready bool) func(*Wanted) {
				return func(want *Wanted) {
					want.Peers["node-1"] = Peer{Addrs: []netip.Addr{w.hosts[1].addr}, Ready: ready}
				}
			}
			ready(true)(&w.hosts[0].want)
			w.start(0)
			w.start(1)
			w.run(time.Minute)
			if m, alive := w.member(0, 1); !alive || m.Heard || !m.Serving {
				t.Errorf("a ready node that cannot be heard is %+v (alive: %v)", m, alive)
			}
			if n := w.hosts[0].state.figures().Unheard; n != 1 {
				t.Errorf("%d unheard nodes, want 1", n)
			}
			if n := strings.Count(w.hosts[0].log.String(), "never heard"); n != 1 {
				t.Errorf("told %d times, want once:\n%s", n, w.hosts[0].log.String())
			}
			w.set(0, ready(false))
			w.expect(t, "not ready any more", []int{}...)
			w.set(0, ready(true))
			if !w.alive(0, 1) {
				t.Error("ready again and not alive")
			}

			// Once heard, only hellos count.
			clear(w.cut)
			w.run(2 * testInterval)
			if m, alive := w.member(0, 1); !alive || !m.Heard {
				t.Errorf("heard at last, and is %+v (alive: %v)", m, alive)
			}
			w.hosts[1].state = nil
			w.run(testDetect + testInterval)
			if w.alive(0, 1) {
				t.Error("a node that was heard and died is alive because Kubernetes says so")
			}
		})
	}
}

// TestPauseOfOursIsNoSilence: hellos that wait in the socket while this process stands
// still are no silence.
func TestPauseOfOursIsNoSilence(t *testing.T) {
	w := started(t, 3, 1)
	h := w.hosts[0]
	paused := h.state
	h.state = nil // nothing runs, nothing is read
	w.run(20 * testDetect)
	h.state = paused

	w.wake(0) // the timer comes before the socket
	if !w.alive(0, 1) || !w.alive(0, 2) {
		t.Fatal("others died of our pause")
	}
	w.hosts[2].state = nil
	w.run(testDetect + testInterval)
	if !w.alive(0, 1) || w.alive(0, 2) {
		t.Fatalf("after the pause node-1 must be alive (%v), node-2, which died, not (%v)", w.alive(0, 1), w.alive(0, 2))
	}
}

func TestUnwantedPeerIsForgotten(t *testing.T) {
	w := started(t, 3, 1)
	peer := w.hosts[0].want.Peers["node-2"]
	w.set(0, func(want *Wanted) { delete(want.Peers, "node-2") })
	if w.alive(0, 2) {
		t.Fatal("alive though not wanted")
	}
	w.run(testDetect)
	if w.alive(0, 2) || w.hosts[0].state.figures().Rejected[ReasonUnknownNode] == 0 {
		t.Fatal("its hellos are believed though it is not wanted")
	}
	w.set(0, func(want *Wanted) { want.Peers["node-2"] = peer })
	w.run(2 * testInterval)
	w.expect(t, "wanted again", 0, 1, 2)
}

func TestUnableTravelsAtOnce(t *testing.T) {
	w := started(t, 2, 1)
	broken, fine := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::2")
	w.set(0, func(want *Wanted) { want.Unable = []netip.Addr{broken} })
	w.run(2 * testDelay)
	for _, h := range w.hosts {
		v := h.state.view(w.now)
		if v.CanServe("node-0", broken) || !v.CanServe("node-0", fine) || !v.CanServe("node-1", broken) {
			t.Errorf("%s sees %+v", h.name, v.Alive)
		}
	}
}

// TestThePaceOfManyNodes: the nodes that are watched are told as often, and their silence is a death as soon, however many
// nodes there are; the others are told one a millisecond.
func TestThePaceOfManyNodes(t *testing.T) {
	m := newMachine(Config{Node: "a", Interval: 50 * time.Millisecond, Multiplier: 3}, func() uint64 { return 1 })
	for _, test := range []struct {
		peers int
		slow  time.Duration
	}{
		{2, 50 * time.Millisecond},
		{50, 50 * time.Millisecond},
		{999, 999 * time.Millisecond},
		{3, 50 * time.Millisecond},
	} {
		peers := map[string]Peer{}
		for i := range test.peers {
			peers[fmt.Sprint("node-", i)] = Peer{}
		}
		m.set(time.Now(), Wanted{Peers: peers})
		if m.interval != 50*time.Millisecond || m.detect != 150*time.Millisecond || m.mesh.slow != test.slow {
			t.Errorf("%d peers: every %v, dead after %v, others every %v, want %v", test.peers, m.interval, m.detect, m.mesh.slow, test.slow)
		}
	}
}
