package desired_test

import (
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestASharedAddressIsAnnouncedByThoseThatServeAll: a node announces an address when it
// can serve every Service on it that any node can.
func TestASharedAddressIsAnnouncedByThoseThatServeAll(t *testing.T) {
	other := func(change ...func(*view.Service)) *view.Service {
		s := service(change...)
		s.Name, s.Ports = "other", []view.ServicePort{{Name: "tls", Protocol: view.TCP, Port: 443}}
		return s
	}
	on := func(nodes ...string) []view.Endpoint {
		var endpoints []view.Endpoint
		for _, n := range nodes {
			endpoints = append(endpoints, endpoint("10.0.0.1", n))
		}
		return endpoints
	}
	for name, test := range map[string]struct {
		first, second *view.Service
		at, also      []view.Endpoint
		excluded      string
		want          []string
	}{
		"policy Cluster": {service(), other(), on("a"), on("b"), "", []string{"a", "b", "c"}},
		"one is Local":   {service(), other(local), on("a"), on("b"), "", []string{"b"}},
		"both are Local": {service(local), other(local), on("a", "b"), on("b", "c"), "", []string{"b"}},
		"no common node": {service(local), other(local), on("a"), on("b"), "", nil},
		"one has no endpoints, and is in nobody's way": {service(local), other(local), on("a"), nil, "", []string{"a"}},
		"one has none that an announcing node serves":  {service(local), other(local), on("a"), on("b"), "b", []string{"a"}},
		"neither has endpoints":                        {service(), other(), nil, nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(test.first, test.at...)
			c.Services[test.second.Ref] = test.second
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{test.second.Ref: test.also})
			if test.excluded != "" {
				c.Nodes[test.excluded].Excluded = true
			}
			var layer2, bgp []string
			for _, node := range []string{"a", "b", "c"} {
				got, _ := desired.For(c, onNode(node))
				if _, ok := got.Layer2[ip("192.0.2.10")]; ok {
					layer2 = append(layer2, node)
				}
				if _, ok := got.BGP["tor"].Routes[addr.HostPrefix(ip("192.0.2.10"))]; ok {
					bgp = append(bgp, node)
				}
			}
			if !slices.Equal(layer2, test.want) || !slices.Equal(bgp, test.want) {
				t.Errorf("announced over layer 2 by %v and over BGP by %v, want %v", layer2, bgp, test.want)
			}
		})
	}
}
