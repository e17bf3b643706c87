package desired_test

import (
	"fmt"
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// TestASharedAddressIsAnnouncedByThoseThatServeAll: a node announces an address when it
// can serve every Service on it that any node can.
func TestASharedAddressIsAnnouncedByThoseThatServeAll(t *testing.T) {
	other := func(change ...func(*view.Service)) *view.Service {
		s := service(change...)
		s.Name, s.Ports = "other", []view.ServicePort{{Name: "tls", Protocol: view.TCP, Port: 443}}
		return s
	}
	on := func(port string, nodes ...string) []view.Endpoint {
		var endpoints []view.Endpoint
		for i, n := range nodes {
			e := endpoint(fmt.Sprintf("10.0.0.%d", i+1), n)
			e.Ports = []view.EndpointPort{{Name: port, Protocol: view.TCP, Port: 8080}}
			endpoints = append(endpoints, e)
		}
		return endpoints
	}
	for name, test := range map[string]struct {
		first, second *view.Service
		at, also      []view.Endpoint
		excluded      string
		want          []string
	}{
		"policy Cluster": {service(), other(), on("http", "a"), on("tls", "b"), "", []string{"a", "b", "c"}},
		"one is Local":   {service(), other(local), on("http", "a"), on("tls", "b"), "", []string{"b"}},
		"both are Local": {service(local), other(local), on("http", "a", "b"), on("tls", "b", "c"), "", []string{"b"}},
		"no common node": {service(local), other(local), on("http", "a"), on("tls", "b"), "", nil},
		"one has no endpoints, and is in nobody's way": {service(local), other(local), on("http", "a"), nil, "", []string{"a"}},
		"one has none that an announcing node serves":  {service(local), other(local), on("http", "a"), on("tls", "b"), "b", []string{"a"}},
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
				got, _ := fresh(c, onNode(node))
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
