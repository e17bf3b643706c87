package egress_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/egress"
)

// TestSourcesSayWhatTheRoutesSay holds that the short list gives each destination what the longest of all routes to it
// asks for: its source, or the interface's address, which is the same where it equals the source.
func TestSourcesSayWhatTheRoutesSay(t *testing.T) {
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	h := egress.Host{Links: []egress.Link{link(1, "lo", "192.0.2.1/32", "192.0.2.2/32"), link(2, "eth0", "10.0.0.1/8"), link(3, "eth1", "192.0.2.2/24")}}
	rapid.Check(t, func(t *rapid.T) {
		h.Routes = nil
		asked := map[netip.Prefix]netip.Addr{}
		for range rapid.IntRange(0, 12).Draw(t, "routes") {
			to, _ := netip.AddrFrom4([4]byte{198, 18, 0, rapid.Byte().Draw(t, "to")}).Prefix(rapid.SampledFrom([]int{0, 24, 25, 26, 27, 28, 29, 30, 31, 32}).Draw(t, "length"))
			if _, known := asked[to]; known {
				continue
			}
			by := rapid.IntRange(2, 3).Draw(t, "interface")
			asked[to] = rapid.SampledFrom([]netip.Addr{{}, one, two}).Draw(t, "source")
			h.Routes = append(h.Routes, egress.Route{To: to, Source: asked[to], Hops: []egress.Hop{{Link: by}}})
			if !asked[to].IsValid() {
				asked[to] = map[int]netip.Addr{2: netip.MustParseAddr("10.0.0.1"), 3: two}[by]
			}
		}
		all, err := h.Sources(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for last := range 256 {
			a := netip.AddrFrom4([4]byte{198, 18, 0, byte(last)})
			byInterface, want := netip.Addr{}, netip.Addr{}
			length := -1
			for _, r := range h.Routes {
				if r.To.Contains(a) && r.To.Bits() > length {
					length, want = r.To.Bits(), asked[r.To]
					byInterface = map[int]netip.Addr{2: netip.MustParseAddr("10.0.0.1"), 3: two}[r.Hops[0].Link]
				}
			}
			got := byInterface
			if at := first(all, a); at >= 0 && all[at].From.IsValid() {
				got = all[at].From
			}
			if got != want {
				t.Fatalf("%s gets %v, want %v, of %v by %q", a, got, want, h.Routes, show(all))
			}
		}
	})
}

// first is the first source whose prefix has the address; -1: none.
func first(all []desired.Source, a netip.Addr) int {
	for i, s := range all {
		if s.To.Contains(a) {
			return i
		}
	}
	return -1
}
