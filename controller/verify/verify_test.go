package verify_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// labelled matches objects that have the label.
type labelled string

func (l labelled) Matches(labels map[string]string) bool { return labels[string(l)] != "" }

func peer(name, address string, port uint16, selectors ...view.Selector) *view.BGPPeer {
	return &view.BGPPeer{Name: name, PeerAddress: netip.MustParseAddr(address), PeerPort: port, NodeSelectors: selectors}
}

// port is the only one of a Service.
var port = []view.ServicePort{{Port: 80}}

// on are ready endpoints of it, one on each of the nodes.
func on(nodes ...string) []view.Endpoint {
	var endpoints []view.Endpoint
	for i, n := range nodes {
		endpoints = append(endpoints, view.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Node: n, Ready: true, Ports: []view.EndpointPort{{Port: 80}}})
	}
	return endpoints
}

// isAdvice holds that these are the problems, and that none of them takes its object out of use.
func isAdvice(t *testing.T, problems []problem.Problem, want []string) {
	t.Helper()
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
		if !p.Advisory {
			t.Errorf("%s takes %s out of use", p.Reason, p.Object)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	sourced := peer("sourced", "192.0.2.1", 179)
	sourced.SourceAddress = netip.MustParseAddr("192.0.2.9")
	c := &view.Cluster{
		Pools: map[string]*view.Pool{
			"plain":  {Name: "plain"},
			"public": {Name: "public", Labels: map[string]string{"public": "yes"}},
		},
		Nodes: map[string]*view.Node{
			"a": {Name: "a", Labels: map[string]string{"left": "yes"}},
			"b": {Name: "b", Labels: map[string]string{"right": "yes", "both": "yes"}},
			"c": {Name: "c", Labels: map[string]string{"left": "yes", "both": "yes"}},
		},
		L2Advertisements: map[string]*view.L2Advertisement{
			"all":      {Name: "all"},
			"names":    {Name: "names", Pools: view.PoolMatch{Names: []string{"plain", "missing", "gone"}}},
			"selects":  {Name: "selects", Pools: view.PoolMatch{Selectors: []view.Selector{labelled("public")}}},
			"vain":     {Name: "vain", Pools: view.PoolMatch{Selectors: []view.Selector{labelled("private")}}},
			"name-too": {Name: "name-too", Pools: view.PoolMatch{Names: []string{"plain"}, Selectors: []view.Selector{labelled("private")}}},
		},
		BGPAdvertisements: map[string]*view.BGPAdvertisement{
			"bgp": {Name: "bgp", Pools: view.PoolMatch{Names: []string{"missing"}}, Peers: []string{"first", "nobody"}},
			"all": {Name: "all"},
		},
		BGPPeers: map[string]*view.BGPPeer{
			"first":      peer("first", "192.0.2.1", 179, labelled("left")),
			"second":     peer("second", "192.0.2.1", 179, labelled("both")),
			"apart":      peer("apart", "192.0.2.1", 179, labelled("nowhere")),
			"other-port": peer("other-port", "192.0.2.1", 1790),
			"sourced":    sourced,
			"unreadable": {Name: "unreadable"},
			"unread":     {Name: "unread", BFDProfile: "slow"},
			"watched":    {Name: "watched", BFDProfile: "fast"},
			"near":       {Name: "near", BFDProfile: "far", MyASN: 64500, PeerASN: 64512},
			"far":        {Name: "far", BFDProfile: "far", MyASN: 64500, PeerASN: 64512, EBGPMultiHop: true},
			"within":     {Name: "within", BFDProfile: "far", MyASN: 64500, PeerASN: 64500},
			"cabled":     {Name: "cabled", BFDProfile: "far", MyASN: 64500, PeerASN: 64500, Interface: "eth1"},
		},
		BFDProfiles: map[string]*view.BFDProfile{"fast": {Name: "fast"}, "far": {Name: "far", MinTTL: 250}},
	}
	c.BGPPeers["secured"] = &view.BGPPeer{Name: "secured", BFDProfile: "far", MyASN: 64500, PeerASN: 64500, TTLSecurity: true}
	const unused = `spec.bfdProfile: BFDProfile "far" has minimumTtl 250, which is for routers more than one hop away, and this one is not said to be: ` +
		`its BFD packets must come with 255; set ebgpMultiHop if it is, or name a profile without minimumTtl`
	const secured = `spec.bfdProfile: BFDProfile "far" has minimumTtl 250, which is for routers more than one hop away, and ttlSecurity says that this one is not: ` +
		`its BFD packets must come with 255; leave that out if it is, or name a profile without minimumTtl`
	want := []string{
		`BGPAdvertisement/bgp: PeerNotFound: spec.peers: there is no BGPPeer "nobody": create it or take it out`,
		`BGPAdvertisement/bgp: PoolNotFound: spec.ipAddressPools: there is no IPAddressPool "missing": create it or take it out`,
		`BGPPeer/cabled: MinimumTTLUnused: ` + unused,
		`BGPPeer/near: MinimumTTLUnused: ` + unused,
		`BGPPeer/second: PeerDuplicate: BGPPeer "first" is the same router 192.0.2.1:179 on node c: delete one of the two, or keep them apart by nodeSelectors`,
		`BGPPeer/secured: MinimumTTLUnused: ` + secured,
		`BGPPeer/unread: ProfileNotFound: spec.bfdProfile: there is no BFDProfile "slow", so the session is held without BFD: create it or take it out`,
		`L2Advertisement/names: PoolNotFound: spec.ipAddressPools: there is no IPAddressPool "gone": create it or take it out`,
		`L2Advertisement/names: PoolNotFound: spec.ipAddressPools: there is no IPAddressPool "missing": create it or take it out`,
		`L2Advertisement/vain: NoPoolSelected: spec.ipAddressPoolSelectors: no IPAddressPool has such labels, so nothing is announced: label a pool, or change the selectors`,
	}
	for range 10 { // maps come in any order
		var got []string
		for _, p := range check(c) {
			got = append(got, p.String())
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("problems (-want +got):\n%s", d)
		}
	}
}

// ages is long after whatever happens in a test.
var ages = time.Unix(1_000_000, 0)

// check checks a cluster of which nothing is known yet.
func check(c *view.Cluster) []problem.Problem {
	return new(verify.Checker).Check(c, view.Occupied{}, ages)
}
