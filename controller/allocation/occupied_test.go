package allocation_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// occupant is something of a cluster that has an address of a pool.
type occupant struct {
	pool, taken, given string
	use                func(*view.Cluster)
	is                 string // what is told of it
	named              bool   // a Service that names it gets it
	ranged             bool   // it counts for nothing in the pool
}

func occupants() map[string]occupant {
	networks := func(texts ...string) func(*view.Cluster) {
		return func(c *view.Cluster) {
			for _, text := range texts {
				c.Networks = append(c.Networks, netip.MustParsePrefix(text))
			}
		}
	}
	pods := func(text string) func(*view.Cluster) {
		return func(c *view.Cluster) { c.PodRanges = []netip.Prefix{netip.MustParsePrefix(text)} }
	}
	other := view.Ref{Namespace: "shop", Name: "other"}
	peer := func(p view.BGPPeer) func(*view.Cluster) {
		return func(c *view.Cluster) { c.BGPPeers = map[string]*view.BGPPeer{"tor": &p} }
	}
	return map[string]occupant{
		"an InternalIP": {"192.0.2.8/29", "192.0.2.8", "192.0.2.9", func(c *view.Cluster) {
			c.Nodes = map[string]*view.Node{"n1": {Name: "n1", Addresses: parse("192.0.2.8")}}
		}, "the address of node n1", false, false},
		"an ExternalIP of a node": {"2001:db8::8/125", "2001:db8::8", "2001:db8::9", func(c *view.Cluster) {
			c.Nodes = map[string]*view.Node{"n2": {Name: "n2", ExternalIPs: parse("2001:db8::8")}, "n1": {Name: "n1", ExternalIPs: parse("2001:db8::8")}}
		}, "the address of node n1", false, false},
		"a ClusterIP": {"192.0.2.8/29", "192.0.2.8", "192.0.2.9", func(c *view.Cluster) {
			c.ClusterIPs = map[view.Ref][]netip.Addr{other: parse("192.0.2.8")}
		}, "the ClusterIP of Service shop/other", false, false},
		"the range of ClusterIPs": {"192.0.2.8/29", "192.0.2.9", "192.0.2.12", func(c *view.Cluster) {
			c.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.8/30")}
		}, "of 192.0.2.8/30, which ClusterIPs are from", false, true},
		"pods":             {"192.0.2.8/29", "192.0.2.9", "192.0.2.12", pods("192.0.2.8/30"), "of 192.0.2.8/30, which pods are from", false, true},
		"pods, IPv6":       {"2001:db8::8/125", "2001:db8::9", "2001:db8::c", pods("2001:db8::8/126"), "of 2001:db8::8/126, which pods are from", false, true},
		"an API server":    {"192.0.2.8/29", "192.0.2.8", "192.0.2.9", func(c *view.Cluster) { c.APIServers = parse("192.0.2.8") }, "the address of an API server", false, false},
		"a router":         {"192.0.2.8/29", "192.0.2.8", "192.0.2.9", peer(view.BGPPeer{PeerAddress: netip.MustParseAddr("192.0.2.8")}), "an address of BGPPeer tor", false, false},
		"where a node is":  {"192.0.2.8/29", "192.0.2.8", "192.0.2.9", peer(view.BGPPeer{SourceAddress: netip.MustParseAddr("192.0.2.8")}), "an address of BGPPeer tor", false, false},
		"a network":        {"192.0.2.0/29", "192.0.2.0", "192.0.2.1", networks("192.0.2.0/24"), "the first or the last address of 192.0.2.0/24", false, false},
		"a broadcast":      {"192.0.2.255-192.0.3.7", "192.0.2.255", "192.0.3.0", networks("192.0.2.0/24"), "the first or the last address of 192.0.2.0/24", false, false},
		"routers, anycast": {"fd00:30::/112", "fd00:30::", "fd00:30::1", networks("fd00:30::/64"), "the anycast address of the routers on fd00:30::/64", false, false},
		"external IPs": {"192.0.2.8/29", "192.0.2.8", "192.0.2.9", func(c *view.Cluster) {
			c.ExternalIPs = map[view.Ref][]netip.Addr{other: parse("192.0.2.8")}
		}, "in spec.externalIPs of Service shop/other", true, false},
		"external IPs of a Service with an address": {"2001:db8::8/125", "2001:db8::8", "2001:db8::9", func(c *view.Cluster) {
			c.Services[other] = &view.Service{Ref: other, Type: view.LoadBalancer, Class: "another", ExternalIPs: parse("2001:db8::8")}
		}, "in spec.externalIPs of Service shop/other", true, false},
	}
}

// ofFamily is a Service of the family of an address.
func ofFamily(name, address string, options ...option) *view.Service {
	return service(name, 1, append(options, families(view.SingleStack, addr.FamilyOf(netip.MustParseAddr(address))))...)
}

