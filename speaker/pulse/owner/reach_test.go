package owner

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// TestReachComesBeforeTheChoice: of nodes with different interfaces, and whoever has heard by
// now who is unable, nobody answers for an address but the first candidate that has an
// interface for it, and nobody on an interface that is not for it. When all have heard, that
// one does: an address never waits for a node that it cannot reach.
func TestReachComesBeforeTheChoice(t *testing.T) {
	lan, dmz := netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("203.0.113.100")
	rapid.Check(t, func(t *rapid.T) {
		var nodes []string
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			nodes = append(nodes, fmt.Sprintf("node-%d", i))
		}
		claims := map[netip.Addr]desired.Candidacy{lan: {Candidates: election.Rank(lan, nodes)}, dmz: {Candidates: election.Rank(dmz, nodes)}}
		if rapid.Bool().Draw(t, "named") {
			claims[dmz] = desired.Candidacy{Candidates: claims[dmz].Candidates, Interfaces: []string{"dmz0"}}
		}
		tables, reaches := map[string]*api.Table{}, map[string]reach{}
		for _, n := range nodes {
			tables[n] = &api.Table{Node: n, Serving: true, Claims: claims}
			reaches[n] = reachOf(tables[n], links.NewSnapshot(
				linkstest.Port(2, "lan0", "192.0.2.1/24", rapid.Bool().Draw(t, "lan")), linkstest.Port(3, "dmz0", "203.0.113.1/24", rapid.Bool().Draw(t, "dmz"))))
		}
		for a, on := range map[netip.Addr]string{lan: "lan0", dmz: "dmz0"} {
			first, able := election.Owner(claims[a].Candidates, func(n string) bool { return len(reaches[n][a]) > 0 })
			for _, all := range []bool{false, true} {
				for _, n := range nodes {
					heard := serving(nodes...)
					for _, other := range nodes {
						if len(reaches[other][a]) == 0 && (all || other == n || rapid.Bool().Draw(t, "heard")) {
							heard.Alive[other] = hello.Member{Serving: true, Unable: only(a)}
						}
					}
					at, answers := owns(tables[n], heard, reaches[n])[a]
					if answers && (n != first || len(at) != 1 || at[0].Name != on) {
						t.Fatalf("%s answers for %s on %v, the first candidate that can is %q", n, a, at, first)
					}
					if all && able && n == first && !answers {
						t.Fatalf("%s does not answer for %s, and all have heard that no other can", n, a)
					}
				}
			}
		}
	})
}
