package hello

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

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

// TestCoveringIsExact: the prefixes have all of the addresses and none of the others, there are no fewer that
// have, and none has more than it must.
func TestCoveringIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unable := plain(drawMany(t, "unable"))
		others := besides(drawMany(t, "others"), unable)
		in := covering(unable, others)
		has := func(p netip.Prefix, all []netip.Addr) bool { return slices.ContainsFunc(all, p.Contains) }
		for _, a := range unable {
			if !slices.ContainsFunc(in, func(p netip.Prefix) bool { return p.Contains(a) }) {
				t.Fatalf("%v is in none of %v", a, in)
			}
		}
		for i, p := range in {
			if p != p.Masked() || has(p, others) {
				t.Fatalf("%v is no prefix without others of %v", p, others)
			}
			if low, high := halves(p); !p.IsSingleIP() && (!has(low, unable) || !has(high, unable)) {
				t.Fatalf("half of %v has none of %v", p, unable)
			}
			if i == 0 {
				continue
			}
			before := in[i-1]
			if before.Compare(p) >= 0 || before.Overlaps(p) {
				t.Fatalf("%v after %v", p, before)
			}
			if both := joint(before.Addr(), p.Addr()); both.IsValid() && !has(both, others) {
				t.Fatalf("%v has none of the others, and stands as %v and %v", both, before, p)
			}
		}
	})
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	if p.IsSingleIP() {
		return p, p
	}
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	second, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(second, p.Bits()+1)
}

func TestJoint(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"192.0.2.1", "192.0.2.1", "192.0.2.1/32"},
		{"192.0.2.0", "192.0.2.1", "192.0.2.0/31"},
		{"10.0.0.1", "192.0.2.1", "0.0.0.0/0"},
		{"2001:db8::1", "2001:db8::8000:1", "2001:db8::/96"},
		{"::", "8000::", "::/0"},
	} {
		if got := joint(netip.MustParseAddr(tt.a), netip.MustParseAddr(tt.b)); got.String() != tt.want {
			t.Errorf("%s and %s share %v, want %s", tt.a, tt.b, got, tt.want)
		}
	}
	if p := joint(netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::")); p.IsValid() {
		t.Errorf("two families share %v", p)
	}
}

// TestUnableIsToldExactly: who reads a hello takes a node to be able to serve what it is asked to and can, and nothing
// that it cannot; but for a family of which it says that it cannot serve any.
func TestUnableIsToldExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := strings.Repeat("n", rapid.IntRange(1, maxName).Draw(t, "length of the name"))
		w := Wanted{Serving: true, Unable: drawMany(t, "unable"), Claimed: drawMany(t, "claimed")}
		less := 0
		if rapid.Bool().Draw(t, "record") {
			less = recordReserve(len(node), maxLinks)
		}
		h := hello{node: node, said: saying(node, w, less)}
		if n := len(seal(h.encode(), testKey)); n > maxDatagram-less {
			t.Fatalf("datagram of %d bytes, at most %d allowed", n, maxDatagram-less)
		}
		slices.Reverse(w.Claimed)
		slices.Reverse(w.Unable)
		if again := saying(node, w, less); !again.equal(h.said) {
			t.Fatalf("in another order it says %+v, and %+v", again, h.said)
		}
		read, ok := decode(h.encode())
		if !ok {
			t.Fatal("it cannot be read")
		}
		m := read.member()
		for _, a := range w.Unable {
			if m.CanServe(a) {
				t.Fatalf("%v can be served, which it said it cannot", a)
			}
		}
		for _, a := range besides(w.Claimed, plain(w.Unable)) {
			if m.CanServe(a) == m.unableAny(a) {
				t.Fatalf("%v can be served: %t, any of the family: %t", a, m.CanServe(a), !m.unableAny(a))
			}
		}
	})
}

// asOlder reads a hello as a release that does not know of prefixes.
func asOlder(t *testing.T, h hello) Member {
	t.Helper()
	body := h.encode()
	at := headerSize + len(h.node) + 4*firstIPv6(h.unable) + 16*(len(h.unable)-firstIPv6(h.unable))
	for ; at < len(body); at += additionHead + int(body[at+1]) {
		if body[at] == additionUnable {
			body[at] = 77
		}
	}
	read, ok := decode(body)
	if !ok {
		t.Fatal("it cannot be read")
	}
	return read.member()
}

