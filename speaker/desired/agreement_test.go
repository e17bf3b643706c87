package desired_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// All nodes must agree on the candidates, whatever is in the cluster, and nobody
// may claim what it cannot serve.
func TestAllNodesAgreeOnTheCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := service()
		s.ExternalLocal = rapid.Bool().Draw(t, "local")
		var endpoints []view.Endpoint
		for i := range rapid.IntRange(0, 5).Draw(t, "endpoints") {
			e := endpoint(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}).String(), rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "node"))
			e.Ready, e.Serving, e.Terminating = rapid.Bool().Draw(t, "ready"), rapid.Bool().Draw(t, "serving"), rapid.Bool().Draw(t, "terminating")
			endpoints = append(endpoints, e)
		}
		c := cluster(s, endpoints...)
		for _, node := range c.Nodes {
			node.Ready, node.Excluded = rapid.Bool().Draw(t, "node ready"), rapid.Bool().Draw(t, "excluded")
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "preferences") {
			zone := has("topology.kubernetes.io/zone", "z-"+rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone"))
			weight := rapid.IntRange(1, 100).Draw(t, "weight")
			ad := &view.L2Advertisement{Name: string(rune('x' + i)), PreferredNodes: []view.Preference{{Nodes: zone, Weight: weight}}}
			if rapid.Bool().Draw(t, "for one zone") {
				ad.NodeSelectors = []view.Selector{zone}
			}
			c.L2Advertisements[ad.Name] = ad
		}
		address := ip("192.0.2.10")
		var agreed []string
		elsewhere := map[string]bool{}
		for _, node := range []string{"a", "b", "c"} {
			got, _ := desired.For(c, onNode(node))
			claim, ok := got.Layer2[address]
			if elsewhere[node] = slices.Contains(got.Elsewhere, address); ok == elsewhere[node] && ok {
				t.Fatalf("on %s the address is claimed and elsewhere", node)
			}
			if !ok {
				continue
			}
			if agreed == nil {
				agreed = claim.Candidates
			}
			if !slices.Equal(agreed, claim.Candidates) {
				t.Fatalf("%s sees candidates %v, another node %v", node, claim.Candidates, agreed)
			}
			p := got.Forwarding.Ports[desired.PortKey{Service: web, Name: "http", Protocol: view.TCP, Family: addr.IPv4}]
			if serves := p.Cluster; s.ExternalLocal && len(p.Local) == 0 || !s.ExternalLocal && len(serves) == 0 {
				t.Fatalf("%s claims %s and has no endpoint to send to: %+v", node, address, p)
			}
		}
		for node, told := range elsewhere {
			if want := len(agreed) > 0 && !slices.Contains(agreed, node); told != want {
				t.Fatalf("on %s the address is elsewhere: %t, candidates %v", node, told, agreed)
			}
		}
		for _, node := range agreed {
			got, _ := desired.For(c, onNode(node))
			if _, ok := got.Layer2[address]; !ok {
				t.Fatalf("candidate %s has no claim", node)
			}
		}
	})
}
