package pulse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// tiered is a claim whose candidates follow from tiers.
func tiered(a netip.Addr, tiers *election.Tiers, first string) desired.Candidacy {
	return desired.Candidacy{Candidates: tiers.Order(election.Rank(a, tiers.Among()), first), Tiers: tiers, First: first}
}

// plain is the table as pulse has it, which need not know what an order follows from.
func plain(t api.Table) api.Table {
	claims := map[netip.Addr]desired.Candidacy{}
	for a, c := range t.Claims {
		c.Tiers, c.First = nil, ""
		claims[a] = c
	}
	t.Claims = claims
	return t
}

func encodedTiers(tb testing.TB, t api.Table) []byte {
	tb.Helper()
	table, err := encode(t, true)
	if err != nil {
		tb.Fatal(err)
	}
	body, err := encodeTableMessage(1, table)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// TestTiersSurviveTheWire: pulse has the same candidates in the same order, whatever tables it read before,
// and whether it reads tiers or has them written out by a client that knows only what it encoded.
func TestTiersSurviveTheWire(t *testing.T) {
	nodes := []string{"a", "b", "c", "d", "e", "f"}
	drawTiers := rapid.Custom(func(r *rapid.T) *election.Tiers {
		some := rapid.Permutation(nodes).Draw(r, "nodes")[:rapid.IntRange(1, len(nodes)).Draw(r, "size")]
		cut := rapid.IntRange(0, len(some)-1).Draw(r, "cut")
		groups := [][]string{slices.Sorted(slices.Values(some[cut:]))}
		if cut > 0 {
			groups = append(groups, slices.Sorted(slices.Values(some[:cut])))
		}
		return election.NewTiers(groups...)
	})
	rapid.Check(t, func(r *rapid.T) {
		var pulses, former reader
		for range 3 {
			shared := rapid.SliceOfN(drawTiers, 1, 3).Draw(r, "tiers")
			table := api.Table{Node: "a", Claims: map[netip.Addr]desired.Candidacy{}}
			for i := range rapid.IntRange(0, 8).Draw(r, "addresses") {
				tiers := rapid.SampledFrom(shared).Draw(r, "of")
				claim := tiered(on4(i), tiers, rapid.SampledFrom(append([]string{""}, tiers.Among()...)).Draw(r, "first"))
				switch rapid.IntRange(0, 3).Draw(r, "named") {
				case 0:
					claim.Named = tiers.Among()
				case 1:
					claim.Named = tiers.Among()[:1]
				case 2: // an order of which nothing is known
					claim.Tiers, claim.First = nil, ""
				}
				table.Claims[on4(i)] = claim
			}
			body := encodedTiers(t, table)
			got, _, err := pulses.table(body)
			if err != nil {
				r.Fatal(err)
			}
			if diff := cmp.Diff(plain(table), got, compareAddrs); diff != "" {
				r.Fatalf("a table changed on the wire (-want +got):\n%s", diff)
			}
			encoded, err := encode(table, true)
			if err != nil {
				r.Fatal(err)
			}
			out, err := former.writtenOut(encoded)
			if err != nil {
				r.Fatal(err)
			}
			if want, err := encodeTable(plain(table)); err != nil || string(out) != string(want) {
				r.Fatalf("written out as\n%s, want\n%s, error %v", out, want, err)
			}
		}
	})
}

// The text of tiers: a change of it that another release cannot read needs another field in the state.
func TestTiersText(t *testing.T) {
	tiers := election.NewTiers([]string{"b", "c"}, []string{"a"})
	claim := tiered(vip4, tiers, "c")
	claim.Interfaces, claim.Named = []string{"eth0"}, []string{"b"}
	table := api.Table{Node: "a", Claims: map[netip.Addr]desired.Candidacy{vip4: claim, vip6: tiered(vip6, tiers, "")}}
	const want = `{"number":1,"table":{"node":"a","serving":false,"names":["a","b","c"],"sets":[[1,2],[0],[1]],"tiers":[[0,1]],"claims":[` +
		`{"address":"192.0.2.10","interfaces":["eth0"],"tiers":1,"first":3,"namedSet":3},{"address":"2001:db8::10","tiers":1}]}}`
	if got := string(encodedTiers(t, table)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTiersThatAreRefused(t *testing.T) {
	for name, rest := range map[string]string{
		"a node without name":   `"sets":[[2]]`,
		"a node below zero":     `"sets":[[-1]]`,
		"not sorted":            `"sets":[[1,0]]`,
		"a node twice":          `"sets":[[0,0]]`,
		"a node in two tiers":   `"sets":[[0],[0,1]],"tiers":[[0,1]]`,
		"a set twice":           `"sets":[[0]],"tiers":[[0,0]]`,
		"no such set":           `"sets":[[0]],"tiers":[[1]]`,
		"a set below zero":      `"sets":[[0]],"tiers":[[-1]]`,
		"no such tiers":         `"claims":[{"address":"192.0.2.1","tiers":1}]`,
		"tiers below zero":      `"claims":[{"address":"192.0.2.1","tiers":-1}]`,
		"no such first":         `"sets":[[0]],"tiers":[[0]],"claims":[{"address":"192.0.2.1","tiers":1,"first":3}]`,
		"a first below zero":    `"sets":[[0]],"tiers":[[0]],"claims":[{"address":"192.0.2.1","tiers":1,"first":-1}]`,
		"no such named":         `"sets":[[0]],"claims":[{"address":"192.0.2.1","namedSet":2}]`,
		"a named set below one": `"sets":[[0]],"claims":[{"address":"192.0.2.1","namedSet":-1}]`,
	} {
		if got, _, err := decodeTableMessage([]byte(`{"table":{"node":"a","names":["a","b"],` + rest + `}}`)); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

// TestTiersCostNoMoreThanTheirNodes: a message in which one set comes again and again takes no memory for each.
func TestTiersCostNoMoreThanTheirNodes(t *testing.T) {
	const nodes, times = 100, 10_000
	w := wireTable{Node: "a", Sets: [][]int{nil}, Tiers: [][]int{make([]int, times)}}
	for i := range nodes {
		w.Names, w.Sets[0] = append(w.Names, fmt.Sprintf("%03d", i)), append(w.Sets[0], i)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := new(reader).claims(w); err == nil {
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
	for i := range names {
		names[i] = fmt.Sprintf("worker-%04d.example.net", i)
	}
	table, tiers := api.Table{Node: names[0], Claims: map[netip.Addr]desired.Candidacy{}}, election.NewTiers(names)
	for i := range addresses {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 0xC6120000+uint32(i))
		at := netip.AddrFrom4(a)
		table.Claims[at] = desired.Candidacy{Candidates: names, Tiers: tiers, First: names[i%nodes], AnnounceInterval: 60e9}
	}
	return table
}

// TestAThousandNodesAndTenThousandAddressesFit: and five times as many nodes. Written out they do not.
func TestAThousandNodesAndTenThousandAddressesFit(t *testing.T) {
	for _, nodes := range []int{1_000, 5_000} {
		encoded, err := encode(large(nodes, 10_000), true)
		if err != nil || len(encoded) > 1<<20 {
			t.Errorf("%d nodes: %d bytes, error %v", nodes, len(encoded), err)
		}
		t.Logf("%d nodes: %d bytes", nodes, len(encoded))
	}
	out, err := encodeTable(large(1_000, 10_000))
	if err != nil || len(out) <= maxTable {
		t.Errorf("written out it has %d bytes, error %v: is there any need for tiers?", len(out), err)
	}
	t.Logf("written out: %d bytes", len(out))
}

// TestClaimsShareTheirCandidates also from one table to the next.
func TestClaimsShareTheirCandidates(t *testing.T) {
	var r reader
	body := encodedTiers(t, large(100, 300))
	before, _, err := r.table(body)
	if err != nil {
		t.Fatal(err)
	}
	table := large(100, 301)
	now, _, err := r.table(encodedTiers(t, table))
	if err != nil {
		t.Fatal(err)
	}
	for a, claim := range before.Claims {
		if &claim.Candidates[0] != &now.Claims[a].Candidates[0] {
			t.Fatalf("the candidates for %s were reckoned again", a)
		}
	}
}

// TestAPulseIsToldInAWayThatItReads, be it of this release or of an older one, or one that says nothing,
// whatever the one before it could read.
func TestAPulseIsToldInAWayThatItReads(t *testing.T) {
	table := large(3, 2)
	said, err := encodeStateMessage(0, api.State{})
	if err != nil {
		t.Fatal(err)
	}
	older := strings.Replace(string(said), `,"tiers":true`, "", 1)
	if older == string(said) {
		t.Fatalf("%s does not say that it reads tiers", said)
	}
	for name, c := range map[string]struct {
		says    string
		toGreet time.Duration
		tiers   bool
	}{"this release": {string(said), patience, true}, "an older one": {older, patience, false}, "silent": {"", time.Millisecond, false}} {
		l, client := told(t, table, c.toGreet)
		former := accepted(t, l)
		tell(t, former, 0, api.State{})
		connected(t, client, true)
		_ = former.Close()
		conn := accepted(t, l)
		if c.says != "" {
			if err := writeMessage(conn, []byte(c.says)); err != nil {
				t.Fatal(err)
			}
		}
		body, err := readMessage(conn)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(body), `"sets"`); got != c.tiers {
			t.Errorf("%s: told %s", name, body)
		}
		got, _, err := decodeTableMessage(body)
		if err != nil {
			t.Fatal(err)
		}
		for a, claim := range got.Claims {
			if want := tiered(a, table.Claims[a].Tiers, table.Claims[a].First).Candidates; !slices.Equal(claim.Candidates, want) {
				t.Errorf("%s: candidates %v for %s, want %v", name, claim.Candidates, a, want)
			}
		}
	}
}

// told runs a client that has a table and waits so long for a greeting, and listens for it.
func told(t *testing.T, table api.Table, toGreet time.Duration) (net.Listener, *Client) {
	t.Helper()
	path := socketPath(t)
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := NewClient(path, testlog.New(t))
	c.within, c.toGreet = patience, toGreet
	if _, err := c.Apply(t.Context(), table); !errors.Is(err, ErrAway) {
		t.Fatalf("error %v, want ErrAway", err)
	}
	runClient(t, c)
	return l, c
}

// wide is a table that is small in tiers, and too large for a pulse that reads none.
func wide(t *testing.T) api.Table {
	t.Helper()
	const addresses = 1500
	table, one := large(5000, addresses), election.NewTiers([]string{large(1, 0).Node})
	named := slices.Collect(maps.Values(table.Claims))[0].Candidates
	for i, a := range slices.SortedFunc(maps.Keys(table.Claims), netip.Addr.Compare) {
		claim := table.Claims[a]
		if claim.Named = named; i > 0 { // else their order is reckoned
			claim.Tiers, claim.First, claim.Candidates = one, "", one.Among()
		}
		table.Claims[a] = claim
	}
	if out, err := encodeTable(table); err != nil || len(out) <= maxTable {
		t.Fatalf("written out it has %d bytes, error %v", len(out), err)
	}
	return table
}

// TestALateGreetingIsHeard: a pulse that says what it reads after it was given up on gets a table that was
// too large to be written out, however long that table stays the same.
func TestALateGreetingIsHeard(t *testing.T) {
	table := wide(t)
	l, c := told(t, table, time.Millisecond)
	conn := accepted(t, l)
	for refused := false; !refused; {
		c.mu.Lock()
		news := c.news
		refused = c.refused.number > 0
		c.mu.Unlock()
		if !refused {
			select {
			case <-news:
			case <-time.After(patience):
				t.Fatal("written out it is not too large")
			}
		}
	}
	tell(t, conn, 0, api.State{})
	got, number := received(t, conn)
	if len(got.Claims) != len(table.Claims) {
		t.Fatalf("%d claims, want %d", len(got.Claims), len(table.Claims))
	}
	tell(t, conn, number, api.State{Settled: true})
	if s, err := c.Apply(t.Context(), table); err != nil || !s.Settled {
		t.Errorf("settled=%t, error %v", s.Settled, err)
	}
}

// TestAGreetingWhileATableIsWrittenOut: that it turns out to be too large then is of no account.
func TestAGreetingWhileATableIsWrittenOut(t *testing.T) {
	c := NewClient(socketPath(t), testlog.New(t))
	c.within = 10 * time.Millisecond
	if _, err := c.Apply(t.Context(), sample()); !errors.Is(err, ErrAway) {
		t.Fatalf("error %v, want ErrAway", err)
	}
	<-c.wake // the table is written out
	c.greet(true)
	c.learn(api.State{}, 0, true)
	c.refuse(c.number, maxTable+1)
	select {
	case <-c.wake:
	default:
		t.Error("the table is not sent again")
	}
	if _, err := c.Apply(t.Context(), sample()); err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("error %v, want one of a pulse that has not answered yet", err)
	}
}

// TestWhatIsTooLargeHoldsUpNothingElse: the key, what is withdrawn, and all but what is new of the claims
// get to pulse nevertheless.
func TestWhatIsTooLargeHoldsUpNothingElse(t *testing.T) {
	c := NewClient(socketPath(t), testlog.New(t))
	if _, err := c.Apply(t.Context(), sample()); !errors.Is(err, ErrAway) {
		t.Fatalf("error %v, want ErrAway", err)
	}
	table := sample()
	table.Key = "another"
	table.Claims = map[netip.Addr]desired.Candidacy{vip4: sample().Claims[vip4], on4(7): {Interfaces: []string{strings.Repeat("x", maxMessage)}}}
	_, err := c.Apply(t.Context(), table)
	if told := outcome.AllOf[*outcome.OversizeError](err); len(told) != 1 {
		t.Errorf("error %v", err)
	}
	body, err := encodeTableMessage(1, c.table)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeTableMessage(body)
	if err != nil {
		t.Fatal(err)
	}
	delete(table.Claims, on4(7))
	if diff := cmp.Diff(table, got, compareAddrs); diff != "" {
		t.Errorf("what pulse is told (-want +got):\n%s", diff)
	}
}
