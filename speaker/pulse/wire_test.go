package pulse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// encodeTable renders a table for any pulse.
func encodeTable(t api.Table) ([]byte, error) { return encode(t, false) }

// decodeTableMessage reads a table and its number as the first one of a pulse.
func decodeTableMessage(body []byte) (api.Table, uint64, error) { return new(reader).table(body) }

// sample has something in each field.
func sample() api.Table {
	return api.Table{
		Node:      "a",
		NodeAddrs: []netip.Addr{netip.MustParseAddr("198.51.100.1")},
		Peers:     map[string]hello.Peer{"b": {Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.2")}, Ready: true}},
		Key:       "\x00\xffsecret",
		Serving:   true,
		Unable:    []netip.Addr{vip6},
		Leaving:   true,
		ShutsDown: true,
		Claims: map[netip.Addr]desired.Candidacy{
			vip4: {Candidates: []string{"b", "a"}, Interfaces: []string{"eth0"}, Named: []string{"a"}, AnnounceInterval: time.Minute},
			vip6: {Candidates: []string{"a", "c"}},
		},
		Elsewhere: []netip.Addr{netip.MustParseAddr("192.0.2.77")},
		BFD: map[string]desired.BFD{"tor": {
			Peer: vip4, Local: netip.MustParseAddr("192.0.2.9"), MultiHop: true, MinTTL: 254,
			Transmit: 50 * time.Millisecond, Receive: 300 * time.Millisecond, Multiplier: 3, Passive: true,
		}},
	}
}

var compareAddrs = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty(),
	cmp.Transformer("secret", func(s view.Secret) []byte { return []byte(s) }),
}

func encodedTable(tb testing.TB, number uint64, t api.Table) []byte {
	tb.Helper()
	table, err := encodeTable(t)
	if err != nil {
		tb.Fatal(err)
	}
	body, err := encodeTableMessage(number, table)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// The text of version 1: a change of it that an older release cannot read needs
// another version.
func TestTableMessageText(t *testing.T) {
	const want = `{"number":7,"table":{"node":"a","nodeAddrs":["198.51.100.1"],` +
		`"peers":{"b":{"addrs":["198.51.100.2"],"ready":true}},"key":"AP9zZWNyZXQ=","serving":true,` +
		`"unable":["2001:db8::10"],"leaving":true,"shutsDown":true,"names":["a","b","c"],"claims":[` +
		`{"address":"192.0.2.10","candidates":[1,0],"interfaces":["eth0"],"named":[0],"announceInterval":60000000000},` +
		`{"address":"2001:db8::10","candidates":[0,2]}],"elsewhere":["192.0.2.77"],` +
		`"bfd":{"tor":{"peer":"192.0.2.10","local":"192.0.2.9","multiHop":true,"minTTL":254,"transmit":50000000,"receive":300000000,"multiplier":3,"passive":true}}}}`
	if got := string(encodedTable(t, 7, sample())); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, number, err := decodeTableMessage([]byte(want))
	if err != nil || number != 7 {
		t.Fatalf("number %d, error %v", number, err)
	}
	if diff := cmp.Diff(sample(), got, compareAddrs); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestANewerTableIsUnderstood(t *testing.T) {
	body := strings.Replace(string(encodedTable(t, 1, sample())), `"node":`, `"colour":{"of":["the","sky"]},"node":`, 1)
	got, _, err := decodeTableMessage([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got, compareAddrs); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestTheKeyIsNotPrinted(t *testing.T) {
	for _, text := range []string{fmt.Sprint(sample()), fmt.Sprintf("%+v", sample()), fmt.Sprintf("%#v", sample())} {
		if strings.Contains(text, "secret") {
			t.Errorf("the key is in %s", text)
		}
	}
}

func TestTablesThatAreRefused(t *testing.T) {
	for name, body := range map[string]string{
		"not JSON":                  `{`,
		"no node":                   `{"number":1,"table":{}}`,
		"no address":                `{"table":{"node":"a","claims":[{"candidates":[]}]}}`,
		"candidate without name":    `{"table":{"node":"a","names":["a"],"claims":[{"address":"192.0.2.1","candidates":[1]}]}}`,
		"candidate below zero":      `{"table":{"node":"a","names":["a"],"claims":[{"address":"192.0.2.1","candidates":[-1]}]}}`,
		"announced without a pause": `{"table":{"node":"a","claims":[{"address":"192.0.2.1","announceInterval":1}]}}`,
		"announced before it was":   `{"table":{"node":"a","claims":[{"address":"192.0.2.1","announceInterval":-60000000000}]}}`,
		"BFD with nobody":           `{"table":{"node":"a","bfd":{"tor":{"transmit":1,"receive":1,"multiplier":3}}}}`,
		"BFD over two families":     `{"table":{"node":"a","bfd":{"tor":{"peer":"::1","local":"192.0.2.1","transmit":1,"receive":1,"multiplier":3}}}}`,
		"BFD without a pause":       `{"table":{"node":"a","bfd":{"tor":{"peer":"::1","transmit":0,"receive":1,"multiplier":3}}}}`,
		"BFD with multiplier 0":     `{"table":{"node":"a","bfd":{"tor":{"peer":"::1","transmit":1,"receive":1}}}}`,
		"an address that is none":   `{"table":{"node":"a","unable":["192.0.2.256"]}}`,
	} {
		if got, _, err := decodeTableMessage([]byte(body)); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func drawAddr(t *rapid.T) netip.Addr {
	return rapid.SampledFrom([]netip.Addr{
		vip4, vip6, netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7"),
	}).Draw(t, "address")
}

func drawBFD(t *rapid.T) desired.BFD {
	interval := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(10, 60000).Draw(t, "ms")) * time.Millisecond
	})
	return desired.BFD{
		Peer: drawAddr(t), Transmit: interval.Draw(t, "transmit"), Receive: interval.Draw(t, "receive"),
		Multiplier: rapid.Uint8Range(1, 255).Draw(t, "multiplier"), MinTTL: rapid.Uint8().Draw(t, "ttl"),
		MultiHop: rapid.Bool().Draw(t, "multihop"), Passive: rapid.Bool().Draw(t, "passive"),
		HopsByNetwork: rapid.Bool().Draw(t, "hops by network"),
	}
}

func TestMessagesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addrs := rapid.SliceOfN(rapid.Custom(drawAddr), 0, 3)
		names := rapid.SliceOfN(rapid.StringMatching(`[a-z][a-z0-9.-]{0,8}`), 0, 4)
		want := api.Table{
			Node: "n", NodeAddrs: addrs.Draw(t, "node addresses"), Key: view.Secret(rapid.SliceOf(rapid.Byte()).Draw(t, "key")),
			Serving: rapid.Bool().Draw(t, "serving"), Leaving: rapid.Bool().Draw(t, "leaving"), ShutsDown: rapid.Bool().Draw(t, "shuts down"), Unable: addrs.Draw(t, "unable"),
			Peers: rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}`), rapid.Custom(func(t *rapid.T) hello.Peer {
				return hello.Peer{Addrs: addrs.Draw(t, "peer"), Ready: rapid.Bool().Draw(t, "ready")}
			}), 0, 3).Draw(t, "peers"),
			Claims: rapid.MapOfN(rapid.Custom(drawAddr), rapid.Custom(func(t *rapid.T) desired.Candidacy {
				c := desired.Candidacy{
					Candidates: rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9.-]{0,8}`), 0, 4, rapid.ID).Draw(t, "candidates"),
					Interfaces: names.Draw(t, "interfaces"),

					AnnounceInterval: time.Duration(rapid.IntRange(0, 3600).Draw(t, "interval")) * time.Second,
				}
				for i, node := range c.Candidates {
					if rapid.Bool().Draw(t, "named") || i == 0 && len(c.Interfaces) > 0 {
						c.Named = append(c.Named, node)
					}
				}
				slices.Sort(c.Named)
				return c
			}), 0, 3).Draw(t, "claims"),
			BFD:        rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}`), rapid.Custom(drawBFD), 0, 3).Draw(t, "bfd"),
			Unnumbered: names.Draw(t, "unnumbered"),
		}
		encoded, err := encodeTable(want)
		if err != nil {
			t.Fatal(err)
		}
		body, err := encodeTableMessage(3, encoded)
		if err != nil {
			t.Fatal(err)
		}
		var wire bytes.Buffer
		if err := writeMessage(&wire, body); err != nil {
			t.Fatal(err)
		}
		read, err := readMessage(&wire)
		if err != nil {
			t.Fatal(err)
		}
		got, number, err := decodeTableMessage(read)
		if err != nil || number != 3 {
			t.Fatalf("number %d, error %v", number, err)
		}
		if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
			t.Fatalf("a table changed on the wire (-want +got):\n%s", diff)
		}
	})
}

func TestStatesSurviveTheWire(t *testing.T) {
	want := api.State{
		Settled: true, Alive: []string{"a", "b"}, Silent: []string{"c"}, Unable: []netip.Addr{vip6},
		CutOff: []netip.Addr{netip.MustParseAddr("fe80::1")}, CutLinks: []string{"eth1"}, Left: map[netip.Addr]string{vip4: "b"},
		Handover: "the kernel lacks NFT_DUP",
		Owned: map[netip.Addr]api.Ownership{
			vip4: {Interfaces: []string{"eth0"}, Since: time.Now(), Dead: []string{"c"}, Unable: []string{"d"}, Distant: []string{"e"}, Next: "b"},
		},
		Contested: map[netip.Addr]api.Contest{
			vip4: {Station: "02:00:00:00:00:07", Interface: "eth0", Since: time.Now()},
			vip6: {Station: "02:00:00:00:00:08", Interface: "eth1", Since: time.Now(), Withheld: true},
		},
		Doubted: map[netip.Addr]api.Doubt{
			vip4: {Owner: "b", Interface: "eth0", Since: time.Now()},
			vip6: {Owner: "b", Node: "c", Station: "02:00:00:00:00:09", Alone: true, Interface: "eth1", Since: time.Now()},
		},
		BFD: map[string]bfd.Status{"tor": {
			State: bfd.Down, Diag: bfd.Expired, Since: time.Now(), Failures: 2, Detection: time.Second, Trouble: "none left",
		}},
		Adjacent: map[string]view.Adjacency{
			"eth1": {Local: netip.MustParseAddr("fe80::2%eth1"), Router: netip.MustParseAddr("fe80::1%eth1")},
			"eth2": {Trouble: "it is down"},
		},
	}
	body, err := encodeStateMessage(5, want)
	if err != nil {
		t.Fatal(err)
	}
	got, number, err := decodeStateMessage(body)
	if err != nil || number != 5 || !got.Equal(want) {
		t.Errorf("number %d, error %v, got %+v, want %+v", number, err, got, want)
	}
}

func TestReadMessage(t *testing.T) {
	var other versionError
	for name, c := range map[string]struct {
		bytes string
		want  func(error) bool
	}{
		"nothing":            {"", func(err error) bool { return errors.Is(err, io.EOF) }},
		"half a header":      {"FL\x00", func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"half a body":        {"FL\x00\x01\x00\x00\x00\x05{}", func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"another protocol":   {"GET / HTTP/1.1\r\n\r\n", func(err error) bool { return strings.Contains(err.Error(), "not the pulse protocol") }},
		"a version of later": {"FL\x00\x02\x00\x00\x00\x02{}", func(err error) bool { return errors.As(err, &other) && other == 2 }},
		"far too long":       {"FL\x00\x01\xff\xff\xff\xff{}", func(err error) bool { return strings.Contains(err.Error(), "at most") }},
	} {
		if _, err := readMessage(strings.NewReader(c.bytes)); err == nil || !c.want(err) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("FL\x00\x01\x00\x00\x00\x02{}"))
	f.Add([]byte("FL\x00\x02\x00\x00\x00\x02{}"))
	f.Add([]byte("FL\x00\x01\xff\xff\xff\xff"))
	f.Add([]byte("FL\x00\x01\x01\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		body, err := readMessage(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeMessage(&again, body); err != nil || !bytes.HasPrefix(data, again.Bytes()) {
			t.Fatalf("%q was read from %q, error %v", body, data, err)
		}
	})
}

func FuzzDecodeTable(f *testing.F) {
	f.Add(encodedTable(f, 1, sample()))
	f.Add(encodedTable(f, 0, api.Table{Node: "a"}))
	f.Add(encodedTiers(f, large(3, 2)))
	f.Add([]byte(`{"table":{"node":"a","names":["a","b"],"sets":[[0,1]],"tiers":[[0,0,0,0,0,0,0,0]]}}`))
	f.Add([]byte(`{"table":{"node":"a","names":["a"],"claims":[{"address":"::ffff:192.0.2.1","candidates":[0,0]}]}}`))
	f.Add([]byte(`{"table":{"node":"a","peers":{"":{}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, number, err := decodeTableMessage(data)
		if err != nil {
			return
		}
		// What was understood is understood the same the next time.
		again, n, err := decodeTableMessage(encodedTable(t, number, table))
		if err != nil || n != number {
			t.Fatalf("number %d became %d, error %v", number, n, err)
		}
		if diff := cmp.Diff(table, again, compareAddrs); diff != "" {
			t.Fatalf("read twice (-first +second):\n%s", diff)
		}
	})
}

