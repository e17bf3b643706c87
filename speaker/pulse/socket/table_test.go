package socket

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

var (
	vip4 = netip.MustParseAddr("192.0.2.10")
	vip6 = netip.MustParseAddr("2001:db8::10")
)

func on4(host int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(host)}) }

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
			vip4: {Candidates: []string{"b", "a"}, Interfaces: []string{"eth0"}, Named: []string{"a"}, AnnounceInterval: time.Minute, NoPreempt: true},
			vip6: {Candidates: []string{"a", "c"}},
		},
		Elsewhere: []netip.Addr{netip.MustParseAddr("192.0.2.77")},
		BFD: map[string]desired.BFD{"tor": {
			Peer: vip4, Local: netip.MustParseAddr("192.0.2.9"), MultiHop: true, MinTTL: 254,
			Transmit: 50 * time.Millisecond, Receive: 300 * time.Millisecond, Multiplier: 3, Passive: true,
		}},
		Unnumbered: []string{"eth1"},
	}
}

var byValue = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty(), cmp.Comparer((*election.Tiers).Equal),
	cmp.Transformer("secret", func(s view.Secret) []byte { return []byte(s) }),
}

// tiered is a claim whose candidates follow from tiers.
func tiered(a netip.Addr, tiers *election.Tiers, first string) desired.Candidacy {
	return desired.Candidacy{Candidates: tiers.Order(election.Rank(a, tiers.Among()), first), Tiers: tiers, First: first}
}

// pair are the two ends of a connection.
type pair struct {
	writer
	reader
}

func newPair() *pair { return &pair{reader: reader{orders: new(orders)}} }

// pass is a table as it gets over the connection, and what goes over.
func (p *pair) pass(tb testing.TB, t *api.Table) (got api.Table, text string) {
	tb.Helper()
	encoded, err := json.Marshal(p.message(1, t))
	if err != nil {
		tb.Fatal(err)
	}
	got, err = p.take(string(encoded))
	if err != nil {
		tb.Fatal(err)
	}
	return got, string(encoded)
}

// take reads one message.
func (p *pair) take(text string) (api.Table, error) {
	var m tableMessage
	if err := decoder(strings.NewReader(text)).Decode(&m); err != nil {
		return api.Table{}, err
	}
	return p.read(m)
}

