package hello

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// apart tells how one host counts another one: as alive, and as one that only others hear.
func (w *world) apart(at, of int) (alive, apart bool) {
	v, node := w.hosts[at].state.view(w.now), w.hosts[of].name
	if slices.Contains(v.Silent, node) && v.IsAlive(node) {
		panic(node + " is alive and silent")
	}
	return v.IsAlive(node), slices.Contains(v.Apart, node)
}

// TestWhatOthersHearIsAlive: nothing passes between two nodes, and a third one hears both. Neither ever takes the other
// for dead, until it dies, and each knows what the other says of itself.
func TestWhatOthersHearIsAlive(t *testing.T) {
	for _, test := range []struct {
		name   string
		ends   func(w *world)
		alive  bool
		deaths uint64
	}{
		{"dies", func(w *world) { w.hosts[1].state = nil }, false, 1},
		{"serves nothing", func(w *world) { w.set(1, func(want *Wanted) { want.Serving = false }) }, true, 0},
		{"leaves", func(w *world) { w.set(1, func(want *Wanted) { want.Leaving = true }) }, true, 0},
		{"is heard by no node", func(w *world) { w.cut[[2]int{1, 2}] = true }, false, 1},
		{"is vouched for by no node", func(w *world) { w.hosts[2].state = nil }, false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := started(t, 3, 5)
			w.cut[[2]int{0, 1}], w.cut[[2]int{1, 0}] = true, true
			w.stepped = func() {
				for i := range w.hosts {
					for j := range w.hosts {
						if !w.alive(i, j) {
							t.Fatalf("node-%d takes node-%d for dead", i, j)
						}
					}
				}
			}
			w.hosts[0].state.view(w.now)
			w.run(testDetect + 3*testInterval)
			if !w.hosts[0].state.dirty {
				t.Error("readers of the view are not told that node-1 is heard by others alone")
			}
			for range 100 {
				w.run(testInterval)
				for at, of := range map[int]int{0: 1, 1: 0} {
					if alive, apart := w.apart(at, of); !alive || !apart {
						t.Fatalf("node-%d counts node-%d as alive: %v, as heard by others: %v", at, of, alive, apart)
					}
				}
				if alive, apart := w.apart(2, 1); !alive || apart {
					t.Fatalf("node-2 counts node-1 as alive: %v, as heard by others alone: %v", alive, apart)
				}
			}
			if s := w.hosts[0].state.figures(); s.Apart != 1 || s.Heard != 1 || s.Deaths != 0 {
				t.Errorf("figures: %+v", s)
			}
			if n := strings.Count(w.hosts[0].log.String(), "others hear it"); n != 1 {
				t.Errorf("node-0 has told %d times that others hear node-1:\n%s", n, w.hosts[0].log.String())
			}
			w.stepped = func() {}
			test.ends(w)
			w.run(2*testDetect + testInterval)
			if alive, apart := w.apart(0, 1); alive != test.alive || apart != test.alive {
				t.Errorf("in the end node-0 counts node-1 as alive: %v, as heard by others: %v", alive, apart)
			}
			if w.hosts[0].state.view(w.now).CanServe("node-1", vip) {
				t.Error("in the end node-0 believes that node-1 can serve")
			}
			if n := w.hosts[0].state.figures().Deaths; n != test.deaths {
				t.Errorf("%d deaths, want %d", n, test.deaths)
			}
		})
	}
}

// TestWhatIsHeardAgainIsTold: the log has when two nodes between which frames were lost hear each other again.
func TestWhatIsHeardAgainIsTold(t *testing.T) {
	w := started(t, 3, 5)
	w.cut[[2]int{0, 1}], w.cut[[2]int{1, 0}] = true, true
	w.run(4 * testDetect)
	clear(w.cut)
	w.run(2*testInterval + 4*testDelay)
	if n := strings.Count(w.hosts[0].log.String(), "heard here again"); n != 1 {
		t.Errorf("it was told %d times:\n%s", n, w.hosts[0].log.String())
	}
}

