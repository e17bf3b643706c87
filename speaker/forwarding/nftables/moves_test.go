package nftables

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/pulse/handover"
)

// TestAMoveOfAnAddressWakesNobodyElse has pulse, another process, move an address beside the rules of a Service, on
// a kernel that keeps nobody from the tables: the backend is not to take it for the work of others, which it would
// read its table again for.
func TestAMoveOfAnAddressWakesNobodyElse(t *testing.T) {
	c := newClusterOf(t, old)
	c.backend.link.Generation = &kernelwatch.Generation{Beside: kernelwatch.HandoverTable}
	b, h := c.backend, handover.NewTable()
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Node.Do(func() {
		if _, err := b.Apply(t.Context(), want); err != nil {
			t.Error(err)
		}
		for i := range 3 {
			moved := map[netip.Addr]netip.Addr{netip.AddrFrom4([4]byte{198, 51, 0, 1}): netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
			moved[netip.MustParseAddr("2001:db8::1")] = netip.AddrFrom16([16]byte{0x20, 2, 15: byte(i)})
			if err := h.Apply(moved); err != nil {
				t.Error(err)
			}
			if b.disturbed() || h.Disturbed() {
				t.Errorf("move %d is taken for the work of others", i+1)
			}
			want.Revision++
			if _, err := b.Apply(t.Context(), want); err != nil {
				t.Error(err)
			}
			if h.Disturbed() {
				t.Error("what the backend writes is taken for the work of others")
			}
		}
	})
	c.Run("nft", "delete", "element", "ip", "fairlead-handover", "former", "{", "198.51.0.1", "}")
	c.Node.Do(func() {
		if !b.disturbed() {
			t.Error("what others write is noticed no more")
		}
	})
}
