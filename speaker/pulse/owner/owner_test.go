package owner

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// BenchmarkStep is what one decision costs with ten thousand addresses among fifty nodes, where nothing is new.
func BenchmarkStep(b *testing.B) {
	var nodes []string
	table := &api.Table{Node: "node-0", Serving: true, Peers: map[string]hello.Peer{}, Claims: map[netip.Addr]desired.Candidacy{}}
	for i := range 50 {
		nodes = append(nodes, fmt.Sprintf("node-%d", i))
		table.Peers[nodes[i]] = hello.Peer{Addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})}}
	}
	for i := range 10_000 {
		a := netip.AddrFrom4([4]byte{192, 0, byte(2 + i>>8), byte(i)})
		table.Claims[a] = desired.Candidacy{Candidates: election.Rank(a, nodes)}
	}
	link := ethernet(2, true)
	link.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.0.1/16")}
	in := Input{Table: table, View: serving(nodes...), Links: links.NewSnapshot(link), IsQuiet: func(string) bool { return false }, Epoch: 1, Changed: true}
	m := New("node-0", func(d time.Duration) time.Duration { return d })
	m.Step(noon, in)
	b.ReportAllocs()
	for b.Loop() {
		m.Step(noon, in)
	}
}
