package nftables

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
)

// TestAdmittedAreThoseInARange looks sources up as the kernel does: found are those within a range, and no others, such
// as one that is in a range once it is cut off at the length of another.
func TestAdmittedAreThoseInARange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLayout(rapid.SampledFrom(addr.Families()).Draw(t, "family"))
		address := func(label string) netip.Addr {
			bytes := rapid.SampledFrom([]byte{0, 0, 0, 1, 127, 128, 192, 255})
			a, _ := netip.AddrFromSlice(rapid.SliceOfN(bytes, l.Family.Bits()/8, l.Family.Bits()/8).Draw(t, label))
			return a
		}
		var prefixes []netip.Prefix
		for range rapid.IntRange(0, 2*mostLengths).Draw(t, "ranges") {
			prefixes = append(prefixes, netip.PrefixFrom(address("range"), rapid.IntRange(0, l.Family.Bits()).Draw(t, "length")).Masked())
		}
		admitted := disjoint(prefixes).Prefixes()
		has := admissions("", admitted)
		sources := []netip.Addr{address("source")}
		for _, p := range prefixes {
			sources = append(sources, p.Addr(), p.Addr().Prev(), p.Addr().Next())
		}
		for _, source := range sources {
			if !source.IsValid() {
				continue
			}
			found := slices.ContainsFunc([]byte(l.lengthsOf(admitted)), func(bits byte) bool {
				return slices.Contains(has, admissions("", []netip.Prefix{netip.PrefixFrom(source, int(bits)).Masked()})[0])
			})
			if within := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(source) }); found != within {
				t.Fatalf("%v: %s is found: %t, want %t", prefixes, source, found, within)
			}
		}
	})
}
