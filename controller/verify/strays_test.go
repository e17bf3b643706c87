package verify_test

import (
	"net/netip"
	"testing"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// TestAggregatesOverServicesOfPolicyLocal: an advertisement says when a node that announces
// its aggregate drops what is for a Service within.
func TestAggregatesOverServicesOfPolicyLocal(t *testing.T) {
	t.Parallel()
	ref := func(name string) view.Ref { return view.Ref{Namespace: "shop", Name: name} }
	const told = "BGPAdvertisement/wide: AggregateOverLocal: 192.0.2.0/24 is announced also by n2, which drops what routers send there for 192.0.2.9: " +
		"Service shop/near has externalTrafficPolicy Local and no endpoints on it; announce its address alone by another BGPAdvertisement, or set the policy Cluster"
	for name, test := range map[string]struct {
		near, far []view.Endpoint
		change    func(*view.Cluster)
		want      []string
	}{
		"the other one is served by all":   {near: on("n1"), far: on("n1"), want: []string{told}},
		"all nodes have endpoints of it":   {near: on("n1", "n2"), far: on("n1")},
		"nobody serves the other one":      {near: on("n1"), far: on()},
		"nobody serves it, and none loses": {near: on(), far: on("n1")},
		"both are Local, on other nodes": {
			near: on("n1"), far: on("n2"),
			change: func(c *view.Cluster) { c.Services[ref("far")].ExternalLocal = true },
			want:   []string{told},
		},
		"both are Local, on one node": {
			near: on("n1"), far: on("n1"),
			change: func(c *view.Cluster) { c.Services[ref("far")].ExternalLocal = true },
		},
		"policy Cluster": {
			near: on("n1"), far: on("n1"),
			change: func(c *view.Cluster) { c.Services[ref("near")].ExternalLocal = false },
		},
		"nodes that announce nothing": {
			near: on("n1"), far: on("n1"),
			change: func(c *view.Cluster) { c.Nodes["n2"].Excluded = true },
		},
		"nodes that the advertisement does not choose": {
			near: on("n1"), far: on("n1"),
			change: func(c *view.Cluster) {
				c.Nodes["n1"].Labels = map[string]string{"left": "yes"}
				c.BGPAdvertisements["wide"].NodeSelectors = []view.Selector{labelled("left")}
			},
		},
		"a route of its own": {
			near: on("n1"), far: on("n1"),
			change: func(c *view.Cluster) { c.BGPAdvertisements["one"] = &view.BGPAdvertisement{Name: "one"} },
		},
		"a route of its own to one router of two": {
			near: on("n1"), far: on("n1"),
			change: func(c *view.Cluster) {
				c.BGPPeers["other"] = &view.BGPPeer{Name: "other", MyASN: 64500, PeerASN: 64513, PeerAddress: netip.MustParseAddr("198.51.100.2")}
				c.BGPAdvertisements["one"] = &view.BGPAdvertisement{Name: "one", Peers: []string{"other"}}
			},
			want: []string{told},
		},
		"no aggregate": {
			near: on("n1"), far: on("n1"),
			change: func(c *view.Cluster) { c.BGPAdvertisements["wide"].AggregationLength = nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := func(name, vip string) *view.Service {
				return &view.Service{Ref: ref(name), Type: view.LoadBalancer, VIPs: []netip.Addr{netip.MustParseAddr(vip)}, Ports: port}
			}
			c := &view.Cluster{
				Nodes:    map[string]*view.Node{"n1": {Name: "n1"}, "n2": {Name: "n2"}},
				Services: map[view.Ref]*view.Service{ref("near"): service("near", "192.0.2.9"), ref("far"): service("far", "192.0.2.200")},
				Pools:    map[string]*view.Pool{"all": {Name: "all", Ranges: []netipx.IPRange{netipx.MustParseIPRange("192.0.2.0-192.0.2.255")}}},
				BGPPeers: map[string]*view.BGPPeer{"tor": {Name: "tor", MyASN: 64500, PeerASN: 64512, PeerAddress: netip.MustParseAddr("198.51.100.1")}},
				BGPAdvertisements: map[string]*view.BGPAdvertisement{
					"wide": {Name: "wide", AggregationLength: map[addr.Family]int{addr.IPv4: 24}},
				},
			}
			c.Services[ref("near")].ExternalLocal = true
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref("near"): test.near, ref("far"): test.far})
			if test.change != nil {
				test.change(c)
			}
			isAdvice(t, check(c), test.want)
		})
	}
}
