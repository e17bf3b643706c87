package hello

import (
	"testing"
	"time"
)

// TestKeyRotation: nodes learn of a new key minutes of traffic apart, and
// nobody dies; then the old one is worth nothing.
func TestKeyRotation(t *testing.T) {
	w := started(t, 3, 1)
	for i := range w.hosts {
		w.set(i, func(want *Wanted) { want.Key = otherKey })
		w.run(20 * time.Second)
	}
	for _, h := range w.hosts {
		if n := h.state.figures().Deaths; n != 0 {
			t.Errorf("%s saw %d deaths", h.name, n)
		}
	}
	w.run(keyGrace)
	w.expect(t, "rotated", 0, 1, 2)
	for _, h := range w.hosts {
		if n := len(h.state.keys); n != 1 {
			t.Errorf("%s uses %d keys", h.name, n)
		}
	}
}

// TestKeyTakenAway: nobody is heard any more, and that is nobody's death.
func TestKeyTakenAway(t *testing.T) {
	w := started(t, 2, 1)
	for i, h := range w.hosts {
		for name, p := range h.want.Peers {
			h.want.Peers[name] = Peer{Addrs: p.Addrs, Ready: true}
		}
		w.set(i, func(want *Wanted) { want.Key = nil })
	}
	w.run(keyGrace + testDetect)
	w.expect(t, "without a key", 0, 1)
	v := w.hosts[0].state.view(w.now)
	if v.Settled || v.Alive["node-1"].Heard {
		t.Errorf("without a key the view is %+v", v)
	}
	if out := w.hosts[0].state.hellos(w.now); len(out.datagrams) > 0 {
		t.Error("hellos are sent without a key")
	}
	for i := range w.hosts {
		w.set(i, func(want *Wanted) { want.Key = otherKey })
	}
	w.run(testDetect + testInterval)
	v = w.hosts[0].state.view(w.now)
	if !v.Settled || !v.Alive["node-1"].Heard {
		t.Errorf("with a new key the view is %+v", v)
	}
	if n := w.hosts[0].state.figures().Deaths; n != 0 {
		t.Errorf("%d deaths", n)
	}
}
