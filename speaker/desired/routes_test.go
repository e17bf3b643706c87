package desired_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// aggregated is an advertisement of prefixes so long.
func aggregated(name string, v4, v6 int) *view.BGPAdvertisement {
	return &view.BGPAdvertisement{Name: name, AggregationLength: map[addr.Family]int{addr.IPv4: v4, addr.IPv6: v6}}
}

func TestAggregates(t *testing.T) {
	second := service(func(s *view.Service) {
		s.Name, s.VIPs = "second", ips("192.0.2.77", "192.0.2.200")
	})
	for name, test := range map[string]struct {
		ads    []*view.BGPAdvertisement
		change func(*view.Cluster)
		want   map[string][]netip.Addr // addresses of aggregates, nil for a single address
	}{
		"one route for all addresses within": {
			ads:  []*view.BGPAdvertisement{aggregated("bgp", 24, 64)},
			want: map[string][]netip.Addr{"192.0.2.0/24": ips("192.0.2.10", "192.0.2.77", "192.0.2.200"), "2001:db8::/64": ips("2001:db8::10")},
		},
		"a length that divides them": {
			ads:  []*view.BGPAdvertisement{aggregated("bgp", 25, 128)},
			want: map[string][]netip.Addr{"192.0.2.0/25": ips("192.0.2.10", "192.0.2.77"), "192.0.2.128/25": ips("192.0.2.200"), "2001:db8::10/128": nil},
		},
		"shorter than the pool": {
			ads:  []*view.BGPAdvertisement{aggregated("bgp", 23, 48)},
			want: map[string][]netip.Addr{"192.0.2.10/32": nil, "192.0.2.77/32": nil, "192.0.2.200/32": nil, "2001:db8::10/128": nil},
		},
		"a pool of two halves is whole": {
			ads: []*view.BGPAdvertisement{aggregated("bgp", 24, 0)},
			change: func(c *view.Cluster) {
				c.Pools["all"].Ranges = ranges("192.0.2.0-192.0.2.255", "2001:db8::/64")
			},
			want: map[string][]netip.Addr{"192.0.2.0/24": ips("192.0.2.10", "192.0.2.77", "192.0.2.200"), "2001:db8::10/128": nil},
		},
		"of a pool that lacks the first address": {
			ads: []*view.BGPAdvertisement{aggregated("bgp", 25, 0)},
			change: func(c *view.Cluster) {
				c.Pools["all"].Ranges = ranges("192.0.2.1-192.0.2.255", "2001:db8::/64")
			},
			want: map[string][]netip.Addr{"192.0.2.10/32": nil, "192.0.2.77/32": nil, "192.0.2.128/25": ips("192.0.2.200"), "2001:db8::10/128": nil},
		},
		"two lengths make two routes": {
			ads: []*view.BGPAdvertisement{aggregated("bgp", 32, 128), aggregated("short", 24, 128)},
			want: map[string][]netip.Addr{
				"192.0.2.0/24": ips("192.0.2.10", "192.0.2.77", "192.0.2.200"), "2001:db8::10/128": nil,
				"192.0.2.10/32": nil, "192.0.2.77/32": nil, "192.0.2.200/32": nil,
			},
		},
		"as long as one address is to be announced": {
			ads:    []*view.BGPAdvertisement{aggregated("bgp", 24, 64)},
			change: func(c *view.Cluster) { delete(c.Services, web) },
			want:   map[string][]netip.Addr{"192.0.2.0/24": ips("192.0.2.77", "192.0.2.200")},
		},
		"none when there is none": {
			ads: []*view.BGPAdvertisement{aggregated("bgp", 24, 64)},
			change: func(c *view.Cluster) {
				for ref := range c.Services {
					c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref: nil})
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(service(), endpoint("10.0.0.1", "a"), endpoint("fd00::1", "b"))
			c.Services[second.Ref] = second
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{second.Ref: {endpoint("10.0.0.2", "b")}})
			clear(c.BGPAdvertisements)
			for _, ad := range test.ads {
				c.BGPAdvertisements[ad.Name] = ad
			}
			if test.change != nil {
				test.change(c)
			}
			got, _ := fresh(c, onNode("a"))
			session := got.BGP["tor"]
			have := map[string][]netip.Addr{}
			for prefix := range session.Routes {
				have[prefix.String()] = session.Aggregates[prefix]
			}
			if diff := cmp.Diff(test.want, have, compare); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

// What one advertisement leaves out, another one says; of what several say, that holds
// which routers like best.
func TestAdvertisementsOfOneRoute(t *testing.T) {
	large := func(n uint32) view.LargeCommunity { return view.LargeCommunity{Global: 64500, Local1: 1, Local2: n} }
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	c.BGPAdvertisements = map[string]*view.BGPAdvertisement{
		"silent": {Name: "silent"},
		"one":    {Name: "one", LocalPref: 100, MED: new(uint32(20)), Prepend: 3, Communities: []uint32{7, 9}, LargeCommunities: []view.LargeCommunity{large(2)}},
		"two":    {Name: "two", LocalPref: 200, MED: new(uint32(10)), Prepend: 1, Communities: []uint32{7, 8}, LargeCommunities: []view.LargeCommunity{large(1), large(2)}},
		"other":  {Name: "other", LocalPref: 999, MED: new(uint32(0)), Prepend: 1, Peers: []string{"elsewhere"}},
	}
	want := map[netip.Prefix]desired.RouteAttrs{netip.MustParsePrefix("192.0.2.10/32"): {
		LocalPref: 200, MED: new(uint32(10)), Prepend: 1,
		Communities: []uint32{7, 8, 9}, LargeCommunities: []view.LargeCommunity{large(1), large(2)},
	}}
	for range 10 { // maps come in any order
		got, _ := fresh(c, onNode("a"))
		if diff := cmp.Diff(want, got.BGP["tor"].Routes, compare); diff != "" {
			t.Fatalf("routes (-want +got):\n%s", diff)
		}
	}
}

// TestAdvertisementsOfSomeNodes has each node announce what the advertisements for it say, over
// sessions that all of them have: none, of what is for another node.
func TestAdvertisementsOfSomeNodes(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	zone := func(z string) view.Selector { return has("topology.kubernetes.io/zone", z) }
	c.BGPAdvertisements = map[string]*view.BGPAdvertisement{
		"near":   {Name: "near", LocalPref: 200, NodeSelectors: []view.Selector{zone("z-a")}},
		"either": {Name: "either", LocalPref: 100, NodeSelectors: []view.Selector{zone("z-b"), zone("z-a")}},
	}
	for node, want := range map[string]map[netip.Prefix]desired.RouteAttrs{
		"a": {netip.MustParsePrefix("192.0.2.10/32"): {LocalPref: 200}},
		"b": {netip.MustParsePrefix("192.0.2.10/32"): {LocalPref: 100}},
		"c": nil,
	} {
		got, _ := fresh(c, onNode(node))
		session, there := got.BGP["tor"]
		if diff := cmp.Diff(want, session.Routes, compare); diff != "" || !there {
			t.Errorf("routes of %s, which has a session: %t (-want +got):\n%s", node, there, diff)
		}
	}
}

// Whatever the lengths: each address that is to be announced is within a route, each
// route has such an address and no address outside of the pool.
func TestAggregatesLeadToWhatIsServedAndNowhereElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := byte(rapid.IntRange(0, 255).Draw(t, "from")), byte(rapid.IntRange(0, 255).Draw(t, "to"))
		if from > to {
			from, to = to, from
		}
		first, last := netip.AddrFrom4([4]byte{192, 0, 2, from}), netip.AddrFrom4([4]byte{192, 0, 2, to})
		vips := rapid.SliceOfNDistinct(rapid.ByteRange(from, to), 0, 4, rapid.ID).Draw(t, "vips")
		s := service(func(s *view.Service) { s.VIPs = nil })
		for _, n := range vips {
			s.VIPs = append(s.VIPs, netip.AddrFrom4([4]byte{192, 0, 2, n}))
		}
		c := cluster(s, endpoint("10.0.0.1", "a"))
		c.Pools["all"].Ranges = ranges(first.String() + "-" + last.String())
		clear(c.BGPAdvertisements)
		for _, name := range []string{"one", "two"}[:rapid.IntRange(1, 2).Draw(t, "advertisements")] {
			c.BGPAdvertisements[name] = aggregated(name, rapid.IntRange(22, 32).Draw(t, name), 0)
		}
		got, _ := fresh(c, onNode("a"))
		session := got.BGP["tor"]
		for _, vip := range s.VIPs {
			within := func(p netip.Prefix) bool { return slices.Contains(session.Addresses(p), vip) && p.Contains(vip) }
			found := false
			for prefix := range session.Routes {
				found = found || within(prefix)
			}
			if !found {
				t.Fatalf("no route of %v is for %s", session.Routes, vip)
			}
		}
		for prefix := range session.Routes {
			for _, address := range session.Addresses(prefix) {
				if !slices.Contains(s.VIPs, address) {
					t.Fatalf("%s is for %s, which nobody has", prefix, address)
				}
			}
			if prefix != prefix.Masked() || prefix.Addr().Less(first) || prefix.Bits() < 24 {
				t.Fatalf("%s is not of the pool %s-%s", prefix, first, last)
			}
			if end := prefix.Addr().As4(); int(end[3])+1<<(32-prefix.Bits())-1 > int(to) {
				t.Fatalf("%s goes beyond the pool %s-%s", prefix, first, last)
			}
		}
	})
}

