package hello

import (
	"fmt"
	"slices"
	"testing"
)

// readyWorld is a world in which Kubernetes says that all nodes are ready.
func readyWorld(size int, seed uint64) *world {
	w := newWorld(size, seed)
	for _, h := range w.hosts {
		for name, p := range h.want.Peers {
			p.Ready = true
			h.want.Peers[name] = p
		}
	}
	return w
}

// shut closes the port of one host to all but some.
func (w *world) shut(one int, but ...int) {
	for i := range w.hosts {
		if i != one && !slices.Contains(but, i) {
			w.cut[[2]int{one, i}], w.cut[[2]int{i, one}] = true, true
		}
	}
}

// TestANodeNeverHeard: a node that nobody has heard is alive for all while Kubernetes says that it
// is ready, and so are all for it.
func TestANodeNeverHeard(t *testing.T) {
	w := readyWorld(20, 1)
	w.shut(7)
	for i := range w.hosts {
		w.start(i)
	}
	for range 20 {
		w.run(testDetect)
		w.expectAlive(t, "while it is ready", upTo(20))
	}
	if n := w.hosts[0].state.figures().Unheard; n != 1 {
		t.Errorf("%d nodes count as never heard", n)
	}
	w.hosts[7].state = nil
	for i := range w.hosts {
		if i == 7 {
			continue
		}
		w.set(i, func(want *Wanted) {
			p := want.Peers["node-7"]
			p.Ready = false
			want.Peers["node-7"] = p
		})
	}
	w.run(testInterval)
	w.expectAlive(t, "when it is not ready", slices.Delete(upTo(20), 7, 8))
}

// TestHeardByFew: once a few nodes have heard one, all go by what these say, and Kubernetes'
// word, which comes late, counts no more.
func TestHeardByFew(t *testing.T) {
	for hearers := 1; hearers <= 3; hearers++ {
		w := startedMany(t, 20, 1)
		watchers := w.watchers(7)[:hearers]
		w = readyWorld(20, 1)
		w.shut(7, watchers...)
		for i := range w.hosts {
			w.start(i)
		}
		w.run(6 * testDetect)
		w.expectAlive(t, fmt.Sprint("heard by ", hearers), upTo(20))
		w.hosts[7].state = nil
		w.run(2*testDetect + hops)
		w.expectAlive(t, fmt.Sprint("dead, and heard by ", hearers), slices.Delete(upTo(20), 7, 8))
		w.expectAllSee(t, "the others", slices.Delete(upTo(20), 7, 8))
	}
}