// TestWhatGoesOver: all at first, and then what has changed.
func TestWhatGoesOver(t *testing.T) {
	p, tiers := newPair(), election.NewTiers([]string{"b", "c"}, []string{"a"})
	table := api.Table{Node: "a", Key: "secret", Serving: true, Claims: map[netip.Addr]desired.Candidacy{vip4: tiered(vip4, tiers, "c")}}
	if _, got := p.pass(t, &table); !strings.Contains(got, `"Names":["b","c","a"],"Lists":[[1,2],[3]],"Tiers":[[1,2]],`+
		`"Claims":{"Set":{"192.0.2.10":{"Tiers":1,"First":2}}}}`) || !strings.Contains(got, `"Key":"c2VjcmV0"`) {
		t.Errorf("all: %s", got)
	}
	table.Claims = map[netip.Addr]desired.Candidacy{vip6: tiered(vip6, election.NewTiers([]string{"b", "c"}, []string{"a"}), "")}
	table.Elsewhere = []netip.Addr{vip4}
	const want = `{"Number":1,"Claims":{"Set":{"2001:db8::10":{"Tiers":1}},"Gone":["192.0.2.10"]},"Elsewhere":{"Set":{"192.0.2.10":{}}}}`
	if _, got := p.pass(t, &table); got != want {
		t.Errorf("a change: %s, want %s", got, want)
	}
	if got, text := p.pass(t, &table); text != `{"Number":1}` || !cmp.Equal(table, got, byValue) {
		t.Errorf("nothing: %s, read as %+v", text, got)
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
	for name, rest := range map[string]string{
		"not JSON":                  `{`,
		"another table":             `"Claims":{"Gone":["192.0.2.1"]}`,
		"another Elsewhere":         `"Elsewhere":{"Gone":["192.0.2.1"]}`,
		"nothing of what it had":    `"Whole":true`,
		"no node":                   `"Rest":{"Node":""}`,
		"a field of tomorrow":       `"Colour":"of the sky"`,
		"no address":                `"Claims":{"Set":{"":{}}}`,
		"nothing elsewhere":         `"Elsewhere":{"Set":{"":{}}}`,
		"no such candidates":        `"Claims":{"Set":{"192.0.2.1":{"Candidates":1}}}`,
		"candidates below zero":     `"Claims":{"Set":{"192.0.2.1":{"Candidates":-1}}}`,
		"announced without a pause": `"Claims":{"Set":{"192.0.2.1":{"AnnounceInterval":1}}}`,
		"announced before it was":   `"Claims":{"Set":{"192.0.2.1":{"AnnounceInterval":-60000000000}}}`,
		"BFD with nobody":           `"Rest":{"Node":"a","BFD":{"tor":{"Transmit":1,"Receive":1,"Multiplier":3}}}`,
		"BFD over two families":     `"Rest":{"Node":"a","BFD":{"tor":{"Peer":"::1","Local":"192.0.2.1","Transmit":1,"Receive":1,"Multiplier":3}}}`,
		"BFD without a pause":       `"Rest":{"Node":"a","BFD":{"tor":{"Peer":"::1","Transmit":0,"Receive":1,"Multiplier":3}}}`,
		"BFD with multiplier 0":     `"Rest":{"Node":"a","BFD":{"tor":{"Peer":"::1","Transmit":1,"Receive":1}}}`,
		"an address that is none":   `"Rest":{"Node":"a","Unable":["192.0.2.256"]}`,
		"a node without name":       `"Lists":[[3]]`,
		"a node below one":          `"Lists":[[0]]`,
		"not sorted":                `"Lists":[[2,1]],"Tiers":[[1]]`,
		"a node twice":              `"Lists":[[1,1]],"Tiers":[[1]]`,
		"a node in two tiers":       `"Lists":[[1],[1,2]],"Tiers":[[1,2]]`,
		"a list twice":              `"Lists":[[1]],"Tiers":[[1,1]]`,
		"no such list":              `"Lists":[[1]],"Tiers":[[2]]`,
		"a list below zero":         `"Lists":[[1]],"Tiers":[[-1]]`,
		"no such tiers":             `"Claims":{"Set":{"192.0.2.1":{"Tiers":1}}}`,
		"tiers below zero":          `"Claims":{"Set":{"192.0.2.1":{"Tiers":-1}}}`,
		"no such first":             `"Lists":[[1]],"Tiers":[[1]],"Claims":{"Set":{"192.0.2.1":{"Tiers":1,"First":3}}}`,
		"a first below zero":        `"Lists":[[1]],"Tiers":[[1]],"Claims":{"Set":{"192.0.2.1":{"Tiers":1,"First":-1}}}`,
		"no such named":             `"Lists":[[1]],"Claims":{"Set":{"192.0.2.1":{"Named":2}}}`,
		"a named list below zero":   `"Lists":[[1]],"Claims":{"Set":{"192.0.2.1":{"Named":-1}}}`,
	} {
		p := newPair()
		if _, err := p.take(`{"Rest":{"Node":"a"},"Names":["a","b"]}`); err != nil {
			t.Fatal(err)
		}
		if got, err := p.take(`{` + rest + `}`); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func drawAddr(t *rapid.T) netip.Addr {
	return rapid.SampledFrom([]netip.Addr{
		vip4, vip6, on4(7), on4(8), netip.MustParseAddr("2001:db8::7"),
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

func drawTiers(t *rapid.T) *election.Tiers {
	nodes := []string{"a", "b", "c", "d", "e", "f"}
	some := rapid.Permutation(nodes).Draw(t, "nodes")[:rapid.IntRange(1, len(nodes)).Draw(t, "size")]
	cut := rapid.IntRange(0, len(some)-1).Draw(t, "cut")
	groups := [][]string{slices.Sorted(slices.Values(some[cut:]))}
	if cut > 0 {
		groups = append(groups, slices.Sorted(slices.Values(some[:cut])))
	}
	return election.NewTiers(groups...)
}

// drawClaims draws claims that have some of the tiers, and some that have none.
func drawClaims(t *rapid.T, shared []*election.Tiers) map[netip.Addr]desired.Candidacy {
	names := rapid.SliceOfN(rapid.StringMatching(`[a-z][a-z0-9.-]{0,8}`), 0, 4)
	claims := map[netip.Addr]desired.Candidacy{}
	for range rapid.IntRange(0, 6).Draw(t, "claims") {
		a, tiers := drawAddr(t), rapid.SampledFrom(shared).Draw(t, "of")
		claim := tiered(a, tiers, rapid.SampledFrom(append([]string{""}, tiers.Among()...)).Draw(t, "first"))
		if rapid.Bool().Draw(t, "as it is") { // an order of which nothing is known
			claim.Tiers, claim.First = nil, ""
			claim.Candidates = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9.-]{0,8}`), 0, 4, rapid.ID).Draw(t, "candidates")
		}
		claim.Interfaces = names.Draw(t, "interfaces")
		claim.AnnounceInterval = time.Duration(rapid.IntRange(0, 3600).Draw(t, "interval")) * time.Second
		claim.NoPreempt = rapid.Bool().Draw(t, "no preemption")
		named := slices.Sorted(slices.Values(claim.Candidates))
		claim.Named = named[:rapid.IntRange(0, len(named)).Draw(t, "named")]
		claims[a] = claim
	}
	return claims
}

func drawTable(t *rapid.T, shared []*election.Tiers) api.Table {
	addrs := rapid.SliceOfN(rapid.Custom(drawAddr), 0, 3)
	table := api.Table{
		Node: "n", NodeAddrs: addrs.Draw(t, "node addresses"), Key: view.Secret(rapid.SliceOf(rapid.Byte()).Draw(t, "key")),
		Serving: rapid.Bool().Draw(t, "serving"), Leaving: rapid.Bool().Draw(t, "leaving"), ShutsDown: rapid.Bool().Draw(t, "shuts down"), Unable: addrs.Draw(t, "unable"),
		Peers: rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}`), rapid.Custom(func(t *rapid.T) hello.Peer {
			return hello.Peer{Addrs: addrs.Draw(t, "peer"), Ready: rapid.Bool().Draw(t, "ready")}
		}), 0, 3).Draw(t, "peers"),
		Claims:     drawClaims(t, shared),
		BFD:        rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}`), rapid.Custom(drawBFD), 0, 3).Draw(t, "bfd"),
		Unnumbered: rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,4}`), 0, 2).Draw(t, "unnumbered"),
	}
	table.Elsewhere = slices.SortedFunc(maps.Keys(setOf(addrs.Draw(t, "elsewhere"))), netip.Addr.Compare)
	table.Digests[rapid.IntRange(0, len(table.Digests)-1).Draw(t, "bucket")] = rapid.Uint32Range(0, 2).Draw(t, "digest")
	return table
}

// TestChangesMakeTheWhole: whatever tables follow each other, by their changes pulse gets to the whole ones, and those
// that it had stay as they were.
func TestChangesMakeTheWhole(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p, shared := newPair(), rapid.SliceOfN(rapid.Custom(drawTiers), 1, 3).Draw(r, "tiers")
		var had, sent []api.Table
		table := drawTable(r, shared)
		for range rapid.IntRange(1, 6).Draw(r, "tables") {
			switch rapid.IntRange(0, 5).Draw(r, "next") {
			case 0:
				table = drawTable(r, shared)
			case 1:
				table.Claims = drawClaims(r, append(shared, drawTiers(r)))
			case 2:
				table.Serving = !table.Serving
			case 3:
				p = &pair{reader: reader{orders: p.orders}} // another connection
			case 4:
				p.room = 0 // what was numbered has become too much
			}
			got, text := p.pass(t, &table)
			sent, had = append(sent, table), append(had, got)
			for i := range sent {
				if diff := cmp.Diff(sent[i], had[i], byValue); diff != "" {
					r.Fatalf("table %d of %d (-want +got):\n%s\nafter %s", i+1, len(sent), diff, text)
				}
			}
		}
	})
}

