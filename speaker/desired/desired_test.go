package desired_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func ips(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, s := range texts {
		list = append(list, ip(s))
	}
	return list
}

func targets(texts ...string) []netip.AddrPort {
	var list []netip.AddrPort
	for _, s := range texts {
		list = append(list, netip.MustParseAddrPort(s))
	}
	return list
}

var http8080 = []view.EndpointPort{{Name: "http", Protocol: view.TCP, Port: 8080}}

func endpoint(address, node string, change ...func(*view.Endpoint)) view.Endpoint {
	e := view.Endpoint{Addr: ip(address), Node: node, Ready: true, Serving: true, Ports: http8080}
	for _, c := range change {
		c(&e)
	}
	return e
}

func terminating(e *view.Endpoint) { e.Ready, e.Terminating = false, true }
func dead(e *view.Endpoint)        { e.Ready, e.Serving = false, false }
func forZones(z ...string) func(*view.Endpoint) {
	return func(e *view.Endpoint) { hinted(e).ForZones = z }
}

func forNodes(n ...string) func(*view.Endpoint) {
	return func(e *view.Endpoint) { hinted(e).ForNodes = n }
}

func hinted(e *view.Endpoint) *view.Hints {
	if e.Hints == nil {
		e.Hints = &view.Hints{}
	}
	return e.Hints
}

var web = view.Ref{Namespace: "shop", Name: "web"}

func service(change ...func(*view.Service)) *view.Service {
	s := &view.Service{
		Ref: web, Type: view.LoadBalancer, Families: []addr.Family{addr.IPv4},
		ClusterIPs: ips("10.96.0.7", "fd00:96::7"), VIPs: ips("192.0.2.10", "2001:db8::10"),
		Ports: []view.ServicePort{{Name: "http", Protocol: view.TCP, Port: 80, NodePort: 30080}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func local(s *view.Service) { s.ExternalLocal = true }

// cluster has nodes a, b and c (zones z-a …), all ready and with a speaker, a pool
// of each announcing kind and one peer.
func cluster(s *view.Service, endpoints ...view.Endpoint) *view.Cluster {
	c := &view.Cluster{
		Services:  map[view.Ref]*view.Service{s.Ref: s},
		Endpoints: new(view.Endpoints).With(map[view.Ref][]view.Endpoint{s.Ref: endpoints}),
		Nodes:     map[string]*view.Node{},
		Pools: map[string]*view.Pool{
			"all": {Name: "all", Labels: map[string]string{"tier": "front"}, Ranges: ranges("192.0.2.0/24", "2001:db8::/64")},
		},
		L2Advertisements:  map[string]*view.L2Advertisement{"l2": {Name: "l2"}},
		BGPAdvertisements: map[string]*view.BGPAdvertisement{"bgp": {Name: "bgp"}},
		BGPPeers: map[string]*view.BGPPeer{"tor": {
			Name: "tor", MyASN: 64500, PeerASN: 64512, PeerAddress: ip("198.51.100.1"), PeerPort: 179, HoldTime: 90 * time.Second,
		}},
	}
	for i, name := range []string{"a", "b", "c"} {
		c.Nodes[name] = &view.Node{
			Name: name, Ready: true, Labels: map[string]string{"topology.kubernetes.io/zone": "z-" + name},
			Addresses: []netip.Addr{
				netip.AddrFrom4([4]byte{198, 51, 100, byte(11 + i)}), netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0xff, 15: byte(11 + i)}),
			},
			PodCIDRs: []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 1, 0, byte(i)}), 48),
			},
		}
	}
	return c
}

func onNode(name string) desired.Options { return desired.Options{Node: name} }

func port(t *testing.T, c *view.Cluster, node string, family addr.Family) desired.Port {
	t.Helper()
	got, _ := fresh(c, onNode(node))
	p, ok := got.Forwarding.Ports[desired.PortKey{Service: web, Name: "http", Protocol: view.TCP, Family: family}]
	if !ok {
		t.Fatalf("no forwarding for %s http %s on node %s", web, family, node)
	}
	return p
}

