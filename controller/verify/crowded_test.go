package verify_test

import (
	"fmt"
	"net/netip"
	"testing"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// TestCommunitiesThatAddUpToTooMany: the advertisements of a route say so if no message has room for its
// communities, and only those that meet on one route of a node to one peer. The controller knows of the endpoints
// of few Services.
func TestCommunitiesThatAddUpToTooMany(t *testing.T) {
	t.Parallel()
	web := view.Ref{Namespace: "shop", Name: "web"}
	const told = "BGPAdvertisement/%s: TooManyCommunities: 192.0.2.9/32 is not announced: the communities of all BGPAdvertisements that announce it take 4800 octets, " +
		"and a message of BGP has room for 3800, 4 for each and 12 for a large one; remove some from spec.communities, or announce it by fewer BGPAdvertisements"
	large := func(from, n uint32) (all []view.LargeCommunity) {
		for i := range n {
			all = append(all, view.LargeCommunity{Global: 64500, Local2: from + i})
		}
		return all
	}
	for name, test := range map[string]struct {
		change func(*view.Cluster)
		want   []string
	}{
		"too many": {want: []string{fmt.Sprintf(told, "one"), fmt.Sprintf(told, "other")}},
		"too many, of a Service whose endpoints are known": {
			change: func(c *view.Cluster) {
				c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{web: on("n1")})
			},
			want: []string{fmt.Sprintf(told, "one"), fmt.Sprintf(told, "other")},
		},
		"the same ones": {change: func(c *view.Cluster) {
			c.BGPAdvertisements["other"].LargeCommunities = c.BGPAdvertisements["one"].LargeCommunities
		}},
		"as many as there may be": {change: func(c *view.Cluster) {
			c.BGPAdvertisements["other"].LargeCommunities, c.BGPAdvertisements["other"].Communities = large(200, 116), []uint32{1, 2}
		}},
		"other peers": {change: func(c *view.Cluster) { c.BGPAdvertisements["other"].Peers = []string{"right"} }},
		"other nodes": {change: func(c *view.Cluster) {
			c.Nodes["n1"].Labels = map[string]string{"left": "yes"}
			c.Nodes["n2"] = &view.Node{Name: "n2", Labels: map[string]string{"right": "yes"}}
			c.BGPAdvertisements["one"].NodeSelectors = []view.Selector{labelled("left")}
			c.BGPAdvertisements["other"].NodeSelectors = []view.Selector{labelled("right")}
		}},
		"another route": {change: func(c *view.Cluster) {
			c.BGPAdvertisements["other"].AggregationLength = map[addr.Family]int{addr.IPv4: 24}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &view.Cluster{
				Nodes:    map[string]*view.Node{"n1": {Name: "n1"}},
				Services: map[view.Ref]*view.Service{web: {Ref: web, Type: view.LoadBalancer, VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}, Ports: port}},
				Pools:    map[string]*view.Pool{"all": {Name: "all", Ranges: []netipx.IPRange{netipx.MustParseIPRange("192.0.2.0-192.0.2.255")}}},
				BGPPeers: map[string]*view.BGPPeer{
					"left":  {Name: "left", MyASN: 64500, PeerASN: 64512, PeerAddress: netip.MustParseAddr("198.51.100.1")},
					"right": {Name: "right", MyASN: 64500, PeerASN: 64512, PeerAddress: netip.MustParseAddr("198.51.100.2")},
				},
				BGPAdvertisements: map[string]*view.BGPAdvertisement{
					"one":   {Name: "one", LargeCommunities: large(0, 200), Peers: []string{"left"}},
					"other": {Name: "other", LargeCommunities: large(200, 200)},
				},
			}
			if test.change != nil {
				test.change(c)
			}
			isAdvice(t, check(c), test.want)
		})
	}
}