// TestTiersCostNoMoreThanTheirNodes: a message in which one list comes again and again takes no memory for each.
func TestTiersCostNoMoreThanTheirNodes(t *testing.T) {
	const nodes, times = 100, 10_000
	m := tableMessage{Rest: &rest{Table: api.Table{Node: "a"}}, Lists: [][]int{nil}, Tiers: [][]int{slices.Repeat([]int{1}, times)}}
	for i := range nodes {
		m.Names, m.Lists[0] = append(m.Names, fmt.Sprintf("%03d", i)), append(m.Lists[0], i+1)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := newPair().read(m); err == nil {
		t.Error("tiers that have each node again and again are read")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("it took %d bytes for %d nodes", took, nodes)
	}
}

// large is the table of a node in a cluster with as many nodes and addresses.
func large(nodes, addresses int) api.Table {
	names := make([]string, nodes)
	peers := map[string]hello.Peer{}
	for i := range names {
		names[i] = fmt.Sprintf("worker-%04d.example.net", i)
		peers[names[i]] = hello.Peer{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}, Ready: true}
	}
	table, tiers := api.Table{Node: names[0], Peers: peers, Claims: map[netip.Addr]desired.Candidacy{}}, election.NewTiers(names)
	for i := range addresses {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 0xC6120000+uint32(i))
		at := netip.AddrFrom4(a)
		table.Claims[at] = desired.Candidacy{Candidates: names, Tiers: tiers, First: names[i%nodes], AnnounceInterval: 60e9}
	}
	return table
}