func TestEndpointsOfAServicePort(t *testing.T) {
	for name, test := range map[string]struct {
		endpoints      []view.Endpoint
		cluster, local []netip.AddrPort
		anywhere       bool
	}{
		"ready ones everywhere, local ones apart": {
			endpoints: []view.Endpoint{endpoint("10.0.0.2", "b"), endpoint("10.0.0.1", "a")},
			cluster:   targets("10.0.0.1:8080", "10.0.0.2:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"none": {},
		"dead ones are none": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", dead)},
		},
		"terminating ones while none is ready": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", terminating), endpoint("10.0.0.2", "b", terminating)},
			cluster:   targets("10.0.0.1:8080", "10.0.0.2:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"local and cluster fall back apart": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", terminating), endpoint("10.0.0.2", "b")},
			cluster:   targets("10.0.0.2:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"an address used again counts as its living owner": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "b", terminating), endpoint("10.0.0.1", "a")},
			cluster:   targets("10.0.0.1:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"zone hints that are complete": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", forZones("z-a")), endpoint("10.0.0.2", "b", forZones("z-b"))},
			cluster:   targets("10.0.0.1:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"one endpoint without a hint undoes them": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", forZones("z-a")), endpoint("10.0.0.2", "b")},
			cluster:   targets("10.0.0.1:8080", "10.0.0.2:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"node hints go before zone hints": {
			endpoints: []view.Endpoint{
				endpoint("10.0.0.1", "b", forZones("z-a"), forNodes("a")), endpoint("10.0.0.2", "b", forZones("z-a"), forNodes("b")),
			},
			cluster: targets("10.0.0.1:8080"), anywhere: true,
		},
		"node hints for others fall to zones": {
			endpoints: []view.Endpoint{
				endpoint("10.0.0.1", "b", forZones("z-a"), forNodes("b")), endpoint("10.0.0.2", "b", forZones("z-b"), forNodes("b")),
			},
			cluster: targets("10.0.0.1:8080"), anywhere: true,
		},
		"one that terminates and is called ready, as with publishNotReadyAddresses, is": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", func(e *view.Endpoint) { e.Terminating = true }), endpoint("10.0.0.2", "b")},
			cluster:   targets("10.0.0.1:8080", "10.0.0.2:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"an endpoint of no node is local nowhere": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "")},
			cluster:   targets("10.0.0.1:8080"), anywhere: true,
		},
		"only ready endpoints need hints": {
			endpoints: []view.Endpoint{
				endpoint("10.0.0.1", "a", forZones("z-a")), endpoint("10.0.0.2", "b", forZones("z-b")), endpoint("10.0.0.3", "c", terminating),
			},
			cluster: targets("10.0.0.1:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"hints do not hold for terminating ones": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "b", terminating, forZones("z-a")), endpoint("10.0.0.2", "c", terminating, forZones("z-c"))},
			cluster:   targets("10.0.0.1:8080", "10.0.0.2:8080"), anywhere: true,
		},
		"the local set knows no hints": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", forZones("z-b")), endpoint("10.0.0.2", "b", forZones("z-a"))},
			cluster:   targets("10.0.0.2:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"hints for other zones alone are none": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "b", forZones("z-b")), endpoint("10.0.0.2", "c", forZones("z-c"))},
			cluster:   targets("10.0.0.1:8080", "10.0.0.2:8080"), anywhere: true,
		},
		"one node hint of two undoes them": {
			endpoints: []view.Endpoint{
				endpoint("10.0.0.1", "a", forZones("z-a"), forNodes("a")), endpoint("10.0.0.2", "b", forZones("z-a")),
			},
			cluster: targets("10.0.0.1:8080", "10.0.0.2:8080"), local: targets("10.0.0.1:8080"), anywhere: true,
		},
		"a port of another name or protocol is not ours": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", func(e *view.Endpoint) {
				e.Ports = []view.EndpointPort{{Name: "http", Protocol: view.UDP, Port: 1}, {Name: "x", Protocol: view.TCP, Port: 2}}
			})},
		},
		"endpoints with ports of their own": {
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a"), endpoint("10.0.0.1", "a", func(e *view.Endpoint) {
				e.Ports = []view.EndpointPort{{Name: "http", Protocol: view.TCP, Port: 9090}}
			})},
			cluster: targets("10.0.0.1:8080", "10.0.0.1:9090"), local: targets("10.0.0.1:8080", "10.0.0.1:9090"), anywhere: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := port(t, cluster(service(), test.endpoints...), "a", addr.IPv4)
			if diff := cmp.Diff(test.cluster, got.Cluster, compare); diff != "" {
				t.Errorf("cluster set (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.local, got.Local, compare); diff != "" {
				t.Errorf("local set (-want +got):\n%s", diff)
			}
			if got.Anywhere != test.anywhere {
				t.Errorf("Anywhere = %v, want %v", got.Anywhere, test.anywhere)
			}
		})
	}
}

