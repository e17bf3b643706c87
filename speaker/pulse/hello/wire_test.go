package hello

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var (
	testKey  = []byte("0123456789abcdef0123456789abcdef")
	otherKey = []byte("fedcba9876543210fedcba9876543210")
)

func drawAddr(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "ipv4") {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
	}
	a := netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")))
	return a.Unmap()
}

func drawHello(t *rapid.T) hello {
	node := rapid.StringMatching(`[a-z0-9.-]{1,253}`).Draw(t, "node")
	h := hello{
		node: node,
		said: saying(node, Wanted{
			Serving: rapid.Bool().Draw(t, "serving"),
			Leaving: rapid.Bool().Draw(t, "leaving"),
			Unable:  drawMany(t, "unable"),
			Claimed: drawMany(t, "claimed"),
			Stations: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Station {
				return Station(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "station"))
			}), 0, 20).Draw(t, "stations"),
			Interfaces: rapid.SliceOfN(rapid.Custom(drawInterface), 0, maxInterfaces+1).Draw(t, "interfaces"),
		}, 0),
		incarnation: rapid.Uint64().Draw(t, "boot"),
		seq:         rapid.Uint64().Draw(t, "seq"),
		ask:         rapid.Uint64().Draw(t, "ask"),
		echo:        rapid.Uint64().Draw(t, "echo"),
		hold:        time.Duration(rapid.Uint16().Draw(t, "hold")) * time.Millisecond,
		requested:   time.Duration(rapid.Uint16().Draw(t, "asks")) * time.Millisecond,
	}
	if h.epoch = rapid.Uint64().Draw(t, "epoch"); h.epoch > 0 {
		h.claims = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Claim {
			return Claim{drawAddr(t), Stance(rapid.IntRange(int(Answers), int(Yields)).Draw(t, "stance")), rapid.Uint64().Draw(t, "of"), 0}
		}), 0, maxClaims).Draw(t, "claims")
		for i := range h.claims {
			h.claims[i].Address = h.claims[i].Address.Unmap()
		}
	}
	h.sound = rapid.Bool().Draw(t, "sound")
	if additions := 3*additionHead + differsSize + tableSize + tableBucketsSize + epochSize; len(h.bare())+additions > h.limit() {
		return h
	}
	h.differs, h.tableDigest = rapid.Uint32().Draw(t, "differs"), rapid.Uint64().Draw(t, "table")
	if h.tableDigest > 0 && rapid.Bool().Draw(t, "of buckets") {
		h.table = &table{rapid.Uint32().Draw(t, "first"), TableBuckets - 1: rapid.Uint32().Draw(t, "last")}
	}
	return h
}

func diffHello(want, got hello) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(hello{}, said{}, link{}, summary{}),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty())
}

func TestWireCarriesEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawHello(t)
		datagram := seal(want.encode(), testKey)
		if len(datagram) > maxDatagram {
			t.Fatalf("datagram of %d bytes, at most %d allowed", len(datagram), maxDatagram)
		}
		got, reason := open(datagram, ringOfKeys(otherKey, testKey))
		if reason != "" {
			t.Fatalf("rejected: %s", reason)
		}
		if room := maxDatagram - len(datagram); len(got.claims) < len(want.claims) && room >= additionHead+epochSize+claimSize {
			t.Fatalf("%d of %d claims came, and there is room for %d bytes more", len(got.claims), len(want.claims), room)
		}
		want.claims = want.claims[:min(len(want.claims), len(got.claims))]
		if diff := diffHello(want, got); diff != "" {
			t.Fatalf("sent and received differ:\n%s", diff)
		}
	})
}

func TestWireRejectsEveryChange(t *testing.T) {
	h := hello{node: "node-a", incarnation: 7, seq: 9, said: saying("node-a", Wanted{
		Serving: true,
		Unable:  []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	}, 0)}
	datagram := seal(h.encode(), testKey)
	keys := ringOfKeys(testKey)
	for i := range datagram {
		for bit := range 8 {
			forged := bytes.Clone(datagram)
			forged[i] ^= 1 << bit
			if _, reason := open(forged, keys); reason == "" {
				t.Errorf("bit %d of byte %d was changed and nobody saw", bit, i)
			}
		}
	}
	for n := range datagram {
		if _, reason := open(datagram[:n], keys); reason == "" {
			t.Errorf("the first %d of %d bytes were believed", n, len(datagram))
		}
	}
}