// TestTooManyToBeListedAreToldByPrefixes, and an older release takes them for all of the family.
func TestTooManyToBeListedAreToldByPrefixes(t *testing.T) {
	var many, six []netip.Addr
	for i := range 300 {
		many = append(many, netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}))
		six = append(six, netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 14: byte(i >> 8), 15: byte(i)}))
	}
	long := strings.Repeat("n", maxName)
	able := []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for _, tt := range []struct {
		node       string
		unable     []netip.Addr
		any4, any6 bool // in the eyes of an older release
	}{
		{"a", many[:255], false, false},
		{"a", many[:256], true, false},
		{long, many[:213], false, false},
		{long, many[:214], true, false},
		{"a", slices.Concat(many[:100], many[:100], many[:100]), false, false},
		{"a", six[:69], false, false},
		{"a", six[:70], false, true},
		{"a", slices.Concat(many[:1], six), false, true},
		{"a", slices.Concat(many[:255], six[:20]), true, false},
		{"a", slices.Concat(many[:250], six[:70]), false, true},
		{"a", slices.Concat(many, six), true, true},
		{long, slices.Concat(many[:255], six[:70]), true, true},
	} {
		t.Run(fmt.Sprintf("%d bytes of name, %d addresses", len(tt.node), len(tt.unable)), func(t *testing.T) {
			h := hello{node: tt.node, said: saying(tt.node, Wanted{Serving: true, Unable: tt.unable, Claimed: slices.Concat(tt.unable, able)}, 0)}
			if n := len(seal(h.encode(), testKey)); n > maxDatagram {
				t.Errorf("datagram of %d bytes, at most %d allowed", n, maxDatagram)
			}
			m, older := h.member(), asOlder(t, h)
			if older.UnableAny4 != tt.any4 || older.UnableAny6 != tt.any6 || len(older.UnableIn) > 0 {
				t.Fatalf("unable to serve any for an older release: IPv4 %t, IPv6 %t; want %t, %t", older.UnableAny4, older.UnableAny6, tt.any4, tt.any6)
			}
			for _, a := range tt.unable {
				if m.CanServe(a) || older.CanServe(a) {
					t.Fatalf("%v can be served, which it said it cannot", a)
				}
			}
			for _, a := range able {
				if !m.CanServe(a) {
					t.Errorf("%v cannot be served, of which it said no such thing: %v", a, m.UnableIn)
				}
				if older.CanServe(a) == older.unableAny(a) {
					t.Errorf("%v can be served for an older release", a)
				}
			}
		})
	}
}

// TestAmongOthersAreToldOneByOne: where every second address of a network is one that the node can serve, no
// prefix has two, and there is room for more of them than can be listed. What takes more is given up first.
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
		m := saying("a", w, 0).member()
		for i, a := range w.Claimed {
			if is := i/2%2 == 0; m.CanServe(a) == (is || m.unableAny(a)) {
				t.Fatalf("%d of each family: %v can be served %t", tt.count, a, !is)
			}
		}
		if m.UnableAny4 != tt.any4 || m.UnableAny6 != tt.any6 {
			t.Errorf("%d of each family: unable to serve any of IPv4 %t, of IPv6 %t", tt.count, m.UnableAny4, m.UnableAny6)
		}
	}
}

// TestPrefixesThatCannotBeRead are left out with their addition, and harm no other.
func TestPrefixesThatCannotBeRead(t *testing.T) {
	good := said{unableIn: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}}
	for name, addition := range map[string][]byte{
		"empty":                       {},
		"shared bytes that lack":      {3, 192, 0},
		"more shared bytes than four": {5, 192, 0, 2, 1, 7, 32},
		"cut short in a prefix":       {1, 10, 32, 0, 0},
		"a length beyond IPv4":        {3, 10, 0, 0, 33, 1, 1},
		"a length beyond IPv6":        append([]byte{prefixesOfIPv6, 129}, make([]byte, 17)...),
		"shorter than what is shared": {3, 10, 0, 0, 23},
		"a good one and a bad one":    {3, 10, 0, 0, 32, 1, 33, 1},
		"of mapped addresses":         append([]byte{prefixesOfIPv6 | 12}, slices.Concat(make([]byte, 10), []byte{255, 255, 104, 10})...),
	} {
		body := hello{node: "a", said: good}.encode()
		body = append(body, additionUnable, byte(len(addition)))
		h, ok := decode(append(body, addition...))
		if !ok || !slices.Equal(h.unableIn, good.unableIn) {
			t.Errorf("%s: read %t, %v", name, ok, h.unableIn)
		}
	}
	if h, ok := decode(append(hello{node: "a"}.encode(), additionUnable, 2, 0)); !ok || h.unableIn != nil {
		t.Errorf("cut short: read %t, %v", ok, h.unableIn)
	}
}

// TestPrefixesWithinOthersAreRead, in any order, and once.
func TestPrefixesWithinOthersAreRead(t *testing.T) {
	body := hello{node: "a", said: said{serving: true, unableAny4: true, unableAny6: true}}.encode()
	body = append(body, additionUnable, 8, 1, 10, 24, 7, 7, 16, 9, 8)
	body = append(body, additionUnable, 5, 1, 10, 24, 7, 7)
	h, ok := decode(body)
	if want := netip.MustParsePrefix("10.0.0.0/8"); !ok || !slices.Equal(h.unableIn, []netip.Prefix{want}) {
		t.Fatalf("read %t, %v, want %v", ok, h.unableIn, want)
	}
	m := h.member()
	for a, can := range map[string]bool{
		"9.255.255.255": true, "10.0.0.0": false, "10.7.7.1": false, "10.200.0.1": false, "::ffff:10.9.9.9": false,
		"10.255.255.255": false, "11.0.0.0": true, "2001:db8::1": false,
	} {
		if m.CanServe(netip.MustParseAddr(a)) != can {
			t.Errorf("%s can be served: %t, want %t", a, !can, can)
		}
	}
}
