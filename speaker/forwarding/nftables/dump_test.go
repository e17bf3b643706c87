package nftables

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// TestIntervals holds that intervals are read as they were written, in a tree too,
// where the kernel has where they begin and what is behind them, and in a map with their data.
func TestIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(addr.Families()).Draw(t, "family")
		l := newLayout(f)
		var prefixes []netip.Prefix
		for range rapid.IntRange(0, 6).Draw(t, "prefixes") {
			a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 127, 128, 255}), int(4*l.words()), int(4*l.words())).Draw(t, "address"))
			p, err := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "length"))
			if err != nil {
				t.Fatal(err)
			}
			prefixes = append(prefixes, p)
		}
		set, data := pods, ""
		if rapid.Bool().Draw(t, "map") {
			set, data = sources, string(make([]byte, 4*l.words()))
		}
		written := intervals(set, prefixes)
		for i := range written {
			written[i].value += data
		}
		var begins []element
		var ends []string
		for _, e := range written {
			for _, half := range l.elements(nil, e, "") {
				if half.IntervalEnd {
					ends = append(ends, string(half.Key))
				} else {
					begins = append(begins, element{item{set, string(half.Key)}, string(half.Val)})
				}
			}
		}
		read := pair(begins, ends)
		if !slices.Equal(read, written) {
			t.Fatalf("%v: read %q, written %q", prefixes, read, written)
		}
	})
}

// FuzzElement has any bytes read as an element of a set.
func FuzzElement(f *testing.F) {
	const key, data, flags, value = 1, 2, 3, 1
	f.Add([]byte{})
	f.Add([]byte(nfnetlink.Attributes{}.Nested(key, nfnetlink.Attributes{}.Add(value, 10, 0, 0, 1)).Uint32(flags, 1)))
	f.Add([]byte(nfnetlink.Attributes{}.Nested(key, nil).Nested(data, nfnetlink.Attributes{}.Nested(2, nfnetlink.Attributes{}.Text(2, "chain")))))
	layout := newLayout(addr.IPv4)
	f.Fuzz(func(t *testing.T, data []byte) {
		key, is, _ := nftable.ParseElement(data)
		if len(key)+len(is) > 2*len(data) {
			t.Errorf("%q and %q are longer than what was read", key, is)
		}
		layout.StampOf(data)
		kernelwatch.TallyOf(data)
		c := dump{elements: delta{}}
		for _, set := range []setID{affinityPorts, affinityEndpoints, affinitySlots, pods} {
			c.elements.found(element{item{set, key}, is})
		}
		c.recall() // must not panic
	})
}
