package socket

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// tables010 are a table, and one that follows it. A field that sample gets later is to be emptied here.
func tables010() []api.Table {
	table := sample()
	session := table.BFD["tor"]
	session.HopsByNetwork = true
	table.BFD = map[string]desired.BFD{"tor": session}
	for i := range table.Digests {
		table.Digests[i] = uint32(i) << 24
	}
	next := table
	next.Claims, next.Elsewhere, next.Serving = maps.Clone(table.Claims), []netip.Addr{vip6}, false
	delete(next.Claims, vip4)
	next.Claims[vip6] = tiered(vip6, election.NewTiers([]string{"b", "c"}, []string{"a"}), "c")
	next.Digests[0] = 5
	return []api.Table{table, next}
}

// recorded returns what testdata has of a release. Where there is nothing yet, the test fails with what is to be put there.
func recorded(t *testing.T, file string, made any) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		today, unmade := json.Marshal(made)
		t.Fatalf("%v; made now (error %v):\n%s", err, unmade, today)
	}
	return string(text)
}

// TestRecordedTablesOf010: where a tag moves to another release, the two containers of a pod may be apart until both have restarted.
func TestRecordedTablesOf010(t *testing.T) {
	wants := tables010()
	var sent writer
	had := newPair()
	for i, name := range []string{"0.1.0/table.json", "0.1.0/table-change.json"} {
		got, err := had.take(recorded(t, name, sent.message(1, &wants[i])))
		if diff := cmp.Diff(wants[i], got, byValue); diff != "" || err != nil {
			t.Errorf("%s: error %v; sent and read differ:\n%s", name, err, diff)
		}
	}
}

// TestRecordedStatesOf010 likewise, in the other direction.
func TestRecordedStatesOf010(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)
	first, next := full(since), full(since)
	yields := first.Contested[vip4]
	yields.Yielded = true
	first.Contested[vip4] = yields
	next.Owned = map[netip.Addr]api.Ownership{vip6: {Interfaces: []string{"eth1"}, Since: since}}
	next.Left, next.Contested, next.Doubted, next.Settled = nil, nil, nil, false
	var sent, had api.State
	for i, want := range []api.State{first, next} {
		name := []string{"0.1.0/state.json", "0.1.0/state-change.json"}[i]
		got, err := takeState(had, recorded(t, name, stateChange(5, &sent, &want)))
		if err != nil || !got.Equal(want) {
			t.Errorf("%s: error %v; got %+v, want %+v", name, err, got, want)
		}
		sent, had = want, got
	}
}
