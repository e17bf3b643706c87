package hello

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestKeyRotation: the key is replaced twice, nodes learn of that seconds apart and
// one begins anew meanwhile; at no moment does anybody miss anybody, and in the end the old
// keys are worth nothing.
func TestKeyRotation(t *testing.T) {
	third := bytes.Repeat([]byte{3}, len(testKey))
	w := started(t, 3, 1)
	var missed bool
	w.stepped = func() {
		for i, h := range w.hosts {
			for j := range w.hosts {
				missed = missed || h.state != nil && h.state.settled && !w.alive(i, j)
			}
		}
	}
	for _, key := range [][]byte{otherKey, third} {
		for i := range w.hosts {
			w.set(i, func(want *Wanted) { want.Key = key })
			w.run(9 * time.Second)
		}
		h := w.hosts[0]
		h.state.part(w.now, MaxHold)
		w.send(0, h.state.hellos(w.now))
		w.run(testDelay)
		w.start(0)
		w.run(2 * testDetect)
	}
	if missed {
		t.Error("a node was missed while the key was replaced")
	}
	for _, h := range w.hosts {
		if n := h.state.figures().Deaths; n != 0 {
			t.Errorf("%s saw %d deaths", h.name, n)
		}
	}
	w.run(keyGrace)
	w.expect(t, "rotated", 0, 1, 2)

	w.hosts[0].state = nil
	w.run(2 * testDetect)
	w.expect(t, "without node-0", 1, 2)
	for _, key := range [][]byte{testKey, otherKey} {
		forged := hello{Node: "node-0", Incarnation: 1, Seq: 1, said: said{Serving: true}}
		for range 3 {
			before := w.hosts[1].state.figures().Rejected[ReasonMAC]
			w.send(1, w.hosts[1].state.hear(w.now, seal(datagramOf(version, 1, forged), key), attacker))
			w.run(4 * testDelay)
			if got := w.hosts[1].state.figures().Rejected[ReasonMAC] - before; got != 1 {
				t.Errorf("%d hellos were rejected that an old key made, want 1", got)
			}
		}
	}
	w.expect(t, "forged", 1, 2)
}

// TestAKeyIsReplacedWhileANodeIsCutOff, for ten minutes: the others still meet it by the old key, and give that one up
// once it has the new one, which it gets only then.
func TestAKeyIsReplacedWhileANodeIsCutOff(t *testing.T) {
	many := 20
	if testing.Short() {
		many = 12
	}
	for _, size := range []int{3, many} {
		t.Run(fmt.Sprint(size, " nodes"), func(t *testing.T) {
			w := started(t, size, 1)
			others := slices.Delete(upTo(size), 2, 3)
			for _, i := range others {
				w.cut[[2]int{i, 2}], w.cut[[2]int{2, i}] = true, true
			}
			w.run(time.Minute)
			for _, i := range others {
				w.set(i, func(want *Wanted) { want.Key = otherKey })
			}
			w.run(9 * time.Minute)
			if sent := len(w.hosts[0].state.hellos(w.now).datagrams); sent != 1 {
				t.Errorf("%d datagrams for a hello, want one: nobody is there that needs the old key", sent)
			}
			clear(w.cut)
			w.run(2 * testDetect)
			w.expect(t, "back with the old key", upTo(size)...)
			w.run(2 * keyGrace)
			w.expect(t, "with the old key for a while", upTo(size)...)
			w.set(2, func(want *Wanted) { want.Key = otherKey })
			w.run(2 * keyGrace)
			w.expect(t, "with the new key", upTo(size)...)
			for _, h := range w.hosts {
				if len(h.state.keys) != 1 {
					t.Errorf("%s has %d keys", h.name, len(h.state.keys))
				}
			}
		})
	}
}

// TestAReplacedKeyIsNotForEver, be there a node that never comes back.
func TestAReplacedKeyIsNotForEver(t *testing.T) {
	w := started(t, 2, 1)
	w.hosts[1].state = nil
	w.set(0, func(want *Wanted) { want.Key = otherKey })
	w.run(keyGrace + time.Minute)
	if got := len(w.hosts[0].state.keys); got != 2 {
		t.Errorf("%d keys while a node may need the old one", got)
	}
	w.run(keyHold)
	if got := len(w.hosts[0].state.keys); got != 1 {
		t.Errorf("%d keys in the end", got)
	}
}

// TestAnEmptyKeyReplacesNone: a Secret that has lost its value, which all nodes learn, takes
// the key away from nobody, however long that lasts; and the next key replaces it as any other.
func TestAnEmptyKeyReplacesNone(t *testing.T) {
	w := started(t, 2, 1)
	heard := func(when string) {
		t.Helper()
		for i := range w.hosts {
			v := w.hosts[i].state.view(w.now)
			if other := fmt.Sprintf("node-%d", 1-i); !v.Settled || !v.Alive[other].Heard {
				t.Errorf("%s the view of %s is %+v", when, w.hosts[i].name, v)
			}
			if n := w.hosts[i].state.figures().Deaths; n != 0 {
				t.Errorf("%s %s saw %d deaths", when, w.hosts[i].name, n)
			}
		}
	}
	for i := range w.hosts {
		w.set(i, func(want *Wanted) { want.Key = nil })
	}
	w.run(2*keyGrace + testDetect)
	heard("with an empty key")
	for i := range w.hosts {
		w.set(i, func(want *Wanted) { want.Key = otherKey })
	}
	w.run(testDetect + testInterval)
	heard("with a new key")
	w.run(keyGrace)
	for _, h := range w.hosts {
		if got := len(h.state.keys); got != 1 || !bytes.Equal(h.state.keys[0].secret.key, otherKey) {
			t.Errorf("%s has %d keys, want the new one alone", h.name, got)
		}
	}
}

// TestNoKeyNoHello: who never had a key says nothing that nobody could verify, and believes nothing.
func TestNoKeyNoHello(t *testing.T) {
	w := newWorld(2, 1)
	for i := range w.hosts {
		w.hosts[i].want.Key = nil
		w.start(i)
	}
	w.run(keyGrace)
	if out := w.hosts[0].state.hellos(w.now); len(out.datagrams) > 0 {
		t.Error("hellos are sent without a key")
	}
	if v := w.hosts[0].state.view(w.now); v.Settled || v.Alive["node-1"].Heard {
		t.Errorf("without a key the view is %+v", v)
	}
}

// seal is what a process does that has this key alone.
func seal(body, key []byte) []byte { return newSecret(key).seal(body) }

func ringOfKeys(keys ...[]byte) (r keyring) {
	for _, k := range keys {
		r = append(r, key{secret: newSecret(k)})
	}
	return r
}

// TestNoKeyNoHaste: a node that has no key yet waits for it, and does not wake all the time.
func TestNoKeyNoHaste(t *testing.T) {
	w := newWorld(5, 1)
	w.hosts[0].want.Key = nil
	w.start(0)
	steps := 0
	for end := w.now.Add(10 * time.Second); w.step(end); steps++ {
		if steps > 1000 {
			t.Fatalf("it woke %d times in %v", steps, 10*time.Second-end.Sub(w.now))
		}
	}
	if steps < 5 {
		t.Errorf("it woke %d times, so that this shows nothing", steps)
	}
}
