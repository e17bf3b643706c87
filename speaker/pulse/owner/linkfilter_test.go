package owner

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// TestTheReachByTheLinksThatMatterIsThatByAll also where these links change, and where the reach is asked for again.
func TestTheReachByTheLinksThatMatterIsThatByAll(t *testing.T) {
	some := []netip.Addr{vip4, vip6, on4(1), on4(9), netip.MustParseAddr("10.244.0.1"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::9")}
	prefixes := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.1/24"), netip.PrefixFrom(vip4, 32), netip.PrefixFrom(on4(1), 32), netip.PrefixFrom(on4(1), 24),
		netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("10.244.0.1/32"),
	}
	drawLink := rapid.Custom(func(r *rapid.T) links.Link {
		l := linkstest.PodEnd(rapid.IntRange(1, 6).Draw(r, "index"))
		l.Prefixes = rapid.SliceOfNDistinct(rapid.SampledFrom(prefixes), 0, 3, rapid.ID).Draw(r, "prefixes")
		l.Running, l.Loopback = rapid.Bool().Draw(r, "running"), rapid.IntRange(0, 5).Draw(r, "loopback") == 0
		l.Master, l.Kind = rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(r, "master"), rapid.SampledFrom([]string{"veth", "vrf"}).Draw(r, "kind")
		return l
	})
	rapid.Check(t, func(r *rapid.T) {
		table := api.Table{Node: "a", NodeAddrs: rapid.SliceOfN(rapid.SampledFrom(some), 0, 2).Draw(r, "node"), Claims: map[netip.Addr]desired.Candidacy{}}
		for _, a := range rapid.SliceOfDistinct(rapid.SampledFrom(some), func(a netip.Addr) netip.Addr { return a }).Draw(r, "claimed") {
			table.Claims[a] = desired.Candidacy{Interfaces: rapid.SliceOfN(rapid.SampledFrom([]string{"veth1", "veth2", "veth9"}), 0, 2).Draw(r, "named")}
		}
		var c linkFilter
		for range 3 {
			all := links.NewSnapshot(rapid.SliceOfN(drawLink, 0, 6).Draw(r, "links")...)
			c.look(&table, nil, all)
			want := reachOf(&table, all)
			for range 2 {
				got := c.reachable()
				if diff := cmp.Diff(want, got, compareAddrs, cmp.Comparer(links.Link.Equal)); diff != "" {
					r.Fatalf("reach (-by all +by those that matter):\n%s", diff)
				}
				got.without(map[Place]bool{{0, 1}: true, {1, 1}: true}, nil)
				clear(got)
			}
		}
	})
}

// BenchmarkReach is what one settle spends on the reach, with ten thousand addresses on a node with 250 pods.
func BenchmarkReach(b *testing.B) {
	table := api.Table{Node: "a", NodeAddrs: []netip.Addr{on4(1)}, Claims: map[netip.Addr]desired.Candidacy{}}
	for i := range 10_000 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 0xC6120000+uint32(i))
		table.Claims[netip.AddrFrom4(a)] = desired.Candidacy{}
	}
	all := []links.Link{linkstest.Ethernet(2, true), linkstest.Port(3, "eth3", on4(1).String()+"/24", true)}
	for i := range 250 {
		all = append(all, linkstest.PodEnd(i+4))
	}
	snapshots := []*links.Snapshot{links.NewSnapshot(all...), links.NewSnapshot(all[:len(all)-1]...)}
	b.Run("by all links", func(b *testing.B) {
		for b.Loop() {
			reachOf(&table, snapshots[0])
		}
	})
	b.Run("the mesh changes", func(b *testing.B) {
		var c linkFilter
		for b.Loop() {
			c.look(&table, nil, snapshots[0])
			c.reachable()
		}
	})
	b.Run("a pod comes or goes", func(b *testing.B) {
		var c linkFilter
		for i := 0; b.Loop(); i++ {
			c.look(&table, nil, snapshots[i%2])
		}
	})
	b.Run("a pod comes or goes, and all was handed over", func(b *testing.B) {
		var c linkFilter
		y := releases{}
		for a := range table.Claims {
			y[a] = release{}
		}
		for i := 0; b.Loop(); i++ {
			c.look(&table, y.names(), snapshots[i%2])
		}
	})
	b.Run("the table changes", func(b *testing.B) {
		for b.Loop() {
			var c linkFilter
			c.look(&table, nil, snapshots[0])
			c.reachable()
		}
	})
}
