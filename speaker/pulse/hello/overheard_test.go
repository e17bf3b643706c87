package hello

import (
	"slices"
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

// TestWhatOthersHearIsAlive: nothing passes between two nodes, and a third one hears both. Each counts the other as alive
// soon after it took it for dead, until it dies, or says that it does not serve any more.
func TestWhatOthersHearIsAlive(t *testing.T) {
	for _, test := range []struct {
		name string
		ends func(w *world)
	}{
		{"dies", func(w *world) { w.hosts[1].state = nil }},
		{"serves nothing", func(w *world) { w.set(1, func(want *Wanted) { want.Serving = false }) }},
		{"leaves", func(w *world) { w.set(1, func(want *Wanted) { want.Leaving = true }) }},
		{"is heard by nobody", func(w *world) { w.cut[[2]int{1, 2}] = true }},
		{"is testified for by nobody", func(w *world) { w.hosts[2].state = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := started(t, 3, 5)
			w.cut[[2]int{0, 1}], w.cut[[2]int{1, 0}] = true, true
			w.run(testDetect + 3*testInterval)
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
			if s := w.hosts[0].state.figures(); s.Apart != 1 || s.Heard != 1 || s.Deaths != 1 {
				t.Errorf("figures: %+v", s)
			}
			test.ends(w)
			w.run(2*testDetect + testInterval)
			if alive, apart := w.apart(0, 1); alive || apart {
				t.Errorf("in the end node-0 counts node-1 as alive: %v, as heard by others: %v", alive, apart)
			}
		})
	}
}

// TestNobodyWaitsForWitnesses: a third node waits longer for one that dies, and calls it alive meanwhile. Nobody
// believes that.
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
	w.run(testDetect + testInterval)
	testified := false
	w.arrived = func(from, to int, datagram []byte) {
		h, _ := open(datagram, ringOfKeys(testKey))
		testified = testified || from == 2 && to == 0 && len(h.testimony) > 0
	}
	w.stepped = func() {
		if alive, _ := w.apart(0, 1); alive {
			t.Fatal("node-0 takes the dead node for alive again")
		}
	}
	w.run(3 * testDetect)
	if !testified {
		t.Error("node-2 testified of nobody, so that this shows nothing")
	}
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