// TestBandwidthFollowsEndpoints has a route tell how much the endpoints of this node can take:
// under policy Local those that are here, of several Services the fewest; else that of one.
func TestBandwidthFollowsEndpoints(t *testing.T) {
	here := []view.Endpoint{endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "a"), endpoint("10.0.0.3", "a"), endpoint("10.0.0.4", "b")}
	for name, test := range map[string]struct {
		change    func(*view.Service)
		endpoints []view.Endpoint
		beside    []view.Endpoint // of another Service of policy Local on the address; nil: none
		node      string
		want      uint32
	}{
		"three here":                         {local, here, nil, "a", 3000},
		"one here":                           {local, here, nil, "b", 1000},
		"one that two slices list":           {local, append(here, here[3]), nil, "b", 1000},
		"one of three is not ready":          {local, append(here[:2:2], endpoint("10.0.0.3", "a", dead)), nil, "a", 2000},
		"all terminate":                      {local, []view.Endpoint{endpoint("10.0.0.1", "a", terminating), endpoint("10.0.0.2", "a", terminating)}, nil, "a", 2000},
		"policy Cluster":                     {func(*view.Service) {}, here, nil, "a", 1000},
		"policy Cluster and nothing is here": {func(*view.Service) {}, here, nil, "c", 1000},
		"another Service has fewer":          {local, here, here[:2], "a", 2000},
		"another Service has none anywhere":  {local, here, []view.Endpoint{}, "a", 3000},
	} {
		s := service(test.change)
		c := cluster(s, test.endpoints...)
		if test.beside != nil {
			other := service(local, func(s *view.Service) { s.Name = "beside" })
			c.Services[other.Ref] = other
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{other.Ref: test.beside})
		}
		c.BGPAdvertisements["bgp"].EndpointBandwidth = 1000
		c.BGPAdvertisements["less"] = &view.BGPAdvertisement{Name: "less", EndpointBandwidth: 10}
		c.BGPAdvertisements["none"] = &view.BGPAdvertisement{Name: "none"}
		got, _ := fresh(c, onNode(test.node))
		if attrs, ok := got.BGP["tor"].Routes[netip.MustParsePrefix("192.0.2.10/32")]; !ok || attrs.Bandwidth != test.want {
			t.Errorf("%s: %d Mbit/s (announced: %t), want %d", name, attrs.Bandwidth, ok, test.want)
		}
	}
}