// TestWhatTheClusterUsesIsNotGiven: by itself no Service gets it, nor by its name, but for what another Service lists. One
// that has it keeps it, and is told.
func TestWhatTheClusterUsesIsNotGiven(t *testing.T) {
	t.Parallel()
	for name, test := range occupants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decide := func(of *view.Service) (string, []problem.Problem, allocation.Usage) {
				c := cluster([]*view.Pool{pool("p", 1, test.pool)}, of)
				test.use(c)
				assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
				addrs, _ := told(assigned, problems)
				return addrs[of.Name], problems, allocation.Count(c, assigned)["p"]
			}
			got, problems, counts := decide(ofFamily("new", test.taken))
			if got != test.given || len(problems) > 0 {
				t.Errorf("given %q, told %v, want %s", got, problems, test.given)
			}
			whole := cluster([]*view.Pool{pool("p", 1, test.pool)}, ofFamily("new", test.taken))
			all := allocation.Count(whole, allocation.Assignments{})["p"]
			ofAll, of := all.IPv4, counts.IPv4
			if addr.FamilyOf(netip.MustParseAddr(test.taken)) == addr.IPv6 {
				ofAll, of = all.IPv6, counts.IPv6
			}
			if lost := ofAll.Available - of.Available - 1; lost < 1 || test.ranged && of.Total != ofAll.Total-lost || !test.ranged && of.Total != ofAll.Total {
				t.Errorf("counted %+v of %+v", of, ofAll)
			}

			got, problems, _ = decide(ofFamily("asking", test.taken, asks(test.taken)))
			if test.named {
				if got != test.taken || len(problems) != 1 || problems[0].Reason != "AddressInUse" || !problems[0].Advisory || !strings.Contains(problems[0].Message, test.is) {
					t.Errorf("who asks for it gets %q, told %v", got, problems)
				}
			} else if got != "" || len(problems) != 1 || problems[0].Reason != "RequestUnusable" || !strings.Contains(problems[0].Message, test.is) {
				t.Errorf("who asks for it gets %q, told %v", got, problems)
			}
			r := booking("reserving", 1)
			r.Addresses = parse(test.taken)
			c := cluster([]*view.Pool{pool("p", 1, test.pool)})
			c.Reservations[r.Ref] = r
			test.use(c)
			assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
			if got := len(assigned.Reservations[r.Ref].Addresses) > 0; got != test.named || len(problems) != 1 || problems[0].Reason != map[bool]string{false: "RequestUnusable", true: "AddressInUse"}[got] {
				t.Errorf("a reservation of it gets %v, told %v", assigned.Reservations, problems)
			}
			for what, had := range map[string]*view.Service{
				"has": ofFamily("had", test.taken, holds(test.taken)), "has and asks for": ofFamily("had", test.taken, holds(test.taken), asks(test.taken)),
			} {
				if got, problems, _ = decide(had); got != test.taken || len(problems) != 1 || problems[0].Reason != "AddressInUse" ||
					!problems[0].Advisory || !strings.Contains(problems[0].Message, test.is) {
					t.Errorf("who %s it gets %q, told %v", what, got, problems)
				}
			}
		})
	}
}

// TestNetworksOfTwo have neither a broadcast nor the routers' anycast address (RFC 3021, RFC 6164).
func TestNetworksOfTwo(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{pool("p", 1, "192.0.2.0/31", "2001:db8::/127")}, service("a", 1, dual))
	for _, text := range []string{"192.0.2.0/31", "192.0.2.0/32", "2001:db8::/127", "2001:db8::/128"} {
		c.Networks = append(c.Networks, netip.MustParsePrefix(text))
	}
	assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
	if addrs, _ := told(assigned, problems); addrs["a"] != "192.0.2.0 2001:db8::" {
		t.Errorf("given %v, told %v", addrs, problems)
	}
}

// TestExternalIPsOfClosedPools: where a pool does not give to anyone, an address that a user lists is as free as it was, or
// users could keep others from all of them.
func TestExternalIPsOfClosedPools(t *testing.T) {
	t.Parallel()
	for name, closed := range map[string]func(*view.Pool){
		"for some": func(p *view.Pool) { p.Namespaces = []string{"default"} },
		"quota":    func(p *view.Pool) { p.MaxPerNamespace = 7 },
		"cool":     func(p *view.Pool) { p.CoolDown = 1 },
	} {
		p := pool("p", 1, "192.0.2.8/29")
		closed(p)
		c := cluster([]*view.Pool{p}, service("a", 1))
		c.ExternalIPs = map[view.Ref][]netip.Addr{{Namespace: "mallory", Name: "all"}: parse("192.0.2.8")}
		assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		if addrs, _ := told(assigned, problems); addrs["a"] != "192.0.2.8" || len(problems) > 0 {
			t.Errorf("%s: given %v, told %v", name, addrs, problems)
		}
	}
	// Nor does a Service stand in its own way.
	own := service("a", 1, asks("192.0.2.8"), func(s *view.Service) { s.ExternalIPs = parse("192.0.2.8") })
	assigned, problems := allocation.Plan(cluster([]*view.Pool{pool("p", 1, "192.0.2.8/29")}, own), allocation.Assignments{}, view.Classes{})
	if addrs, _ := told(assigned, problems); addrs["a"] != "192.0.2.8" || len(problems) > 0 {
		t.Errorf("its own: given %v, told %v", addrs, problems)
	}
}

