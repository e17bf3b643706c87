package hello

import (
	"bytes"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"
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

func drawWanted(t *rapid.T) Wanted {
	return Wanted{
		Serving: rapid.Bool().Draw(t, "serving"),
		Leaving: rapid.Bool().Draw(t, "leaving"),
		Unable:  drawMany(t, "unable"),
		Claimed: drawMany(t, "claimed"),
		Stations: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Station {
			return Station(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "station"))
		}), 0, 20).Draw(t, "stations"),
		Interfaces: rapid.SliceOfN(rapid.Custom(drawInterface), 0, maxInterfaces+1).Draw(t, "interfaces"),
		Damped:     rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,3}`), 0, maxDamped+1).Draw(t, "damped"),
	}
}

// drawHello draws a hello among so many peers, or a record, and how much more the latter may take.
func drawHello(t *rapid.T, node string, peers, longest int, record bool) hello {
	h := hello{
		Node: node, said: saying(drawWanted(t), roomFor(node, peers, longest)),
		Incarnation: rapid.Uint64().Draw(t, "boot"), Seq: rapid.Uint64().Draw(t, "seq"),
		Hold:  time.Duration(rapid.IntRange(0, int(MaxHold)).Draw(t, "hold")),
		Epoch: rapid.Uint64().Draw(t, "epoch"),
	}
	h.Sound, h.Differs = rapid.Bool().Draw(t, "sound"), rapid.Uint32().Draw(t, "differs")
	if record {
		h.Links = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) link {
			l := link{To: longID(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "to")), State: linkState(rapid.IntRange(0, int(linkRefuted)).Draw(t, "state"))}
			l.Incarnation, l.Seq = rapid.Uint32().Draw(t, "boot"), rapid.Uint32().Draw(t, "seq")
			return l
		}), 0, min(peers, maxLinks)).Draw(t, "links")
		return h
	}
	h.Ask, h.Echo = rapid.Uint64().Draw(t, "ask"), rapid.Uint64().Draw(t, "echo")
	h.Requested = time.Duration(rapid.IntRange(0, int(MaxHold)).Draw(t, "asks"))
	h.Watches, h.Version, h.Digest = rapid.Bool().Draw(t, "watches"), rapid.Uint64().Draw(t, "version"), rapid.Uint64().Draw(t, "digest")
	if rapid.Bool().Draw(t, "records differ") {
		h.Buckets = (*[buckets]uint32)(rapid.SliceOfN(rapid.Uint32(), buckets, buckets).Draw(t, "records"))
	}
	for range rapid.IntRange(0, maxReverse).Draw(t, "reverse") {
		h.Reverse = append(h.Reverse, drawID(t))
	}
	h.TableDigest = rapid.Uint64().Draw(t, "table")
	if h.left() > 170 && rapid.Bool().Draw(t, "tables differ") {
		h.Table = (*table)(rapid.SliceOfN(rapid.Uint32(), TableBuckets, TableBuckets).Draw(t, "buckets of the table"))
	}
	h.Claims = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Claim {
		return Claim{drawAddr(t), Stance(rapid.IntRange(int(Answers), int(Yields)).Draw(t, "stance")), rapid.Uint64().Draw(t, "of"), 0}
	}), 0, fits(h.left())).Draw(t, "claims")
	return h
}

func diffHello(want, got hello) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(hello{}, said{}, summary{}), cmpopts.IgnoreFields(link{}, "_"), cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }))
}

// TestWireCarriesEverything: what a node says comes whole, however much it is: in hellos, and in records in the gossip of others.
func TestWireCarriesEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9.-]{1,253}`)
		node, sender := name.Draw(t, "node"), name.Draw(t, "sender")
		peers, record := rapid.IntRange(0, 40).Draw(t, "peers"), rapid.Bool().Draw(t, "record")
		want := drawHello(t, node, peers, max(len(node), len(sender)), record)
		datagram := seal(datagramOf(version, want.Seq, want), testKey)
		if record {
			box := outbox{room: maxDatagram - headerSize - gossipOverhead - len(sender) - macSize}
			to := box.with(len(encoded(want)))
			to.Node, to.Incarnation = sender, math.MaxUint64
			to.Records = append(to.Records, encoded(want))
			datagram = seal(datagramOf(versionGossip, 1, box.all[0]), testKey)
		}
		if len(datagram) > maxDatagram {
			t.Fatalf("datagram of %d bytes, at most %d allowed", len(datagram), maxDatagram)
		}
		_, body, reason := open(datagram, datagram[len(magic)], ringOfKeys(otherKey, testKey))
		if reason != "" {
			t.Fatalf("rejected: %s", reason)
		}
		if record {
			g, ok := decodeGossip(body)
			if !ok || len(g.Records) != 1 {
				t.Fatalf("read %t: %+v", ok, g)
			}
			body = g.Records[0]
		}
		got, ok := decode(body)
		if diff := diffHello(want, got); diff != "" || !ok {
			t.Fatalf("sent and received differ:\n%s", diff)
		}
	})
}

func TestWireRejectsEveryChange(t *testing.T) {
	h := hello{Node: "node-a", Incarnation: 7, Seq: 9, said: saying(Wanted{
		Serving: true,
		Unable:  []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	}, 500)}
	datagram := seal(datagramOf(version, 9, h), testKey)
	keys := ringOfKeys(testKey)
	for i := range datagram {
		for bit := range 8 {
			forged := bytes.Clone(datagram)
			forged[i] ^= 1 << bit
			if _, _, reason := open(forged, version, keys); reason == "" {
				t.Errorf("bit %d of byte %d was changed and nobody saw", bit, i)
			}
		}
	}
	for n := range datagram {
		if _, _, reason := open(datagram[:n], version, keys); reason == "" {
			t.Errorf("the first %d of %d bytes were believed", n, len(datagram))
		}
	}
}