// TestAnOlderPulseTellsOfNoContests: what an old side leaves out is empty, and what it does
// not know it ignores.
func TestAnOlderPulseTellsOfNoContests(t *testing.T) {
	got, _, err := decodeStateMessage([]byte(`{"number":1,"state":{"settled":true,"owned":[{"address":"192.0.2.10","since":"2026-01-01T00:00:00Z"}]}}`))
	if err != nil || !got.Settled || len(got.Owned) != 1 || len(got.Contested)+len(got.Doubted) != 0 {
		t.Errorf("read as %+v, error %v", got, err)
	}
	if s, _, err := decodeStateMessage([]byte(`{"state":{"contested":[{"station":"x"}]}}`)); err == nil {
		t.Errorf("a contest about nothing was read as %+v", s)
	}
	if s, _, err := decodeStateMessage([]byte(`{"state":{"doubted":[{"owner":"x"}]}}`)); err == nil {
		t.Errorf("a doubt about nothing was read as %+v", s)
	}
}

func FuzzDecodeState(f *testing.F) {
	for _, s := range []api.State{{}, {Contested: map[netip.Addr]api.Contest{vip4: {Station: "02:00:00:00:00:07"}}}, {Settled: true, Alive: []string{"a"}, Owned: map[netip.Addr]api.Ownership{vip4: {Interfaces: []string{"eth0"}}}}} {
		body, err := encodeStateMessage(1, s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, number, err := decodeStateMessage(data)
		if err != nil {
			return
		}
		body, err := encodeStateMessage(number, s)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(body) {
			t.Fatalf("encoded as %q", body)
		}
	})
}
