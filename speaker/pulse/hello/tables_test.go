package hello

import (
	"testing"
	"time"
)

// TestNodesTellInWhichBucketsTablesDiffer: one node has another table than all others. Each node learns in which
// bucket, whether it says hello to that node or not, and that it is over; what differs for a moment only is not told.
func TestNodesTellInWhichBucketsTablesDiffer(t *testing.T) {
	for _, size := range []int{2, 3, 9, 40} {
		w := newWorld(size, 1)
		for i := range w.hosts {
			w.start(i)
		}
		w.run(5 * time.Second)
		have := func(i int, digest uint32) {
			w.set(i, func(want *Wanted) { want.Table[7] = digest })
		}
		all := func(when string, differs uint32) {
			t.Helper()
			for _, h := range w.hosts {
				if v := h.state.view(w.now); v.Differs != differs || v.Differ(7) != (differs != 0) || v.Differ(8) {
					t.Fatalf("of %d nodes, %s: tables differ in %x in the eyes of %s, want %x", size, when, v.Differs, h.name, differs)
				}
			}
		}
		all("with one table", 0)
		for i := range w.hosts {
			have(i, 1)
			w.run(differAfter / time.Duration(size+1))
			all("while a change comes to one after another", 0)
		}
		w.run(5 * time.Second)
		all("once all have it", 0)
		have(size-1, 2)
		w.run(differAfter + 4*testInterval)
		all("with another one", 1<<7)
		w.run(5 * time.Second)
		all("for good", 1<<7)
		have(size-1, 1)
		w.run(3 * testInterval)
		all("with one again", 0)
		have(size-1, 2)
		w.run(differAfter + 4*testInterval)
		w.hosts[size-1].state = nil
		w.run(3 * testDetect)
		for _, h := range w.hosts[:size-1] {
			if v := h.state.view(w.now); v.Differs != 0 {
				t.Errorf("of %d nodes, without the one: %x", size, v.Differs)
			}
		}
	}
}