func TestANodeWithoutAZoneFollowsNoZoneHints(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a", forZones("")), endpoint("10.0.0.2", "b", forZones("z-b")))
	c.Nodes["a"].Labels = nil
	if got, want := port(t, c, "a", addr.IPv4).Cluster, targets("10.0.0.1:8080", "10.0.0.2:8080"); !slices.Equal(got, want) {
		t.Errorf("endpoints %v, want %v", got, want)
	}
}

// Whoever is asked for a family that nobody forwards asks at each pass.
func TestTheFamiliesThatAreThereAreCounted(t *testing.T) {
	both, _ := fresh(cluster(service()), onNode("a"))
	one, _ := fresh(cluster(service(func(s *view.Service) { s.ClusterIPs = s.ClusterIPs[:1] })), onNode("a"))
	for name, test := range map[string]struct {
		forwarding desired.Forwarding
		v4, v6     bool
	}{
		"both": {both.Forwarding, true, true}, "one": {one.Forwarding, true, false},
		"nobody counts":      {desired.Forwarding{Ports: one.Forwarding.Ports}, true, false},
		"the count is heard": {desired.Forwarding{Ports: both.Forwarding.Ports, Count: map[addr.Family]int{addr.IPv6: 1}}, false, true},
	} {
		if v4, v6 := test.forwarding.Has(addr.IPv4), test.forwarding.Has(addr.IPv6); v4 != test.v4 || v6 != test.v6 {
			t.Errorf("%s: IPv4 %v, IPv6 %v, want %v and %v", name, v4, v6, test.v4, test.v6)
		}
	}
}