// TestNobodyWaitsForWitnesses: a third node waits longer for one that dies, because it missed hellos of it before. All know
// of the death as soon as those do that missed none.
func TestNobodyWaitsForWitnesses(t *testing.T) {
	w := started(t, 3, 5)
	w.lose = func(from, to int) bool { return from == 1 && to == 2 && w.random.IntN(2) == 0 }
	waits := func() time.Duration { return w.hosts[2].state.peers["node-1"].detect }
	for range 1000 {
		if w.run(testInterval); waits() > 2*testDetect {
			break
		}
	}
	w.lose = func(int, int) bool { return false }
	w.run(testDetect)
	if waits() <= 2*testDetect {
		t.Fatalf("node-2 waits for no more than %v", waits())
	}
	w.hosts[1].state = nil
	w.run(testDetect + hops)
	w.expect(t, "at once", 0, 2)
	w.stepped = func() {
		if w.alive(0, 1) || w.alive(2, 1) {
			t.Fatal("the dead node is taken for alive again")
		}
	}
	w.run(3 * testDetect)
}

// TestOneWayIsNoQuarrel: a node that others hear, and one does not, keeps what it has: that one does not call it
// silent for long enough to be left anything.
func TestOneWayIsNoQuarrel(t *testing.T) {
	w := started(t, 3, 5)
	w.cut[[2]int{1, 0}] = true
	deaf := false
	w.stepped = func() {
		m, _ := w.member(1, 0)
		deaf = deaf || m.Deaf
	}
	w.run(20 * testDetect)
	if alive, apart := w.apart(0, 1); !alive || !apart || deaf {
		t.Errorf("node-0 counts node-1 as alive: %v, as heard by others: %v; it was deaf to node-1: %v", alive, apart, deaf)
	}
}

// TestANewProcessSpeaksForItself: a node that died serving comes back, and does not serve yet. None of those that hear
// it believes that it does, by what its former process said.
func TestANewProcessSpeaksForItself(t *testing.T) {
	for _, size := range []int{2, 3, 9} {
		w := started(t, size, 1)
		w.hosts[0].state = nil
		w.run(2 * testDetect)
		w.set(1, func(want *Wanted) { want.Vouched = true }) // the records go on
		w.hosts[0].want.Serving = false
		w.start(0)
		w.stepped = func() {
			for _, h := range w.hosts[1:] {
				if h.state.view(w.now).CanServe("node-0", vip) {
					t.Fatalf("%d nodes: %s believes that node-0 serves", size, h.name)
				}
			}
		}
		w.run(testDetect)
		if !w.alive(1, 0) {
			t.Errorf("%d nodes: node-0 is not back", size)
		}
	}
}

// TestAHoldEndsWithTheWordThatEndsIt: a node that restarts says in a hello that it serves again, and its record with that is lost
// or comes later. At no moment do others believe that it does not serve, as its record of before says, and they keep what it claims
// until it has said something else.
func TestAHoldEndsWithTheWordThatEndsIt(t *testing.T) {
	w := started(t, 3, 1)
	w.hosts[0].state.advance()
	claims := []Claim{{vip, Answers, 1, 0}}
	w.set(0, func(want *Wanted) { want.Claims = claims })
	w.run(testDetect)
	w.goodbye(0, MaxHold)
	w.hosts[0].state = nil
	w.hosts[0].want.Claims, w.hosts[0].want.Serving = nil, false
	expect := func() {
		t.Helper()
		for _, at := range []int{1, 2} {
			if m, alive := w.member(at, 0); !alive || !m.CanServe(vip) {
				t.Fatalf("node-%d believes that node-0 serves nothing: %+v", at, m)
			}
		}
	}
	w.stepped = expect
	w.run(time.Second)
	w.start(0)
	w.run(testDetect)
	for _, at := range []int{1, 2} {
		if m, _ := w.member(at, 0); !slices.Equal(m.Claims, claims) {
			t.Errorf("while it holds, node-%d knows of the claims %v", at, m.Claims)
		}
	}
	var leaving []byte
	w.sent = func(_ int, datagram []byte) { leaving = datagram }
	w.lose = func(from, _ int) bool { return from == 0 && isGossip(leaving) }
	w.set(0, func(want *Wanted) { want.Serving = true })
	w.run(testDetect)
	w.lose = func(int, int) bool { return false }
	w.run(testDetect)
	for _, at := range []int{1, 2} {
		if m, _ := w.member(at, 0); len(m.Claims) > 0 {
			t.Errorf("it serves again and claims nothing, and node-%d knows of %v", at, m.Claims)
		}
	}
}
