package addr_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
)

// TestUnreachable: the prefixes are those of what is not Reachable, and of nothing else.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	agree := func(a netip.Addr) bool {
		in := false
		for _, p := range addr.Unreachable() {
			in = in || p.Contains(a)
		}
		return in != addr.Reachable(a)
	}
	for _, p := range addr.Unreachable() {
		for _, a := range []netip.Addr{p.Addr(), p.Addr().Next(), p.Addr().Prev()} {
			if a.IsValid() && !agree(a) {
				t.Errorf("%s", a)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var a netip.Addr
		if rapid.Bool().Draw(t, "IPv4") {
			a = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes")))
		} else if a = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))); a.Is4In6() {
			return
		}
		if !agree(a) {
			t.Fatalf("%s", a)
		}
	})
}