func TestForwardingOfEachFamily(t *testing.T) {
	s := service(local, func(s *view.Service) {
		s.ExternalIPs = ips("203.0.113.9")
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	c := cluster(s, endpoint("10.0.0.1", "a"), endpoint("fd00::1", "b"))
	want4 := desired.Port{
		ClusterIP: ip("10.96.0.7"), ExternalIPs: ips("203.0.113.9"), VIPs: ips("192.0.2.10"), Port: 80, NodePort: 30080,
		Cluster: targets("10.0.0.1:8080"), Local: targets("10.0.0.1:8080"), Serving: targets("10.0.0.1:8080"), Listed: targets("10.0.0.1:8080"),
		Anywhere: true, ExternalLocal: true, Announced: ips("192.0.2.10"),
		SourceRanges: s.SourceRanges, Restricted: true,
	}
	if diff := cmp.Diff(want4, port(t, c, "a", addr.IPv4), compare); diff != "" {
		t.Errorf("IPv4 (-want +got):\n%s", diff)
	}
	want6 := desired.Port{
		ClusterIP: ip("fd00:96::7"), VIPs: ips("2001:db8::10"), Port: 80, NodePort: 30080,
		Cluster: targets("[fd00::1]:8080"), Serving: targets("[fd00::1]:8080"), Listed: targets("[fd00::1]:8080"), Anywhere: true, ExternalLocal: true, Announced: ips("2001:db8::10"),
		Restricted: true, // ranges of the other family alone admit nobody
	}
	if diff := cmp.Diff(want6, port(t, c, "a", addr.IPv6), compare); diff != "" {
		t.Errorf("IPv6 (-want +got):\n%s", diff)
	}
}

func TestARangeOverTheWholeFamilyLiftsTheRestriction(t *testing.T) {
	s := service(func(s *view.Service) {
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/0")}
	})
	if p := port(t, cluster(s), "a", addr.IPv4); p.Restricted || p.SourceRanges != nil {
		t.Errorf("restricted to %v, want everybody", p.SourceRanges)
	}
}

// A VIP may be bound on the node, too; what the node then sends to it comes from it.
func TestRangesWithTheNodeHaveItsVIPs(t *testing.T) {
	ranges := []netip.Prefix{netip.MustParsePrefix("198.51.100.11/32"), netip.MustParsePrefix("2001:db8:9::/48")}
	c := cluster(service(func(s *view.Service) { s.SourceRanges = ranges }))
	for node, want := range map[string][]netip.Prefix{
		"a": {netip.MustParsePrefix("192.0.2.10/32"), ranges[0]}, // it is 198.51.100.11
		"b": ranges[:1],
	} {
		if got := port(t, c, node, addr.IPv4); !slices.Equal(got.SourceRanges, want) {
			t.Errorf("node %s: %v, want %v", node, got.SourceRanges, want)
		}
		if got := port(t, c, node, addr.IPv6); !slices.Equal(got.SourceRanges, ranges[1:]) {
			t.Errorf("node %s: %v, want %v", node, got.SourceRanges, ranges[1:])
		}
	}
}

// The label takes the Service from us as its proxy, not as its load balancer.
func TestServicesOfAnotherProxyAreAnnouncedAndNotForwarded(t *testing.T) {
	ours, _ := fresh(cluster(service(), endpoint("10.0.0.1", "a")), onNode("a"))
	got, _ := fresh(cluster(service(func(s *view.Service) { s.ProxiedElsewhere = true }), endpoint("10.0.0.1", "a")), onNode("a"))
	if len(got.Forwarding.Ports) != 0 || len(ours.Forwarding.Ports) == 0 {
		t.Errorf("forwarded all the same: %+v", got.Forwarding.Ports)
	}
	if len(got.Forwarding.Foreign) != 1 || len(ours.Forwarding.Foreign) != 0 {
		t.Errorf("of another proxy are %v, want the Service; our own %v, want none", got.Forwarding.Foreign, ours.Forwarding.Foreign)
	}
	if diff := cmp.Diff(ours.Layer2, got.Layer2, compare); diff != "" || len(got.Layer2) == 0 {
		t.Errorf("layer 2 (-our own Service +that of another proxy):\n%s", diff)
	}
	if diff := cmp.Diff(ours.BGP["tor"].Routes, got.BGP["tor"].Routes, compare); diff != "" || len(got.BGP["tor"].Routes) == 0 {
		t.Errorf("routes (-our own Service +that of another proxy):\n%s", diff)
	}
}

func TestPodsAreTheNodesPodCIDRsUnlessSaid(t *testing.T) {
	c := cluster(service())
	got, _ := fresh(c, onNode("a"))
	want := []netip.Prefix{
		netip.MustParsePrefix("10.244.0.0/23"), netip.MustParsePrefix("10.244.2.0/24"),
		netip.MustParsePrefix("fd00:1::/47"), netip.MustParsePrefix("fd00:1:2::/48"),
	}
	if diff := cmp.Diff(want, got.Forwarding.Pods, compare); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	said := prefixes("10.0.0.0/8", "fd00::/32")
	got, _ = fresh(c, desired.Options{Node: "a", Pods: desired.PodDetection{ClusterCIDRs: said}})
	if diff := cmp.Diff(said, got.Forwarding.Pods, compare); diff != "" {
		t.Errorf("pods as said (-want +got):\n%s", diff)
	}
}

// Who may answer for 192.0.2.10, and who announces it by BGP.
func TestWhoAnnounces(t *testing.T) {
	everywhere := []view.Endpoint{endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"), endpoint("10.0.0.3", "c")}
	for name, test := range map[string]struct {
		service   *view.Service
		endpoints []view.Endpoint
		change    func(*view.Cluster)
		layer2    []string // sorted
		bgp       []string
	}{
		"every node under policy Cluster": {
			service: service(), endpoints: everywhere[:1], layer2: []string{"a", "b", "c"}, bgp: []string{"a", "b", "c"},
		},
		"nobody without an endpoint": {service: service()},
		"nodes with an endpoint under policy Local": {
			service: service(local), endpoints: everywhere[:2], layer2: []string{"a", "b"}, bgp: []string{"a", "b"},
		},
		"a terminating endpoint counts while another node has a ready one": {
			service: service(local), endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", terminating), endpoint("10.0.0.2", "b")},
			layer2: []string{"a", "b"}, bgp: []string{"a", "b"},
		},
		"a terminating endpoint counts when it is all there is": {
			service: service(local), endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", terminating)},
			layer2: []string{"a"}, bgp: []string{"a"},
		},
		"an endpoint of the other family does not count": {
			service: service(local), endpoints: []view.Endpoint{endpoint("fd00::1", "a")},
		},
		"no node that is excluded or without network": {
			service: service(), endpoints: everywhere,
			change: func(c *view.Cluster) { c.Nodes["a"].Excluded, c.Nodes["b"].NetworkUnavailable = true, true },
			layer2: []string{"c"}, bgp: []string{"c"},
		},
		"no node that an autoscaler is about to delete": {
			service: service(), endpoints: everywhere,
			change: func(c *view.Cluster) { c.Nodes["a"].Condemned = true },
			layer2: []string{"b", "c"}, bgp: []string{"b", "c"},
		},
		"no Service of another class": {
			service: service(func(s *view.Service) { s.Class = "example.com/other" }), endpoints: everywhere,
		},
		"no address outside of every pool": {
			service: service(), endpoints: everywhere, change: func(c *view.Cluster) { clear(c.Pools) },
		},
		"an address that an edit took out of its pool, as long as its status has it": {
			service: service(), endpoints: everywhere, change: func(c *view.Cluster) {
				for _, p := range c.Pools {
					p.Former, p.Ranges = p.Ranges, nil
				}
			},
			layer2: []string{"a", "b", "c"}, bgp: []string{"a", "b", "c"},
		},
		"advertisements select pools by label": {
			service: service(), endpoints: everywhere,
			change: func(c *view.Cluster) {
				c.L2Advertisements["l2"].Pools.Selectors = []view.Selector{has("tier", "front")}
				c.BGPAdvertisements["bgp"].Pools.Selectors = []view.Selector{has("tier", "back")}
			},
			layer2: []string{"a", "b", "c"},
		},
		"advertisements select pools by name, nodes and Services by label": {
			service: service(func(s *view.Service) { s.Labels = map[string]string{"app": "web"} }), endpoints: everywhere,
			change: func(c *view.Cluster) {
				ad := c.L2Advertisements["l2"]
				ad.Pools.Names = []string{"all"}
				ad.NodeSelectors = []view.Selector{has("topology.kubernetes.io/zone", "z-b")}
				ad.ServiceSelectors = []view.Selector{has("app", "web")}
				c.BGPAdvertisements["bgp"].ServiceSelectors = []view.Selector{has("app", "db")}
			},
			layer2: []string{"b"},
		},
		"an advertisement for other peers is not for this one": {
			service: service(), endpoints: everywhere,
			change: func(c *view.Cluster) { c.BGPAdvertisements["bgp"].Peers = []string{"other"} },
			layer2: []string{"a", "b", "c"},
		},
		"two Services on one address need a node that serves both": {
			service: service(local), endpoints: everywhere[:2],
			change: func(c *view.Cluster) {
				second := service(local)
				second.Name = "second"
				c.Services[second.Ref] = second
				c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{
					second.Ref: {endpoint("10.0.1.2", "b"), endpoint("10.0.1.3", "c")},
				})
			},
			layer2: []string{"b"}, bgp: []string{"b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(test.service, test.endpoints...)
			if test.change != nil {
				test.change(c)
			}
			var layer2, bgp []string
			for _, node := range []string{"a", "b", "c"} {
				got, _ := fresh(c, onNode(node))
				if claim, ok := got.Layer2[ip("192.0.2.10")]; ok {
					layer2 = append(layer2, node)
					if !slices.Contains(claim.Candidates, node) {
						t.Errorf("%s has a claim whose candidates are %v", node, claim.Candidates)
					}
				}
				if _, ok := got.BGP["tor"].Routes[netip.MustParsePrefix("192.0.2.10/32")]; ok {
					bgp = append(bgp, node)
				}
			}
			if diff := cmp.Diff(test.layer2, layer2, compare); diff != "" {
				t.Errorf("layer 2 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.bgp, bgp, compare); diff != "" {
				t.Errorf("BGP (-want +got):\n%s", diff)
			}
		})
	}
}

// A dual-stack Service may have its pods of a family on other nodes than those of the
// other, and each address is for the nodes that serve its own.
func TestEachFamilyIsClaimedByWhoServesIt(t *testing.T) {
	local := func(s *view.Service) { s.ExternalLocal = true }
	c := cluster(service(local), endpoint("10.0.0.1", "a"), endpoint("fd00::1", "b"))
	claimed := map[string][]string{}
	for _, node := range []string{"a", "b", "c"} {
		got, _ := fresh(c, onNode(node))
		for address, claim := range got.Layer2 {
			claimed[address.String()] = append(claimed[address.String()], node)
			if !slices.Equal(claim.Candidates, []string{node}) {
				t.Errorf("%s has a claim of %s whose candidates are %v", node, address, claim.Candidates)
			}
		}
	}
	want := map[string][]string{"192.0.2.10": {"a"}, "2001:db8::10": {"b"}}
	if diff := cmp.Diff(want, claimed); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestNodesThatAreNotReadyComeLast(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	got, _ := fresh(c, onNode("a"))
	first := got.Layer2[ip("192.0.2.10")].Candidates[0]
	c.Nodes[first].Ready = false
	for node := range c.Nodes {
		got, _ := fresh(c, onNode(node))
		candidates := got.Layer2[ip("192.0.2.10")].Candidates
		if len(candidates) != 3 || candidates[2] != first {
			t.Errorf("on %s: candidates %v, want %s last", node, candidates, first)
		}
	}
}

// TestWhoseInterfacesAreNamed: all nodes say the same of it, those as well of which none are.
func TestWhoseInterfacesAreNamed(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	zone := func(name string) []view.Selector { return []view.Selector{has("topology.kubernetes.io/zone", name)} }
	c.L2Advertisements = map[string]*view.L2Advertisement{
		"a": {Name: "a", NodeSelectors: zone("z-a")},
		"b": {Name: "b", NodeSelectors: zone("z-b"), Interfaces: []string{"eth2"}},
		"c": {Name: "c", NodeSelectors: zone("z-c"), Interfaces: []string{"eth2"}},
		"d": {Name: "d", NodeSelectors: zone("z-c")}, // which allows all of them
	}
	for _, node := range []string{"a", "b", "c"} {
		got, _ := fresh(c, onNode(node))
		if named := got.Layer2[ip("192.0.2.10")].Named; !slices.Equal(named, []string{"b"}) {
			t.Errorf("on %s the interfaces of %v are said to be named", node, named)
		}
	}
}

func TestInterfacesAreTheUnionOfTheAdvertisementsForThisNode(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	c.L2Advertisements = map[string]*view.L2Advertisement{
		"one":   {Name: "one", Interfaces: []string{"eth1", "eth0"}},
		"two":   {Name: "two", Interfaces: []string{"eth1"}},
		"other": {Name: "other", NodeSelectors: []view.Selector{has("topology.kubernetes.io/zone", "z-b")}},
	}
	for node, want := range map[string][]string{"a": {"eth0", "eth1"}, "b": nil} {
		got, _ := fresh(c, onNode(node))
		if names := got.Layer2[ip("192.0.2.10")].Interfaces; !slices.Equal(names, want) {
			t.Errorf("on %s: interfaces %v, want %v", node, names, want)
		}
	}
}

// An advertisement that has an address never announced again takes nothing from another one.
func TestTheShortestAnnounceIntervalOfTheAdvertisementsForThisNodeCounts(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	zone := func(node string) []view.Selector {
		return []view.Selector{has("topology.kubernetes.io/zone", "z-"+node)}
	}
	c.L2Advertisements = map[string]*view.L2Advertisement{
		"never":  {Name: "never"},
		"long":   {Name: "long", NodeSelectors: append(zone("a"), zone("b")...), AnnounceInterval: time.Hour},
		"short":  {Name: "short", NodeSelectors: zone("b"), AnnounceInterval: 5 * time.Second},
		"middle": {Name: "middle", NodeSelectors: zone("b"), AnnounceInterval: time.Minute},
		"others": {Name: "others", ServiceSelectors: []view.Selector{has("app", "other")}, AnnounceInterval: time.Second},
	}
	for node, want := range map[string]time.Duration{"a": time.Hour, "b": 5 * time.Second, "c": 0} {
		got, _ := fresh(c, onNode(node))
		if claim, ok := got.Layer2[ip("192.0.2.10")]; !ok || claim.AnnounceInterval != want {
			t.Errorf("on %s: announced again every %v, want %v", node, claim.AnnounceInterval, want)
		}
	}
}

func TestSessions(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	c.BGPAdvertisements = map[string]*view.BGPAdvertisement{
		"one": {Name: "one", LocalPref: 100, Communities: []uint32{7, 9}},
		"two": {Name: "two", LocalPref: 200, Communities: []uint32{7, 8}},
	}
	c.BGPPeers["zone-b"] = &view.BGPPeer{Name: "zone-b", NodeSelectors: []view.Selector{has("topology.kubernetes.io/zone", "z-b")}}
	broken := problem.New(problem.Object{Kind: "BGPPeer", Name: "no-secret"}, "SecretMissing", "…")
	c.BGPPeers["no-secret"] = &view.BGPPeer{Name: "no-secret", Unusable: &broken}

	got, problems := fresh(c, onNode("a"))
	if names := slices.Sorted(maps.Keys(got.BGP)); !slices.Equal(names, []string{"tor"}) {
		t.Fatalf("sessions %v, want that of tor alone", names)
	}
	if !slices.Equal(problems, []problem.Problem{broken}) {
		t.Errorf("problems %v, want the missing Secret", problems)
	}
	session := got.BGP["tor"]
	if session.Identity.RouterID != ip("198.51.100.11") {
		t.Errorf("router ID %s, want the node's own address", session.Identity.RouterID)
	}
	want := map[netip.Prefix]desired.RouteAttrs{
		netip.MustParsePrefix("192.0.2.10/32"): {LocalPref: 200, Communities: []uint32{7, 8, 9}},
	}
	if diff := cmp.Diff(want, session.Routes, compare); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

func TestTheMeshIsEveryOtherNode(t *testing.T) {
	c := cluster(service())
	c.HelloKey = "k"
	c.Speakers = map[string]view.Speaker{"b": {Node: "b", Ready: true}}
	got, _ := fresh(c, onNode("a"))
	want := desired.Mesh{Key: "k", Peers: map[string]desired.Peer{
		"b": {Addrs: ips("198.51.100.12", "2001:db8:ff00::c"), Ready: true}, "c": {Addrs: ips("198.51.100.13", "2001:db8:ff00::d")},
	}}
	if diff := cmp.Diff(want, got.Mesh, compare); diff != "" {
		t.Errorf("mesh (-want +got):\n%s", diff)
	}
}
