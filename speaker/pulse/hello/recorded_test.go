package hello

import (
	"encoding/hex"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"
)

// said010 is what a node of 0.1.0 may say, with something in each field.
func said010() said {
	return said{
		Serving: true, Leaving: true, Sound: true, Part: true, Differs: 0x80000001,
		Unable: ranges{
			netipx.MustParseIPRange("192.0.2.1-192.0.2.1"), netipx.MustParseIPRange("192.0.2.16-192.0.3.255"),
			netipx.MustParseIPRange("2001:db8::1-2001:db8::1"), netipx.MustParseIPRange("2001:db8::10-2001:db8::1:0"),
		},
		Stations: []Station{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}},
		Claims: []Claim{
			{netip.MustParseAddr("192.0.2.10"), Answers, 1 << 40, 0}, {netip.MustParseAddr("2001:db8::a"), Yields, 7, 0},
		},
		Interfaces: []Interface{{
			ID: IDOf("eth0"), CutOff: true, Heard: []ID{IDOf("node-b"), IDOf("node-c")},
			Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		}},
		Damped: []ID{IDOf("node-d")},
	}
}

// hello010 is a hello, and record010 a record.
func hello010() hello {
	h := hello{
		said: said010(), summary: summary{Watches: true, Version: 8, Digest: 1 << 63, Buckets: new([buckets]uint32)},
		Node: "node-a", Incarnation: 0xf0e0d0c0b0a09080, Seq: 1 << 33, Ask: 11, Echo: 1 << 62, Hold: 15 * time.Millisecond, Requested: time.Second,
		Epoch: 17, TableDigest: 1<<63 + 18, Table: new(table), Reverse: []ID{IDOf("node-e")},
	}
	for i := range h.Buckets {
		h.Buckets[i], h.Table[i] = uint32(i)<<24, uint32(i)+1
	}
	return h
}

func record010() hello {
	return hello{
		said: said010(), Node: "node-b", Incarnation: 0x0102030405060708, Seq: 12, Hold: 15 * time.Millisecond, Epoch: 17,
		Links: []link{{To: longIDOf("node-a"), State: linkSilent, Incarnation: 5, Seq: 6}, {To: longIDOf("node-c"), State: linkRefuted, Incarnation: 1 << 31, Seq: 9}},
	}
}

// recorded returns the body of what testdata has of a release. Where there is nothing yet, the test fails with what is to be put there.
func recorded(t *testing.T, file string, of byte, seq uint64, v any) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	datagram, _ := hex.DecodeString(strings.TrimSpace(string(text)))
	got, body, reason := open(datagram, of, ringOfKeys(testKey))
	if err != nil || reason != "" || got != seq || isGossip(datagram) != (of == versionGossip) {
		t.Fatalf("error %v, rejected for %q, sequence %d; made now:\n%x", err, reason, got, seal(datagramOf(of, seq, v), testKey))
	}
	return body
}

// TestRecordedHelloOf010 is read as nodes of that release meant it: there are such nodes while a cluster is updated.
func TestRecordedHelloOf010(t *testing.T) {
	want := hello010()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[hello]()) {
		if reflect.ValueOf(want).FieldByIndex(f.Index).IsZero() && reflect.ValueOf(record010()).FieldByIndex(f.Index).IsZero() {
			t.Errorf("no record has %s: add one of the coming release", f.Name)
		}
	}
	got, ok := decode(recorded(t, "0.1.0/hello.hex", version, want.Seq, want))
	if diff := diffHello(want, got); diff != "" || !ok {
		t.Errorf("read %t; sent and read differ:\n%s", ok, diff)
	}
}

// TestRecordedGossipOf010 is read likewise, and the records in it.
func TestRecordedGossipOf010(t *testing.T) {
	record := record010()
	want := gossip{Node: "node-a", Incarnation: 1 << 63, Records: []cbor.RawMessage{encoded(record)}}
	want.Indexes = []index{{Bucket: 31, Has: map[longID]recordVersion{longIDOf("node-c"): {Version: 3, Incarnation: 1 << 31}}}}
	got, ok := decodeGossip(recorded(t, "0.1.0/gossip.hex", versionGossip, 1<<34, want))
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(gossip{}, "Records")); diff != "" || !ok || len(got.Records) != 1 {
		t.Fatalf("read %t, %d records; sent and read differ:\n%s", ok, len(got.Records), diff)
	}
	var head recordHead
	if cbor.Unmarshal(got.Records[0], &head) != nil || head != (recordHead{record.Node, record.Incarnation, record.Seq}) {
		t.Errorf("the head of the record is read as %+v", head)
	}
	has, ok := decode(got.Records[0])
	if diff := diffHello(record, has); diff != "" || !ok {
		t.Errorf("the record is read %t; sent and read differ:\n%s", ok, diff)
	}
}
