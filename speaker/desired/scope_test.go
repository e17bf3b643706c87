package desired_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
)

// at makes it one of many Services, each with an address of its own.
func at(i byte) func(*view.Service) {
	return func(s *view.Service) {
		s.Name = fmt.Sprint("web-", i)
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, i})}
		s.VIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, i})}
	}
}

// crowd is a cluster of three nodes and so many Services that the hash alone gives one node
// more than its share.
func crowd(t *testing.T, services int) *view.Cluster {
	t.Helper()
	c := cluster(service(at(1)))
	endpoints := map[view.Ref][]view.Endpoint{}
	for i := range services {
		s := service(at(byte(i + 1)))
		c.Services[s.Ref] = s
		endpoints[s.Ref] = []view.Endpoint{endpoint("10.0.0.1", "a")}
	}
	c.Endpoints = c.Endpoints.With(endpoints)
	c.Speakers = map[string]view.Speaker{"a": {BoundsLoad: true}, "b": {BoundsLoad: true}, "c": {BoundsLoad: true}}
	return c
}

// candidates are those of each address, on which all nodes agree.
func candidates(t *testing.T, c *view.Cluster) map[netip.Addr][]string {
	t.Helper()
	agreed := map[netip.Addr][]string{}
	for node := range c.Nodes {
		got, _ := fresh(c, onNode(node))
		for address, claim := range got.Layer2 {
			if other, known := agreed[address]; known && !slices.Equal(other, claim.Candidates) {
				t.Fatalf("%s: candidates %v on %s, elsewhere %v", address, claim.Candidates, node, other)
			}
			agreed[address] = claim.Candidates
		}
	}
	return agreed
}

// firsts counts the addresses of which each node is the first candidate.
func firsts(all map[netip.Addr][]string) map[string]int {
	count := map[string]int{}
	for _, ranked := range all {
		count[ranked[0]]++
	}
	return count
}

func hashed(c *view.Cluster) map[netip.Addr][]string {
	all := map[netip.Addr][]string{}
	for _, s := range c.Services {
		all[s.VIPs[0]] = election.Rank(s.VIPs[0], slices.Collect(maps.Keys(c.Nodes)))
	}
	return all
}

// others are the addresses whose first candidate is another one, but for those that were, or
// are, at the node.
func others(before, after map[netip.Addr][]string, node string) []netip.Addr {
	var moved []netip.Addr
	for address, ranked := range before {
		if now := after[address]; len(now) > 0 && now[0] != ranked[0] && ranked[0] != node && now[0] != node {
			moved = append(moved, address)
		}
	}
	return moved
}

// TestNoNodeHasManyMoreThanOthers: what is too much for a node goes to the next by the hash,
// and every order is that of the hash but for who comes first.
func TestNoNodeHasManyMoreThanOthers(t *testing.T) {
	c := crowd(t, 24)
	plain, got := hashed(c), candidates(t, c)
	before, after := firsts(plain), firsts(got)
	most := slices.Max(slices.Collect(maps.Values(after)))
	if was := slices.Max(slices.Collect(maps.Values(before))); most >= was {
		t.Fatalf("addresses by the hash alone %v, with bounded load %v", before, after)
	}
	for address, ranked := range got {
		rest := slices.DeleteFunc(slices.Clone(plain[address]), func(node string) bool { return node == ranked[0] })
		if !slices.Equal(ranked[1:], rest) {
			t.Errorf("%s: candidates %v, by the hash %v", address, ranked, plain[address])
		}
	}
}

// TestTheHashAloneDecidesWhileASpeakerKnowsNoOther: one pod of an earlier release, or one that
// is told not to, and everybody does as that one does.
func TestTheHashAloneDecidesWhileASpeakerKnowsNoOther(t *testing.T) {
	for name, speakers := range map[string]map[string]view.Speaker{
		"an old one":   {"a": {BoundsLoad: true}, "b": {}, "c": {BoundsLoad: true}},
		"none is seen": {},
	} {
		c := crowd(t, 24)
		c.Speakers = speakers
		if got, want := candidates(t, c), hashed(c); !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: candidates %v, want %v", name, got, want)
		}
	}
}

