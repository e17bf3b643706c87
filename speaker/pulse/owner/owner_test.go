package owner

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
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
	link := linkstest.Ethernet(2, true)
	link.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.0.1/16")}
	in := Input{Table: table, View: serving(nodes...), Links: links.NewSnapshot(link), IsQuiet: func(string) bool { return false }, Epoch: 1, Changed: true}
	m := New("node-0", func(d time.Duration) time.Duration { return d })
	m.Step(noon, in)
	b.ReportAllocs()
	for b.Loop() {
		m.Step(noon, in)
	}
}

// TestAStepSettles: whatever came before, steps with the same input have nothing more to say after a few.
func TestAStepSettles(t *testing.T) {
	nodes := []string{"a", "b", "c"}
	vips := []netip.Addr{vip4, netip.MustParseAddr("192.0.2.11"), vip6}
	drawTable := func(t *rapid.T) *api.Table {
		table := &api.Table{Node: "a", Serving: rapid.Bool().Draw(t, "serving"), Leaving: rapid.IntRange(0, 9).Draw(t, "leaving") == 0, Claims: map[netip.Addr]desired.Candidacy{}}
		for _, a := range vips {
			switch order := rapid.Permutation(nodes).Draw(t, "order"); rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
			case 1:
				table.Elsewhere = append(table.Elsewhere, a)
			default:
				table.Claims[a] = desired.Candidacy{Candidates: order, NoPreempt: rapid.Bool().Draw(t, "no preemption")}
			}
		}
		return table
	}
	drawView := func(t *rapid.T) hello.View {
		v := serving("a")
		v.Settled = rapid.IntRange(0, 9).Draw(t, "unsettled") > 0
		for i, node := range nodes[1:] {
			if !rapid.Bool().Draw(t, "alive") {
				v.Silent = append(v.Silent, node)
				continue
			}
			member := hello.Member{
				Serving: rapid.Bool().Draw(t, "serves"), Heard: true, Deaf: rapid.IntRange(0, 9).Draw(t, "deaf") == 0,
				Stations: []hello.Station{{2, 0, 0, 0, 1, byte(i)}},
			}
			for _, a := range vips {
				if rapid.IntRange(0, 3).Draw(t, "claims") == 0 {
					member.Claims = append(member.Claims, hello.Claim{Address: a, Stance: rapid.SampledFrom([]hello.Stance{hello.Answers, hello.Leaves, hello.Stopped}).Draw(t, "stance"), Epoch: rapid.Uint64Range(0, 3).Draw(t, "epoch")})
				}
			}
			v.Alive[node] = member
		}
		return v
	}
	rapid.Check(t, func(t *rapid.T) {
		m, now := New("a", func(time.Duration) time.Duration { return 0 }), noon
		in := Input{Table: drawTable(t), View: drawView(t), Links: links.NewSnapshot(linkstest.Ethernet(2, true)), IsQuiet: func(string) bool { return false }, Epoch: 10}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				in.Table = drawTable(t)
			case 1:
				in.View = drawView(t)
			case 2:
				in.Links = links.NewSnapshot(linkstest.Ethernet(2, rapid.Bool().Draw(t, "carrier")))
			case 3:
				in.Heard = []neighbour.Claim{{
					Address: rapid.SampledFrom(vips).Draw(t, "claimed"), Index: 2, Interface: "eth2", Reply: rapid.Bool().Draw(t, "reply"), Announced: rapid.Bool().Draw(t, "announced"),
					Station: rapid.SampledFrom([]neighbour.MAC{{2, 0, 0, 0, 1, 0}, {2, 0, 0, 0, 1, 1}, stranger}).Draw(t, "station"),
				}}
			case 4:
				now = now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second, time.Minute}).Draw(t, "time"))
			}
			in.Epoch, in.Changed = in.Epoch+1, true
			m.Step(now, in)
			in.Heard = nil
			var again Output
			for range 3 { // an audit listens in one step and asks in the next
				again = m.Step(now, in)
			}
			if len(again.Frames) > 0 || len(again.Findings) > 0 || again.Decision.Tell != nil || again.Decision.Taken || again.Decision.Advanced {
				t.Fatalf("it says more: %+v, decided %+v", again, again.Decision)
			}
			if !again.Next.IsZero() && again.Next.Before(now) {
				t.Fatalf("it is due before now: %v, and it is %v", again.Next, now)
			}
		}
	})
}
