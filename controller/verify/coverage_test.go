package verify_test

import (
	"strings"
	"testing"

	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/view"
)

func TestUncovered(t *testing.T) {
	t.Parallel()
	only := func(pool string) view.PoolMatch { return view.PoolMatch{Names: []string{pool}} }
	left, nowhere := []view.Selector{labelled("left")}, []view.Selector{labelled("nowhere")}
	for name, test := range map[string]struct {
		layer2 []view.L2Advertisement
		bgp    []view.BGPAdvertisement
		peers  []*view.BGPPeer
		want   []string // in the message; nil: it is covered
	}{
		"nothing":                       {want: []string{"no L2Advertisement and no BGPAdvertisement covers the pool"}},
		"another pool's":                {layer2: []view.L2Advertisement{{Pools: only("other")}}, want: []string{"name the pool in spec.ipAddressPools"}},
		"by name":                       {layer2: []view.L2Advertisement{{Pools: only("lan")}}},
		"all pools":                     {layer2: []view.L2Advertisement{{}}},
		"by labels":                     {layer2: []view.L2Advertisement{{Pools: view.PoolMatch{Selectors: left}}}},
		"for some Services":             {layer2: []view.L2Advertisement{{ServiceSelectors: nowhere}}},
		"on no node":                    {layer2: []view.L2Advertisement{{NodeSelectors: nowhere}}, want: []string{"L2Advertisement a0 chooses no node"}},
		"on one node":                   {layer2: []view.L2Advertisement{{NodeSelectors: nowhere}, {NodeSelectors: left}}},
		"to no router":                  {bgp: []view.BGPAdvertisement{{}}, want: []string{"BGPAdvertisement b0 has no BGPPeer"}},
		"to a router":                   {bgp: []view.BGPAdvertisement{{}}, peers: []*view.BGPPeer{peer("tor", "192.0.2.1", 179)}},
		"to a router of no node":        {bgp: []view.BGPAdvertisement{{}}, peers: []*view.BGPPeer{peer("tor", "192.0.2.1", 179, labelled("nowhere"))}, want: []string{"has no BGPPeer"}},
		"to a router that is not there": {bgp: []view.BGPAdvertisement{{Peers: []string{"core"}}}, peers: []*view.BGPPeer{peer("tor", "192.0.2.1", 179)}, want: []string{"has no BGPPeer"}},
		"with no such community":        {bgp: []view.BGPAdvertisement{{CommunityNames: []string{"x"}}}, peers: []*view.BGPPeer{peer("tor", "192.0.2.1", 179)}, want: []string{"BGPAdvertisement b0 is not in use"}},
		"in vain by both": {
			layer2: []view.L2Advertisement{{NodeSelectors: nowhere}}, bgp: []view.BGPAdvertisement{{NodeSelectors: nowhere}},
			want: []string{"L2Advertisement a0", "BGPAdvertisement b0 chooses no node"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &view.Cluster{
				Pools:            map[string]*view.Pool{"lan": {Name: "lan", Labels: map[string]string{"left": "yes"}}},
				Nodes:            map[string]*view.Node{"a": {Name: "a", Labels: map[string]string{"left": "yes"}}, "b": {Name: "b"}},
				L2Advertisements: map[string]*view.L2Advertisement{}, BGPAdvertisements: map[string]*view.BGPAdvertisement{},
				BGPPeers: map[string]*view.BGPPeer{},
			}
			for i, ad := range test.layer2 {
				ad.Name = "a" + string(rune('0'+i))
				c.L2Advertisements[ad.Name] = &ad
			}
			for i, ad := range test.bgp {
				ad.Name = "b" + string(rune('0'+i))
				c.BGPAdvertisements[ad.Name] = &ad
			}
			for _, p := range test.peers {
				c.BGPPeers[p.Name] = p
			}
			found, uncovered := verify.Uncovered(c)["lan"]
			why := found.Message
			if uncovered != (test.want != nil) {
				t.Fatalf("uncovered %t: %s", uncovered, why)
			}
			for _, part := range test.want {
				if !strings.Contains(why, part) {
					t.Errorf("%q lacks %q", why, part)
				}
			}
		})
	}
}