func TestWireReasons(t *testing.T) {
	good := seal(hello{node: "a"}.encode(), testKey)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good[:len(good)-macSize])
		b[at] = to
		return seal(b, testKey)
	}
	keys := ringOfKeys(testKey)
	tests := []struct {
		name     string
		datagram []byte
		keys     keyring
		want     Reason
	}{
		{"good", good, keys, ""},
		{"empty", nil, keys, ReasonMagic},
		{"short", good[:headerSize+macSize], keys, ReasonMagic},
		{"another protocol", bytes.Repeat([]byte("GET /"), 40), keys, ReasonMagic},
		{"version of tomorrow", change(4, 2), keys, ReasonVersion},
		{"no key", good, nil, ReasonNoKey},
		{"another key", good, ringOfKeys(otherKey), ReasonMAC},
		{"empty name", change(40, 0), keys, ReasonMalformed},
		{"name beyond the end", change(40, 2), keys, ReasonMalformed},
		{"addresses beyond the end", change(41, 1), keys, ReasonMalformed},
		{"flag of tomorrow", change(5, 0x80), keys, ""},
		{"addition of tomorrow", seal(append(hello{node: "a"}.encode(), "more"...), testKey), keys, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, got := open(tt.datagram, tt.keys); got != tt.want {
				t.Errorf("rejected as %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAdditionsAreReadPastUnknownOnes: a node tells its stations to those that read them,
// after whatever a later release may say before, and cut additions harm nothing.
func TestAdditionsAreReadPastUnknownOnes(t *testing.T) {
	one, two := Station{2, 0, 0, 0, 0, 1}, Station{2, 0, 0, 0, 0, 2}
	told := said{stations: []Station{one, two}}.additions()
	unknown := []byte{77, 3, 1, 2, 3}
	odd := append([]byte{additionStations, 5}, one[:5]...)
	for name, test := range map[string]struct {
		additions []byte
		want      []Station
	}{
		"none":              {nil, nil},
		"stations":          {told, []Station{one, two}},
		"an unknown before": {slices.Concat(unknown, told), []Station{one, two}},
		"an unknown after":  {slices.Concat(told, unknown), []Station{one, two}},
		"half a station":    {slices.Concat(odd, told), []Station{one, two}},
		"a wish too long":   {slices.Concat([]byte{additionRequested, 3, 1, 2, 3}, told), []Station{one, two}},
		"there are none":    {said{stations: []Station{}}.additions(), []Station{}},
		"cut in the head":   {told[:1], nil},
		"cut in a station":  {told[:len(told)-1], nil},
	} {
		t.Run(name, func(t *testing.T) {
			body := append(hello{node: "a"}.encode(), test.additions...)
			h, ok := decode(body)
			if !ok || !slices.Equal(h.stations, test.want) {
				t.Errorf("read %t: stations %v, want %v", ok, h.stations, test.want)
			}
			if got := h.member().Stations; !slices.Equal(got, test.want) || (got == nil) != (test.want == nil) {
				t.Errorf("the view has %v, want %v", got, test.want)
			}
		})
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(hello{node: "node-a", incarnation: 1, seq: 2}.encode())
	f.Add(hello{node: strings.Repeat("n", maxName), incarnation: 1, seq: 2, ask: 3, echo: 4, hold: MaxHold, said: said{
		serving: true, leaving: true, unableAny4: true, unableAny6: true,
		unable:   []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		stations: []Station{{2, 0, 0, 0, 0, 1}},
	}}.encode())
	f.Add(hello{node: "node-a", incarnation: 1, seq: 2, said: said{unableAny4: true, unableAny6: true, unableIn: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("192.0.2.129/32"), netip.MustParsePrefix("2001:db8::/64"),
	}}}.encode())
	f.Add(hello{node: "node-a", incarnation: 1, seq: 2, summary: summary{told: true, watches: true, version: 3, digest: 4}, reverse: []nodeID{idOf("b")}}.encode())
	f.Add(hello{node: "node-a", incarnation: 1, seq: 2, summary: summary{told: true, version: 3, digest: 4, buckets: &[buckets]uint32{0: 5, buckets - 1: 6}}}.encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if h, reason := open(body, ringOfKeys(testKey)); reason == "" {
			t.Fatalf("believed %+v, which nobody sealed", h)
		}
		h, ok := decode(body)
		if !ok {
			return
		}
		again, ok := decode(h.encode())
		if !ok {
			t.Fatalf("%+v was read, and cannot be read again", h)
		}
		if diff := diffHello(h, again); diff != "" {
			t.Fatalf("reading, writing and reading again differ:\n%s", diff)
		}
	})
}
