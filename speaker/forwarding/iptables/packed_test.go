package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/forwarding/ipset"
)

// TestPackedElements holds that elements come out as they went in, and that those are told that are none of ours.
func TestPackedElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := ipset.Element{Port: rapid.Uint16().Draw(t, "port"), Protocol: rapid.Uint8().Draw(t, "protocol")}
		size := rapid.SampledFrom([]int{0, 4, 16}).Draw(t, "size")
		a, ok := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "address"))
		if ok {
			want.Prefix = netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
			if rapid.Bool().Draw(t, "twice") {
				want.Second = a
			}
		}
		if p, ours := pack(want); !ours || p.element() != want {
			t.Errorf("%v becomes %v, ours: %v", want, p.element(), ours)
		}
		want.Second = a.Next()
		if _, ours := pack(want); ours && want.Second.IsValid() {
			t.Errorf("%v is taken for ours", want)
		}
	})
}

// TestRulesAreKeptBriefly holds that rules are kept as they were, and those of a Service in less than half of their room.
func TestRulesAreKeptBriefly(t *testing.T) {
	part := rapid.OneOf(rapid.SampledFrom(phrases), rapid.StringMatching(`[ -~]{0,8}`))
	rapid.Check(t, func(t *rapid.T) {
		var rule strings.Builder
		for _, some := range rapid.SliceOfN(part, 0, 12).Draw(t, "rule") {
			if len(some) != 1 || some >= " " {
				rule.WriteString(some)
			}
		}
		want := rule.String() + "\n"
		if got := newChain("", rule.String()).text(); got != want {
			t.Errorf("%q becomes %q", want, got)
		}
	})
	endpoint := "-p tcp -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.244.1.17:8080"
	if kept := len(newChain("", endpoint).brief); 2*kept > len(endpoint) {
		t.Errorf("%d bytes of %d are kept", kept, len(endpoint))
	}
}