// TestWhatNoAllocatorGaveIsReplaced: addresses of nodes, as k3s' ServiceLB leaves them, and what else the cluster uses are
// not taken over from a status. What a pool has or had stays, whatever a kubelet says that its node has.
func TestWhatNoAllocatorGaveIsReplaced(t *testing.T) {
	t.Parallel()
	for held, want := range map[string]string{
		"172.30.0.11 172.30.0.12 172.30.0.13": "192.0.2.0", // nodes
		"10.96.0.9":                           "192.0.2.0", // of the range of ClusterIPs
		"10.97.0.9":                           "192.0.2.0", // a ClusterIP of a range that is no more
		"10.244.1.7":                          "192.0.2.0", // a pod
		"172.30.0.10":                         "192.0.2.0", // the API server
		"172.30.0.1":                          "192.0.2.0", // a router
		"172.30.255.255":                      "192.0.2.0", // a broadcast
		"169.254.7.7":                         "192.0.2.0",
		"127.0.0.1":                           "192.0.2.0",
		"172.30.0.11 192.0.2.3":               "192.0.2.3",
		"172.30.0.20":                         "172.30.0.20", // another implementation's, as far as is known
		"172.30.0.21":                         "172.30.0.21", // listed by another Service, and of no pool
		"192.0.2.1":                           "192.0.2.1",   // a kubelet lists it
		"198.51.100.1":                        "198.51.100.1",
	} {
		c := cluster([]*view.Pool{had(pool("p", 1, "192.0.2.0/29"), "192.0.2.0/29", "198.51.100.0/24")}, service("a", 1, holds(strings.Fields(held)...)))
		c.Nodes = map[string]*view.Node{"n": {Name: "n", Addresses: parse("172.30.0.11", "192.0.2.1", "198.51.100.1"), ExternalIPs: parse("172.30.0.12")}, "m": {Name: "m", Addresses: parse("172.30.0.13")}}
		c.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
		c.ClusterIPs = map[view.Ref][]netip.Addr{{Namespace: "other", Name: "s"}: parse("10.97.0.9")}
		c.PodRanges, c.Networks = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")}
		c.APIServers = parse("172.30.0.10")
		c.BGPPeers = map[string]*view.BGPPeer{"tor": {PeerAddress: netip.MustParseAddr("172.30.0.1")}}
		c.ExternalIPs = map[view.Ref][]netip.Addr{{Namespace: "other", Name: "e"}: parse("172.30.0.21")}
		assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		addrs, reasons := told(assigned, problems)
		refused := slices.Contains(reasons, "a AddressRefused")
		if addrs["a"] != want || refused != (want != held) {
			t.Errorf("of %s: given %v, told %v, want %s", held, addrs, problems, want)
		}
	}
}

// TestWhatIsUsedLater: a Service at rest is told when the cluster begins to use its address, and when it ends.
func TestWhatIsUsedLater(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{pool("p", 1, "192.0.2.8/29")}, service("a", 1, holds("192.0.2.8")))
	c.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	c.Changes = view.Changes{Revision: 1, Others: true}
	engine := allocation.NewEngine(view.Classes{})
	next := func(change func(*view.Cluster)) {
		now := *c
		now.Changes = view.Changes{Revision: c.Revision + 1, Since: c.Revision, Others: true}
		change(&now)
		c = &now
	}
	steps := []func(*view.Cluster){func(*view.Cluster) {}}
	for _, name := range []string{"an InternalIP", "pods", "an API server", "a router", "external IPs"} {
		steps = append(steps, occupants()[name].use, func(c *view.Cluster) {
			c.Nodes, c.PodRanges, c.APIServers, c.BGPPeers, c.ExternalIPs = nil, nil, nil, nil, nil
		})
	}
	for i, step := range steps {
		next(step)
		o := engine.Plan(c, allocation.Assignments{})
		_, reasons := told(o.Assigned, o.Problems)
		var want []string
		if i%2 == 1 {
			want = []string{"a AddressInUse"}
		}
		if d := cmp.Diff(want, reasons); d != "" {
			t.Errorf("step %d (-want +got):\n%s", i, d)
		}
		if got := o.Assigned.Services[view.Ref{Namespace: "default", Name: "a"}].Addresses; !slices.Equal(got, parse("192.0.2.8")) {
			t.Errorf("step %d: it has %v", i, got)
		}
	}
}