func TestWireReasons(t *testing.T) {
	of := func(body string) []byte {
		return seal(append(datagramOf(version, 1, nil)[:headerSize], body...), testKey)
	}
	good, keys := seal(datagramOf(version, 1, hello{Node: "a"}), testKey), ringOfKeys(testKey)
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
		{"version of tomorrow", seal(datagramOf(3, 1, hello{Node: "a"}), testKey), keys, ReasonVersion},
		{"no key", good, nil, ReasonNoKey},
		{"another key", good, ringOfKeys(otherKey), ReasonMAC},
		{"no name", seal(datagramOf(version, 1, hello{}), testKey), keys, ReasonMalformed},
		{"long name", seal(datagramOf(version, 1, hello{Node: strings.Repeat("a", maxName+1)}), testKey), keys, ReasonMalformed},
		{"name beyond the end", of("\xa1\x0a\x62a"), keys, ReasonMalformed},
		{"name of bytes", of("\xa1\x0a\x41a"), keys, ReasonMalformed},
		{"no map", of("\x61a"), keys, ReasonMalformed},
		{"more behind", of("\xa1\x0a\x61a\x00"), keys, ReasonMalformed},
		{"negative time", seal(datagramOf(version, 1, hello{Node: "a", Hold: -1}), testKey), keys, ReasonMalformed},
		{"range cut short", of("\xa2\x0a\x61a\x04\x42\x0f\x01\x02"), keys, ReasonMalformed},
		{"range without an end", of("\xa2\x0a\x61a\x04\x42\x8f\x01"), keys, ReasonMalformed},
		{"ranges not in order", of("\xa2\x0a\x61a\x04\x44\x0f\x02\x0f\x01"), keys, ReasonMalformed},
		{"range", of("\xa2\x0a\x61a\x04\x44\x8f\x01\x0f\x02"), keys, ""},
		{"field of tomorrow", of("\xa2\x0a\x61a\x18\x63\x01"), keys, ""},
		{"stance of tomorrow", seal(datagramOf(version, 1, hello{Node: "a", said: said{Claims: []Claim{{Stance: 99}}}}), testKey), keys, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, body, got := open(tt.datagram, version, tt.keys)
			if h, ok := decode(body); got == "" && !ok {
				got = ReasonMalformed
			} else if len(h.Claims) > 0 {
				t.Errorf("read %+v", h.Claims)
			}
			if got != tt.want {
				t.Errorf("rejected as %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(encoded(hello{Node: "node-a", Incarnation: 1, Seq: 2}))
	f.Add(encoded(hello{Node: strings.Repeat("n", maxName), Incarnation: 1, Seq: 2, Ask: 3, Echo: 4, Hold: MaxHold, said: said{
		Serving: true, Leaving: true,
		Unable:   joined([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9")}, func(_, _ netip.Addr) bool { return true }),
		Stations: []Station{{2, 0, 0, 0, 0, 1}}, Claims: []Claim{{netip.MustParseAddr("192.0.2.1"), Leaves, 5, 0}},
		Interfaces: []Interface{{ID: ID{1}, Subnets: []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}, Heard: []ID{{2}}, CutOff: true}},
	}}))
	f.Add(encoded(hello{Node: "node-a", summary: summary{Watches: true, Version: 3, Digest: 4, Buckets: &[buckets]uint32{0: 5, buckets - 1: 6}}, Reverse: []ID{IDOf("b")}}))
	f.Add(encoded(hello{Node: "node-a", TableDigest: 1, Table: &table{2}, Links: []link{{To: longIDOf("a"), State: linkSilent, Incarnation: 1, Seq: 2}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, _, reason := open(body, version, ringOfKeys(testKey)); reason == "" {
			t.Fatal("it was believed, and no node sealed it")
		}
		h, ok := decode(body)
		if !ok {
			return
		}
		again, ok := decode(encoded(h))
		if !ok {
			t.Fatalf("%+v was read, and cannot be read again", h)
		}
		if diff := diffHello(h, again); diff != "" {
			t.Fatalf("reading, writing and reading again differ:\n%s", diff)
		}
	})
}

func FuzzOpenGossip(f *testing.F) {
	record := encoded(hello{Node: "node-b", Incarnation: 3, Seq: 4, Links: []link{{To: longIDOf("a"), State: linkHeard}}})
	f.Add(encoded(gossip{Node: "node-a", Incarnation: 1}))
	f.Add(encoded(gossip{Node: "node-a", Incarnation: 1, Records: []cbor.RawMessage{record}}))
	f.Add(encoded(gossip{Node: "node-a", Indexes: []index{{Bucket: 3, Has: map[longID]recordVersion{longIDOf("a"): {1, 2}}}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, _, reason := open(body, versionGossip, ringOfKeys(testKey)); reason == "" {
			t.Fatal("it was believed, and no node sealed it")
		}
		g, ok := decodeGossip(body)
		if !ok {
			return
		}
		again, ok := decodeGossip(encoded(g))
		if diff := cmp.Diff(g, again, cmpopts.EquateEmpty()); diff != "" || !ok {
			t.Fatalf("reading, writing and reading again differ (%t):\n%s", ok, diff)
		}
		for _, r := range g.Records {
			var head recordHead
			h, ok := decode(r)
			if err := cbor.Unmarshal(r, &head); ok && (err != nil || head != recordHead{h.Node, h.Incarnation, h.Seq}) {
				t.Fatalf("%+v was read in short as %+v, %v", h, head, err)
			}
		}
	})
}