// changed is the table with another claim at one of its addresses.
func changed(t api.Table, i int) api.Table {
	claims := maps.Clone(t.Claims)
	claim := claims[netip.MustParseAddr("198.18.0.1")]
	claim.First = []string{"worker-0001.example.net", "worker-0002.example.net"}[i%2]
	claims[netip.MustParseAddr("198.18.0.1")] = claim
	t.Claims = claims
	return t
}

// TestAThousandNodesAndTenThousandAddresses: the whole table is less than a megabyte, even with five times as many nodes,
// and a change of one claim less than a packet.
func TestAThousandNodesAndTenThousandAddresses(t *testing.T) {
	for _, nodes := range []int{1_000, 5_000} {
		var w writer
		table := large(nodes, 10_000)
		next := changed(table, 1)
		for _, step := range []struct {
			to   *api.Table
			most int
		}{{&table, 1<<20 + nodes*100}, {&next, 200}} {
			encoded, err := json.Marshal(w.message(1, step.to))
			if err != nil || len(encoded) > step.most {
				t.Errorf("%d nodes: %d bytes, error %v", nodes, len(encoded), err)
			}
			t.Logf("%d nodes: %d bytes", nodes, len(encoded))
		}
	}
}

// TestClaimsShareTheirCandidates also from one connection to the next.
func TestClaimsShareTheirCandidates(t *testing.T) {
	first := newPair()
	before := large(100, 300)
	had, _ := first.pass(t, &before)
	table := large(100, 301)
	next := &pair{reader: reader{orders: first.orders}}
	now, _ := next.pass(t, &table)
	for a, claim := range had.Claims {
		if &claim.Candidates[0] != &now.Claims[a].Candidates[0] {
			t.Fatalf("the candidates for %s were reckoned again", a)
		}
	}
}

