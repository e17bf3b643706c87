package verify_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// inUse is a cluster of two nodes and two routers, of our own AS and of another, in which every
// object has a part in what is announced.
func inUse() *view.Cluster {
	inside, outside := peer("inside", "192.0.2.1", 179), peer("outside", "192.0.2.2", 179)
	inside.MyASN, inside.PeerASN, outside.MyASN, outside.PeerASN = 64500, 64500, 64500, 64512
	inside.BFDProfile, outside.BFDProfile = "fast", "fast"
	return &view.Cluster{
		Nodes: map[string]*view.Node{
			"n1": {Name: "n1", Labels: map[string]string{"left": "yes"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.11")}},
			"n2": {Name: "n2", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.12")}},
		},
		Pools:    map[string]*view.Pool{"four": poolOf("four", "203.0.113.0/24"), "six": poolOf("six", "2001:db8::/64")},
		BGPPeers: map[string]*view.BGPPeer{"inside": inside, "outside": outside},
		BGPAdvertisements: map[string]*view.BGPAdvertisement{
			"all": {Name: "all", LocalPref: 100, Prepend: 2, CommunityNames: []string{"vpn"}},
		},
		BFDProfiles: map[string]*view.BFDProfile{"fast": {Name: "fast", Multiplier: 3}},
		Communities: map[string]*view.Community{"ours": {Name: "ours", Values: map[string]view.CommunityValue{"vpn": {Standard: 7}, "far": {}}}},
		Services: map[view.Ref]*view.Service{
			{Name: "web"}: {Ref: view.Ref{Name: "web"}, Type: view.LoadBalancer, Labels: map[string]string{"public": "yes"}},
			{Name: "in"}:  {Ref: view.Ref{Name: "in"}, Type: view.ClusterIP, Labels: map[string]string{"private": "yes"}},
		},
	}
}

func poolOf(name, cidr string) *view.Pool {
	ranges, err := addr.ParseRange(cidr)
	if err != nil {
		panic(err)
	}
	return &view.Pool{Name: name, Ranges: append((&view.Pool{}).Ranges, ranges)}
}

// TestWhatHasNoEffectIsTold: what is set and does nothing, or not what it says, is in the
// condition of its object, and what has its part is not.
func TestWhatHasNoEffectIsTold(t *testing.T) {
	t.Parallel()
	nowhere := []view.Selector{labelled("nowhere")}
	med := func(n uint32) *uint32 { return &n }
	for name, test := range map[string]struct {
		change func(c *view.Cluster, all *view.BGPAdvertisement, inside, outside *view.BGPPeer)
		want   []string // object, reason and a part of each message
	}{
		"nothing": {func(*view.Cluster, *view.BGPAdvertisement, *view.BGPPeer, *view.BGPPeer) {}, nil},
		"a profile and a Community too many": {func(c *view.Cluster, _ *view.BGPAdvertisement, _, _ *view.BGPPeer) {
			c.BFDProfiles["slow"] = &view.BFDProfile{Name: "slow", EchoInterval: true}
			c.Communities["theirs"] = &view.Community{Name: "theirs", Values: map[string]view.CommunityValue{"x": {}}}
			c.Communities["empty"] = &view.Community{Name: "empty"}
		}, []string{
			"BFDProfile/slow: FieldUnused: spec.echoInterval", "BFDProfile/slow: Unused: no BGPPeer names it",
			"Community/empty: Unused: no BGPAdvertisement", "Community/theirs: Unused: no BGPAdvertisement",
		}},
		"no node and no Service": {func(c *view.Cluster, _ *view.BGPAdvertisement, _, _ *view.BGPPeer) {
			c.L2Advertisements = map[string]*view.L2Advertisement{"l2": {Name: "l2", NodeSelectors: nowhere, ServiceSelectors: []view.Selector{labelled("private")}}}
			c.BGPAdvertisements["some"] = &view.BGPAdvertisement{Name: "some", NodeSelectors: nowhere, ServiceSelectors: []view.Selector{labelled("public")}}
		}, []string{
			"BGPAdvertisement/some: NoNodeSelected: nothing is announced by it: the advertisement chooses no node",
			"L2Advertisement/l2: NoNodeSelected: nothing is announced by it", "L2Advertisement/l2: NoServiceSelected: spec.serviceSelectors",
		}},
		"no peer on its nodes": {func(_ *view.Cluster, all *view.BGPAdvertisement, inside, outside *view.BGPPeer) {
			all.NodeSelectors = []view.Selector{labelled("left")}
			inside.NodeSelectors, outside.NodeSelectors = nowhere, nowhere
		}, []string{"BGPAdvertisement/all: NoSession: nothing is announced by it: the advertisement has no BGPPeer"}},
		"no advertisement for a peer": {func(_ *view.Cluster, all *view.BGPAdvertisement, _, _ *view.BGPPeer) {
			all.Peers, all.Prepend = []string{"inside"}, 0
		}, []string{"BGPPeer/outside: NoAdvertisement: nothing is announced to it"}},
		"a preference that no router sees": {func(c *view.Cluster, all *view.BGPAdvertisement, _, _ *view.BGPPeer) {
			all.LocalPref, all.Prepend = 0, 0
			c.BGPAdvertisements["in"] = &view.BGPAdvertisement{Name: "in", Peers: []string{"inside"}, LocalPref: 7, Prepend: 1}
			c.BGPAdvertisements["out"] = &view.BGPAdvertisement{Name: "out", Peers: []string{"outside"}, LocalPref: 7, Prepend: 1}
		}, []string{
			"BGPAdvertisement/in: FieldUnused: spec.asPathPrepend: is done towards eBGP peers only",
			"BGPAdvertisement/out: FieldUnused: spec.localPref: is sent to iBGP peers only",
		}},
		"the length of a family that no pool has": {func(c *view.Cluster, all *view.BGPAdvertisement, _, _ *view.BGPPeer) {
			all.Pools.Names = []string{"four"}
			all.AggregationLength = map[addr.Family]int{addr.IPv4: 24, addr.IPv6: 64}
			c.BGPAdvertisements["plain"] = &view.BGPAdvertisement{Name: "plain", Pools: all.Pools, AggregationLength: map[addr.Family]int{addr.IPv4: 32, addr.IPv6: 128}}
		}, []string{"BGPAdvertisement/all: FieldUnused: spec.aggregationLengthV6: no IPAddressPool that this is for has IPv6 addresses"}},
		"fields that another advertisement overrules": {func(c *view.Cluster, all *view.BGPAdvertisement, _, _ *view.BGPPeer) {
			all.MED, all.EndpointBandwidth = med(50), 1000
			c.BGPAdvertisements["less"] = &view.BGPAdvertisement{
				Name: "less", LocalPref: 50, MED: med(60), Prepend: 3, EndpointBandwidth: 10, Pools: view.PoolMatch{Names: []string{"six"}}, Peers: []string{"inside", "outside"},
			}
		}, []string{
			"BGPAdvertisement/less: FieldUnused: spec.asPathPrepend: BGPAdvertisement \"all\" is for the same", "BGPAdvertisement/less: FieldUnused: spec.linkBandwidthPerEndpoint",
			"BGPAdvertisement/less: FieldUnused: spec.localPref", "BGPAdvertisement/less: FieldUnused: spec.med",
		}},
		"fields of which another has more, elsewhere too": {func(c *view.Cluster, _ *view.BGPAdvertisement, _, _ *view.BGPPeer) {
			c.BGPAdvertisements["of some pools"] = &view.BGPAdvertisement{Name: "of some pools", LocalPref: 200, Pools: view.PoolMatch{Names: []string{"six"}}}
			c.BGPAdvertisements["of some Services"] = &view.BGPAdvertisement{Name: "of some Services", LocalPref: 200, ServiceSelectors: []view.Selector{labelled("public")}}
			c.BGPAdvertisements["of some nodes"] = &view.BGPAdvertisement{Name: "of some nodes", LocalPref: 200, NodeSelectors: []view.Selector{labelled("left")}}
			c.BGPAdvertisements["to some peers"] = &view.BGPAdvertisement{Name: "to some peers", LocalPref: 200, Peers: []string{"inside"}}
			c.BGPAdvertisements["of aggregates"] = &view.BGPAdvertisement{Name: "of aggregates", LocalPref: 200, AggregationLength: map[addr.Family]int{addr.IPv4: 24}}
		}, nil},
		"one identifier of two nodes": {func(_ *view.Cluster, _ *view.BGPAdvertisement, inside, outside *view.BGPPeer) {
			inside.RouterID, outside.RouterID = netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.7")
			outside.NodeSelectors = []view.Selector{labelled("left")}
		}, []string{"BGPPeer/inside: RouterIDShared: spec.routerID: nodes n1 n2 have the router ID 192.0.2.7"}},
		"BFD with the node itself": {func(_ *view.Cluster, _ *view.BGPAdvertisement, inside, outside *view.BGPPeer) {
			inside.PeerAddress, outside.PeerAddress = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.11")
		}, []string{"BGPPeer/inside: FieldUnused: spec.bfdProfile: 127.0.0.1 is the node itself"}},
		"one BFD session by two profiles": {func(c *view.Cluster, _ *view.BGPAdvertisement, inside, outside *view.BGPPeer) {
			c.BFDProfiles["slow"], c.BFDProfiles["quick"] = &view.BFDProfile{Name: "slow", Multiplier: 9}, &view.BFDProfile{Name: "quick", Multiplier: 9}
			third, apart := *outside, *outside
			third.Name, third.PeerPort, third.BFDProfile = "third", 1181, "quick"
			apart.Name, apart.PeerPort, apart.BFDProfile, apart.SourceAddress = "apart", 1182, "fast", netip.MustParseAddr("192.0.2.77")
			c.BGPPeers["third"], c.BGPPeers["apart"] = &third, &apart
			inside.PeerAddress, inside.PeerPort = outside.PeerAddress, 1180
			inside.Created, outside.BFDProfile = time.Unix(9, 0), "slow"
		}, []string{"BGPPeer/inside: ProfileShared: spec.bfdProfile: BGPPeer \"outside\" has BFD with the same router on node n1 by BFDProfile \"slow\""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := inUse()
			test.change(c, c.BGPAdvertisements["all"], c.BGPPeers["inside"], c.BGPPeers["outside"])
			got := told(c)
			if !cmp.Equal(test.want, got, cmp.Comparer(func(want, got string) bool { return strings.HasPrefix(got, want) || strings.HasPrefix(want, got) })) {
				t.Errorf("problems\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(test.want, "\n\t"))
			}
			c.Nodes = nil // of which nobody can be missed
			for _, p := range check(c) {
				if !p.Advisory {
					t.Errorf("without nodes: %v", p)
				}
			}
		})
	}
}
