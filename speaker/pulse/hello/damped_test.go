package hello

import (
	"slices"
	"testing"
	"time"
)

// TestANodeIsDampedForAllWhileAnyLivingOneSaysSo, itself included, and no longer.
func TestANodeIsDampedForAllWhileAnyLivingOneSaysSo(t *testing.T) {
	for _, size := range []int{2, 3, 40} {
		w := newWorld(size, 1)
		for i := range w.hosts {
			w.start(i)
		}
		w.run(5 * time.Second)
		flaps, last := w.hosts[0].name, size-1
		all := func(when string, want ...string) {
			t.Helper()
			for _, h := range w.hosts {
				if h.state == nil {
					continue
				}
				if got := h.state.view(w.now).Damped(); !slices.Equal(got, want) {
					t.Errorf("of %d nodes, %s: %v are damped in the eyes of %s, want %v", size, when, got, h.name, want)
				}
			}
		}
		say := func(i int, nodes ...string) {
			w.set(i, func(want *Wanted) { want.Damped = nodes })
			w.run(2 * testInterval)
		}
		all("at first")
		say(last, flaps)
		all("one says so", flaps)
		say(size/2, flaps)
		say(last)
		all("another one does", map[bool][]string{true: {flaps}}[size > 2]...)
		say(size / 2)
		all("none does any more")
		say(last, flaps, "unknown")
		all("one does again", flaps)
		w.hosts[last].state = nil
		w.run(3 * testDetect)
		all("that is dead")
		w.start(last)
		w.run(5 * time.Second)
		all("and back, and says so", flaps)
		w.hosts[0].state = nil
		w.run(3 * testDetect)
		all("the node is dead")
		w.start(0)
		w.run(5 * time.Second)
		all("it is back", flaps)
	}
}
