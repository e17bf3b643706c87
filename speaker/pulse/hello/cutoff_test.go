package hello

import (
	"testing"
	"time"
)

// TestANodeThatIsCutOffHearsNone and knows so soon, also of the nodes that it begins to watch in place of those that it does not hear,
// whatever Kubernetes says.
func TestANodeThatIsCutOffHearsNone(t *testing.T) {
	for _, size := range []int{2, 9, 10, 11, 12, 16, 40} {
		w := newWorld(size, 1)
		for i := range w.hosts {
			for node, p := range w.hosts[i].want.Peers {
				p.Ready = true
				w.hosts[i].want.Peers[node] = p
			}
			w.start(i)
		}
		w.run(5 * time.Second)
		for i := 1; i < size; i++ {
			w.cut[[2]int{0, i}], w.cut[[2]int{i, 0}] = true, true
		}
		w.run(6 * testDetect)
		if v := w.hosts[0].state.view(w.now); len(v.Alive) != 1 {
			t.Errorf("of %d nodes, %d are alive in the eyes of the one that is cut off", size, len(v.Alive))
		}
		for _, h := range w.hosts[1:] {
			if v := h.state.view(w.now); len(v.Alive) != size-1 {
				t.Errorf("of %d nodes, %d are alive in the eyes of %s", size, len(v.Alive), h.name)
			}
		}
	}
}
