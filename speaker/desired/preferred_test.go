package desired_test

import (
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/election"
)

// TestPreferredNodesComeFirst: the weights of all advertisements for the address add up,
// each for the nodes that it selects; the hash orders those of equal sums, and nodes that
// are not ready come last all the same.
func TestPreferredNodesComeFirst(t *testing.T) {
	zone := func(node string) view.Selector { return has("topology.kubernetes.io/zone", "z-"+node) }
	prefer := func(weight int, node string) view.Preference {
		return view.Preference{Nodes: zone(node), Weight: weight}
	}
	hashed := election.Rank(ip("192.0.2.10"), []string{"a", "b", "c"})
	first, second, third := hashed[0], hashed[1], hashed[2]
	for name, test := range map[string]struct {
		ads     []view.L2Advertisement
		unready string
		want    []string
	}{
		"nobody": {[]view.L2Advertisement{{}}, "", hashed},
		"one":    {[]view.L2Advertisement{{PreferredNodes: []view.Preference{prefer(1, third)}}}, "", []string{third, first, second}},
		"by weight": {
			[]view.L2Advertisement{{PreferredNodes: []view.Preference{prefer(50, second), prefer(100, third)}}},
			"",
			[]string{third, second, first},
		},
		"equal": {
			[]view.L2Advertisement{{PreferredNodes: []view.Preference{prefer(7, third), prefer(7, second)}}},
			"",
			[]string{second, third, first},
		},
		"within one advertisement weights add up": {
			[]view.L2Advertisement{{PreferredNodes: []view.Preference{prefer(60, third), prefer(50, third), prefer(100, second)}}},
			"",
			[]string{third, second, first},
		},
		"over advertisements weights add up": {
			[]view.L2Advertisement{
				{PreferredNodes: []view.Preference{prefer(60, third), prefer(70, second)}},
				{PreferredNodes: []view.Preference{prefer(30, third)}},
			},
			"",
			[]string{third, second, first},
		},
		"an advertisement prefers none of the nodes that it does not select": {
			[]view.L2Advertisement{{}, {
				NodeSelectors:  []view.Selector{zone(second)},
				PreferredNodes: []view.Preference{prefer(100, third), prefer(1, second)},
			}},
			"",
			[]string{second, first, third},
		},
		"one of other Services has no say": {
			[]view.L2Advertisement{{}, {
				ServiceSelectors: []view.Selector{has("app", "other")},
				PreferredNodes:   []view.Preference{prefer(100, third)},
			}},
			"",
			hashed,
		},
		"not ready": {
			[]view.L2Advertisement{{PreferredNodes: []view.Preference{prefer(100, third), prefer(50, second)}}},
			third,
			[]string{second, first, third},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(service(), endpoint("10.0.0.1", "a"))
			c.L2Advertisements = map[string]*view.L2Advertisement{}
			for i, ad := range test.ads {
				ad.Name = string(rune('a' + i))
				c.L2Advertisements[ad.Name] = &ad
			}
			if test.unready != "" {
				c.Nodes[test.unready].Ready = false
			}
			for node := range c.Nodes {
				got, _ := fresh(c, onNode(node))
				if candidates := got.Layer2[ip("192.0.2.10")].Candidates; !slices.Equal(candidates, test.want) {
					t.Errorf("on %s: candidates %v, want %v", node, candidates, test.want)
				}
			}
		})
	}
}

// TestAPreferredNodeThatCannotServeIsNoCandidate: a preference makes nobody eligible.
func TestAPreferredNodeThatCannotServeIsNoCandidate(t *testing.T) {
	c := cluster(service(local), endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"))
	c.L2Advertisements["l2"].PreferredNodes = []view.Preference{{Nodes: has("topology.kubernetes.io/zone", "z-c"), Weight: 100}}
	got, _ := fresh(c, onNode("a"))
	if candidates := got.Layer2[ip("192.0.2.10")].Candidates; slices.Contains(candidates, "c") || len(candidates) != 2 {
		t.Errorf("candidates %v, want a and b", candidates)
	}
}

// Two nodes that go by different rules would both answer, or neither: one advertisement counts for all nodes, also
// those that it does not select.
func TestOneAdvertisementThatForbidsPreemptionCountsForAllNodes(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	for name, tt := range map[string]struct {
		ads  []view.L2Advertisement
		want bool
	}{
		"all give back":          {[]view.L2Advertisement{{Name: "one"}, {Name: "two"}}, false},
		"one does not":           {[]view.L2Advertisement{{Name: "one"}, {Name: "two", NoPreempt: true}}, true},
		"one of another node":    {[]view.L2Advertisement{{Name: "one"}, {Name: "two", NoPreempt: true, NodeSelectors: []view.Selector{has("topology.kubernetes.io/zone", "z-b")}}}, true},
		"one of other Services":  {[]view.L2Advertisement{{Name: "one"}, {Name: "two", NoPreempt: true, ServiceSelectors: []view.Selector{has("app", "other")}}}, false},
		"one of another's pools": {[]view.L2Advertisement{{Name: "one"}, {Name: "two", NoPreempt: true, Pools: view.PoolMatch{Names: []string{"other"}}}}, false},
	} {
		c.L2Advertisements = map[string]*view.L2Advertisement{}
		for i := range tt.ads {
			c.L2Advertisements[tt.ads[i].Name] = &tt.ads[i]
		}
		for _, node := range []string{"a", "b", "c"} {
			got, _ := fresh(c, onNode(node))
			if claim, ok := got.Layer2[ip("192.0.2.10")]; !ok || claim.NoPreempt != tt.want {
				t.Errorf("%s, on %s: no preemption %t, want %t", name, node, claim.NoPreempt, tt.want)
			}
		}
	}
}