// TestWithoutEndpoints: what nobody serves is announced by every node, where an advertisement
// says so, and what somebody serves by those that do.
func TestWithoutEndpoints(t *testing.T) {
	anywhere := func(*view.Service) {}
	for name, test := range map[string]struct {
		change    func(*view.Service)
		endpoints []view.Endpoint
		without   bool
		node      string
		want      bool
	}{
		"none, and nobody asked for it":         {anywhere, nil, false, "a", false},
		"none":                                  {anywhere, nil, true, "a", true},
		"none, policy Local":                    {local, nil, true, "b", true},
		"one that is dead":                      {local, []view.Endpoint{endpoint("10.0.0.1", "a", dead)}, true, "b", true},
		"one elsewhere, policy Local":           {local, []view.Endpoint{endpoint("10.0.0.1", "a")}, true, "b", false},
		"one that terminates and serves":        {local, []view.Endpoint{endpoint("10.0.0.1", "a", terminating)}, true, "a", true},
		"one that terminates elsewhere, Local":  {local, []view.Endpoint{endpoint("10.0.0.1", "a", terminating)}, true, "b", false},
		"one that terminates, and nobody asked": {local, []view.Endpoint{endpoint("10.0.0.1", "a", terminating)}, false, "a", true},
	} {
		c := cluster(service(test.change), test.endpoints...)
		c.BGPAdvertisements["bgp"].WithoutEndpoints = test.without
		got, _ := fresh(c, onNode(test.node))
		if _, announced := got.BGP["tor"].Routes[netip.MustParsePrefix("192.0.2.10/32")]; announced != test.want {
			t.Errorf("%s: announced by %s: %t, want %t", name, test.node, announced, test.want)
		}
	}
}
