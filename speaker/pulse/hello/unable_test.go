package hello

import (
	"math"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"
)

// drawMany gives addresses as Services have them: some from each of a few networks, one after the other or with
// gaps, and some from anywhere.
func drawMany(t *rapid.T, label string) []netip.Addr {
	all := rapid.SliceOfN(rapid.Custom(drawAddr), 0, 5).Draw(t, label)
	for range rapid.IntRange(0, 6).Draw(t, label+": runs") {
		four := rapid.Bool().Draw(t, "ipv4")
		network, first := rapid.ByteRange(0, 2).Draw(t, "network"), rapid.IntRange(0, 300).Draw(t, "first")
		count, step := rapid.IntRange(1, 200).Draw(t, "count"), rapid.IntRange(1, 4).Draw(t, "step")
		for i := range count {
			host := first + i*step
			a := netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 7: network, 14: byte(host >> 8), 15: byte(host)})
			if four {
				a = netip.AddrFrom4([4]byte{192, network, byte(host >> 8), byte(host)})
			}
			all = append(all, a)
		}
	}
	return all
}

// TestRangesAreExact: they have all of the addresses and none of the others, and none could be joined with the next one.
func TestRangesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := Wanted{Unable: drawMany(t, "unable"), Claimed: drawMany(t, "claimed")}
		unable := plain(w.Unable)
		others := slices.DeleteFunc(plain(w.Claimed), func(a netip.Addr) bool { return slices.Contains(unable, a) })
		room := rapid.IntRange(0, 200).Draw(t, "room")
		in := said{}.fit(room, unable, w.Claimed).Unable
		if n := len(encoded(said{Unable: in})); n > room && len(in) > 2 {
			t.Fatalf("%d bytes, at most %d allowed", n, room)
		}
		if exact := (said{}).fit(math.MaxInt, unable, w.Claimed).Unable; slices.Equal(in, exact) {
			others = nil
			for _, r := range exact { // has those before and behind
				others = append(others, r.From().Prev(), r.To().Next())
			}
		}
		for _, a := range unable {
			if !in.contains(a) {
				t.Fatalf("%v is in none of %v", a, in)
			}
		}
		for _, a := range others {
			if every := in.contains(netip.IPv6Unspecified()) || in.contains(netip.IPv4Unspecified()); in.contains(a) && !every {
				t.Fatalf("%v is in one of %v", a, in)
			}
		}
		for i := 1; i < len(in); i++ {
			from, to := in[i-1].To(), in[i].From()
			if from.Compare(to) >= 0 {
				t.Fatalf("%v after %v", to, from)
			}
			between := func(a netip.Addr) bool { return from.Less(a) && a.Less(to) }
			if from.BitLen() == to.BitLen() && !slices.ContainsFunc(others, between) {
				t.Fatalf("there is none of the others between %v and %v", from, to)
			}
		}
	})
}

// isAll tells whether a node says that it is unable to serve any address of a family.
func isAll(m Member, a netip.Addr) bool {
	return slices.ContainsFunc(m.Unable, func(in netipx.IPRange) bool { p, is := in.Prefix(); return is && p.Bits() == 0 && in.Contains(a) })
}

// TestUnableIsToldExactly: a node that reads a hello takes its sender to be able to serve what it is asked to and can, and nothing
// that it cannot; but for a family of which it says that it cannot serve any.
func TestUnableIsToldExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := Wanted{Serving: true, Unable: drawMany(t, "unable"), Claimed: drawMany(t, "claimed")}
		room := rapid.IntRange(0, 1000).Draw(t, "room")
		s := saying(w, room)
		slices.Reverse(w.Claimed)
		slices.Reverse(w.Unable)
		if again := saying(w, room); !again.equal(s) {
			t.Fatalf("in another order it says %+v, and %+v", again, s)
		}
		read, ok := decode(encoded(hello{Node: "a", said: s}))
		if !ok {
			t.Fatal("it cannot be read")
		}
		m := read.member()
		for _, a := range w.Unable {
			if m.CanServe(a) {
				t.Fatalf("%v can be served, which it said it cannot", a)
			}
		}
		for _, a := range plain(w.Claimed) {
			if !slices.Contains(plain(w.Unable), a) && m.CanServe(a) == isAll(m, a) {
				t.Fatalf("%v can be served: %t, any of the family: %t", a, m.CanServe(a), !isAll(m, a))
			}
		}
	})
}

// TestMoreThanFitAreToldInRanges, with those between them that no node is asked to serve.
func TestMoreThanFitAreToldInRanges(t *testing.T) {
	w := Wanted{Serving: true, Claimed: []netip.Addr{netip.MustParseAddr("192.0.200.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	able := slices.Clone(w.Claimed)
	for i := range 5000 {
		w.Unable = append(w.Unable, netip.AddrFrom4([4]byte{192, 0, byte(i >> 7), byte(2 * i)}), netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 13: byte(i >> 7), 15: byte(2 * i)}))
	}
	w.Claimed = append(w.Claimed, w.Unable...)
	m := saying(w, 100).member()
	for _, a := range w.Unable {
		if m.CanServe(a) {
			t.Fatalf("%v can be served, which it said it cannot", a)
		}
	}
	for _, a := range able {
		if !m.CanServe(a) {
			t.Errorf("%v cannot be served, of which it said no such thing: %v", a, m.Unable)
		}
	}
}

// TestAmongOthersAreToldOneByOne: where every second address of a network is one that the node can serve, no
// range has two, and there is room for hundreds. What takes more is given up first.
func TestAmongOthersAreToldOneByOne(t *testing.T) {
	for _, tt := range []struct {
		count      int
		any4, any6 bool
	}{
		{150, false, false},
		{350, false, true},
		{600, true, true},
	} {
		w := Wanted{Serving: true}
		for i := range 2 * tt.count {
			four, six := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 14: byte(i >> 8), 15: byte(i)})
			if w.Claimed = append(w.Claimed, four, six); i%2 == 0 {
				w.Unable = append(w.Unable, four, six)
			}
		}
		m := saying(w, roomFor("a", 2, 1)).member()
		any4, any6 := isAll(m, netip.IPv4Unspecified()), isAll(m, netip.IPv6Unspecified())
		for i, a := range w.Claimed {
			if is := i/2%2 == 0; m.CanServe(a) == (is || isAll(m, a)) {
				t.Fatalf("%d of each family: %v can be served %t", tt.count, a, !is)
			}
		}
		if any4 != tt.any4 || any6 != tt.any6 {
			t.Errorf("%d of each family: unable to serve any of IPv4 %t, of IPv6 %t", tt.count, any4, any6)
		}
	}
}
