package desired_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
)

// All nodes must agree on the candidates, whatever is in the cluster, and nobody
// may claim what it cannot serve.
func TestAllNodesAgreeOnTheCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := service()
		s.ExternalLocal = rapid.Bool().Draw(t, "local")
		s.Ports = append(s.Ports, view.ServicePort{Name: "dns", Protocol: view.UDP, Port: 53})
		var endpoints []view.Endpoint
		for range rapid.IntRange(0, 5).Draw(t, "endpoints") {
			// Two of them may claim one address, on one node or on two.
			at := netip.AddrFrom4([4]byte{10, 0, 0, rapid.ByteRange(1, 5).Draw(t, "address")})
			e := endpoint(at.String(), rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "node"))
			e.Ready, e.Serving, e.Terminating = rapid.Bool().Draw(t, "ready"), rapid.Bool().Draw(t, "serving"), rapid.Bool().Draw(t, "terminating")
			e.Ports = rapid.SliceOfDistinct(rapid.SampledFrom([]view.EndpointPort{
				{Name: "http", Protocol: view.TCP, Port: 8080},
				{Name: "dns", Protocol: view.UDP, Port: 53},
				{Name: "http", Protocol: view.UDP, Port: 8080},
				{Name: "admin", Protocol: view.TCP, Port: 9000},
			}), func(p view.EndpointPort) view.EndpointPort { return p }).Draw(t, "ports")
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
		address, ports := ip("192.0.2.10"), map[string]map[string]desired.Port{}
		var agreed []string
		elsewhere := map[string]bool{}
		digests := map[desired.Digests]bool{}
		for _, node := range []string{"a", "b", "c"} {
			// Nodes may learn of the endpoints in another order each.
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{web: rapid.Permutation(endpoints).Draw(t, "order")})
			got, _ := fresh(c, onNode(node))
			digests[got.Digests] = true
			ports[node] = map[string]desired.Port{}
			for key, port := range got.Forwarding.Ports {
				if key.Family == addr.IPv4 {
					ports[node][key.Name] = port
				}
			}
			claim, ok := got.Layer2[address]
			if elsewhere[node] = slices.Contains(got.Elsewhere, address); ok == elsewhere[node] && ok {
				t.Fatalf("on %s the address is claimed and elsewhere", node)
			}
			if !ok {
				continue
			}
			if follow := claim.Tiers.Order(election.Rank(address, claim.Tiers.Among()), claim.First); !slices.Equal(follow, claim.Candidates) {
				t.Fatalf("on %s %v follow from the tiers %v, want %v", node, follow, claim.Tiers.Groups(), claim.Candidates)
			}
			if agreed == nil {
				agreed = claim.Candidates
			}
			if !slices.Equal(agreed, claim.Candidates) {
				t.Fatalf("%s sees candidates %v, another node %v", node, claim.Candidates, agreed)
			}
			if !slices.ContainsFunc(slices.Collect(maps.Values(ports[node])), func(p desired.Port) bool { return len(served(p)) > 0 }) {
				t.Fatalf("%s claims %s and has no endpoint to send to: %+v", node, address, ports[node])
			}
		}
		for node, told := range elsewhere {
			if want := len(agreed) > 0 && !slices.Contains(agreed, node); told != want {
				t.Fatalf("on %s the address is elsewhere: %t, candidates %v", node, told, agreed)
			}
		}
		if len(digests) > 1 || digests[desired.Digests{}] != (len(agreed) == 0) {
			t.Fatalf("candidates %v, digests %v", agreed, digests)
		}
		checkWhole(t, agreed, ports)
		for _, node := range agreed {
			got, _ := fresh(c, onNode(node))
			if _, ok := got.Layer2[address]; !ok {
				t.Fatalf("candidate %s has no claim", node)
			}
		}
	})
}

// served are the endpoints to which flows from outside go.
func served(p desired.Port) []netip.AddrPort {
	if p.ExternalLocal {
		return p.Local
	}
	return p.Cluster
}

// checkWhole: no candidate lacks a port that another node serves, if there is a candidate that
// serves all that any does.
func checkWhole(t *rapid.T, candidates []string, ports map[string]map[string]desired.Port) {
	lacks := func(node string) (lacking []string) {
		for _, name := range []string{"http", "dns"} {
			for _, other := range candidates {
				if len(served(ports[node][name])) == 0 && len(served(ports[other][name])) > 0 {
					lacking = append(lacking, name)
				}
			}
		}
		return lacking
	}
	if slices.ContainsFunc(candidates, func(node string) bool { return len(lacks(node)) == 0 }) {
		for _, node := range candidates {
			if lacking := lacks(node); len(lacking) > 0 {
				t.Fatalf("of the candidates %v %s does not serve %v: %+v", candidates, node, lacking, ports)
			}
		}
	}
}
