package hello

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

// TestEpochsGrowWithWhatWasHeard: an epoch that a node begins is higher than any of a node
// that it has heard, directly or through another one.
func TestEpochsGrowWithWhatWasHeard(t *testing.T) {
	w := newWorld(3, 1)
	for i := range w.hosts {
		w.start(i)
	}
	w.run(time.Second)
	var last uint64
	for i := range 9 {
		epoch := w.hosts[i%3].state.advance()
		if epoch <= last {
			t.Errorf("epoch %d follows on %d", epoch, last)
		}
		last = epoch
		w.run(time.Second)
	}
}

// TestADeafNodeIsSoundOnceItIsVouchedFor: one of two nodes does not hear the other. It is
// believed to hear at all only if something else has answered it.
func TestADeafNodeIsSoundOnceItIsVouchedFor(t *testing.T) {
	w := newWorld(2, 1)
	for i := range w.hosts {
		w.start(i)
	}
	w.run(time.Second)
	w.cut[[2]int{0, 1}] = true
	deaf := func() bool { return w.hosts[0].state.view(w.now).Alive["node-1"].Deaf }
	w.run(3 * time.Second)
	if deaf() {
		t.Error("node-1 hears nobody, and is believed to be sound")
	}
	w.set(1, func(want *Wanted) { want.Vouched = true })
	w.run(2 * testDetect)
	if !deaf() {
		t.Error("node-1 is vouched for, and is not believed")
	}
	w.set(1, func(want *Wanted) { want.Vouched = false })
	w.run(2 * testDetect)
	if deaf() {
		t.Error("node-1 is not vouched for any more, and is believed")
	}
}

// FuzzClaims: whatever comes in the addition, what is read of it is told again just so.
func FuzzClaims(f *testing.F) {
	f.Add(hello{epoch: 7, said: said{claims: []Claim{{netip.MustParseAddr("192.0.2.1"), Leaves, 5}}}}.claiming(maxDatagram)[additionHead:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, addition []byte) {
		h := hello{}.claimed(addition)
		if len(h.claims) > MaxClaims {
			t.Fatalf("%d claims", len(h.claims))
		}
		again := h.claiming(maxDatagram)
		if h.epoch == 0 {
			return
		}
		if g := (hello{}).claimed(again[additionHead:]); !bytes.Equal(g.claiming(maxDatagram), again) {
			t.Fatalf("%+v was read as %+v", h, g)
		}
	})
}