// TestPlacesAreKeptByThoseThatCannotBeServed: what comes and goes by itself, as pods and the
// readiness of nodes do, moves no address but its own.
func TestPlacesAreKeptByThoseThatCannotBeServed(t *testing.T) {
	whole := candidates(t, crowd(t, 24))
	for i := range 24 {
		c := crowd(t, 24)
		s := service(at(byte(i + 1)))
		c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{s.Ref: {}})
		if moved := others(whole, candidates(t, c), ""); len(moved) > 0 {
			t.Errorf("when %s loses its endpoints, %v move", s.Ref, moved)
		}
	}
	for _, node := range []string{"a", "b", "c"} {
		c := crowd(t, 24)
		c.Nodes[node].Ready = false
		got := candidates(t, c)
		if n := firsts(got)[node]; n > 0 {
			t.Errorf("%s is not ready and the first candidate for %d addresses", node, n)
		}
		if moved := others(whole, got, node); len(moved) > 0 {
			t.Errorf("when %s is not ready, %v of other nodes move", node, moved)
		}
	}
}

// TestAPreferenceIsStrongerThanLoad: the preferred nodes have all addresses, and share these
// evenly; those of policy Local go where their endpoints are.
func TestAPreferenceIsStrongerThanLoad(t *testing.T) {
	c := crowd(t, 30)
	zone := has("topology.kubernetes.io/zone", "z-b")
	c.L2Advertisements["l2"].PreferredNodes = []view.Preference{{Nodes: zone, Weight: 1}}
	if got := firsts(candidates(t, c)); got["b"] != 30 {
		t.Errorf("first candidates %v, want all on b", got)
	}
	c = crowd(t, 30)
	for _, s := range c.Services {
		s.ExternalLocal = true
	}
	if got := firsts(candidates(t, c)); got["a"] != 30 {
		t.Errorf("first candidates %v, want all on a, where the endpoints are", got)
	}
}

// BenchmarkAnnounce has all addresses decided about, as when a node comes or goes, and one.
func BenchmarkAnnounce(b *testing.B) {
	for _, size := range []struct{ addresses, nodes int }{{1000, 10}, {10000, 100}, {10000, 1000}} {
		c := wide(size.addresses, size.nodes)
		for _, bounded := range []bool{false, true} {
			c.Speakers = map[string]view.Speaker{"a": {BoundsLoad: bounded}}
			name := fmt.Sprintf("%dx%d/bounded=%t", size.addresses, size.nodes, bounded)
			b.Run("all/"+name, func(b *testing.B) {
				for b.Loop() {
					fresh(c, onNode("a"))
				}
			})
			b.Run("node/"+name, func(b *testing.B) {
				engine := desired.NewEngine(onNode("a"))
				engine.Decide(c)
				now := *c
				now.Nodes = maps.Clone(c.Nodes)
				const other = "node-0009"
				for b.Loop() {
					if now.Changes = (view.Changes{Revision: now.Revision + 1, Since: now.Revision, Others: true}); now.Nodes[other] == nil {
						now.Nodes[other] = c.Nodes[other]
					} else {
						delete(now.Nodes, other)
					}
					engine.Decide(&now)
				}
			})
			b.Run("one/"+name, func(b *testing.B) {
				engine := desired.NewEngine(onNode("a"))
				engine.Decide(c)
				now := *c
				now.Services = maps.Clone(c.Services)
				ref := service(wideAt(7)).Ref
				s := now.Services[ref]
				for b.Loop() {
					if now.Changes = (view.Changes{Revision: now.Revision + 1, Since: now.Revision, Touched: map[view.Ref]struct{}{ref: {}}}); now.Services[ref] == nil {
						now.Services[ref] = s
					} else {
						delete(now.Services, ref)
					}
					engine.Decide(&now)
				}
			})
		}
	}
}

func wideAt(i int) func(*view.Service) {
	return func(s *view.Service) {
		s.Name = fmt.Sprint("web-", i)
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}
		s.VIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})}
	}
}

// wide is a cluster of so many nodes and Services.
func wide(addresses, nodes int) *view.Cluster {
	c := cluster(service(wideAt(0)))
	c.Pools["all"].Ranges = ranges("192.0.0.0/16")
	c.Revision = 1
	for i := len(c.Nodes); i < nodes; i++ {
		name := fmt.Sprintf("node-%04d", i)
		c.Nodes[name] = &view.Node{Name: name, Ready: true}
	}
	endpoints := map[view.Ref][]view.Endpoint{}
	for i := range addresses {
		s := service(wideAt(i))
		c.Services[s.Ref] = s
		endpoints[s.Ref] = []view.Endpoint{endpoint("10.0.0.1", "a")}
	}
	delete(c.Services, web)
	c.Endpoints = c.Endpoints.With(endpoints)
	return c
}