// TestWhatIsNumberedIsBounded: lists that come and go, day after day, do not stay for ever on either side.
func TestWhatIsNumberedIsBounded(t *testing.T) {
	p, table := newPair(), large(100, 300)
	names := slices.Sorted(maps.Keys(table.Peers))
	most, wholes := 0, 0
	for i := range 3_000 {
		some := slices.Clone(names[:50])
		for j := range some { // another half of the nodes each time
			if i>>(j%12)&1 == 1 {
				some[j] = names[50+j]
			}
		}
		slices.Sort(some)
		table.Claims = maps.Clone(table.Claims)
		table.Claims[netip.MustParseAddr("198.18.0.1")] = desired.Candidacy{Tiers: election.NewTiers(some)}
		m := p.message(1, &table)
		if _, err := p.read(m); err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, list := range p.reader.lists {
			size += len(list)
		}
		if most = max(most, size); m.Whole {
			wholes++
		}
	}
	if wholes < 2 || wholes > 5 || most > spare+2*(len(names)+50)+100 {
		t.Errorf("all was sent %d times, and up to %d nodes were in lists", wholes, most)
	}
}

func FuzzTables(f *testing.F) {
	p, table := newPair(), sample()
	_, whole := p.pass(f, &table)
	table.Claims = map[netip.Addr]desired.Candidacy{vip4: tiered(vip4, election.NewTiers([]string{"b", "c"}, []string{"a"}), "c")}
	_, change := p.pass(f, &table)
	f.Add([]byte(whole))
	f.Add([]byte(whole + "\n" + change))
	f.Add([]byte(`{"Rest":{"Node":"a"},"Names":["a","b"],"Lists":[[1,2]],"Tiers":[[1,1,1,1,1]]}`))
	f.Add([]byte(`{"Rest":{"Node":"a"},"Names":["a"],"Lists":[[1,1]],"Claims":{"Set":{"::ffff:192.0.2.1":{"Candidates":1}}}}{"Claims":{"Gone":["::ffff:192.0.2.1"]}}`))
	f.Add([]byte(`{"Rest":{"Node":"a","Peers":{"":{}}},"Elsewhere":{"Set":{"::":{}}}}{"Whole":true}`))
	f.Add([]byte(`{"Rest":{"Node":"a"},"Names":["a","b"],"Lists":[[1],[2]],"Claims":{"Set":{"192.0.2.1":{"Candidates":1,"Named":2}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, in := reader{orders: new(orders)}, decoder(bytes.NewReader(data))
		p := newPair()
		for {
			var m tableMessage
			if err := in.Decode(&m); err != nil {
				return
			}
			table, err := r.read(m)
			if err != nil {
				return
			}
			// What was understood is understood the same when it is told on.
			if again, _ := p.pass(t, &table); !cmp.Equal(table, again, byValue) {
				t.Fatalf("read twice (-first +second):\n%s", cmp.Diff(table, again, byValue))
			}
		}
	})
}

// BenchmarkOneClaimOfTenThousand is what a change of one claim costs in a cluster of a thousand nodes.
func BenchmarkOneClaimOfTenThousand(b *testing.B) {
	tables := []api.Table{changed(large(1_000, 10_000), 0), changed(large(1_000, 10_000), 1)}
	for i := range tables {
		tables[1].Claims = changed(tables[0], 1).Claims
		tables[i].Peers = tables[0].Peers
	}
	p := newPair()
	p.pass(b, &tables[0])
	var messages []string
	for i := range 2 {
		_, text := p.pass(b, &tables[1-i])
		messages = append(messages, text)
	}
	b.Run("agent", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if differenceOf(&tables[i%2], &tables[1-i%2]).none() { // as Apply does
				b.Fatal("no difference")
			}
			if _, err := json.Marshal(p.message(1, &tables[1-i%2])); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(messages[0])), "bytes")
		}
	})
	b.Run("pulse", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := p.take(messages[i%2]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
