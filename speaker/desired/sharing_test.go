package desired_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// other is a Service beside that of the fixture, on its addresses.
func other(change ...func(*view.Service)) *view.Service {
	s := service()
	s.Name, s.Ports = "other", []view.ServicePort{{Name: "tls", Protocol: view.TCP, Port: 443}}
	for _, c := range change {
		c(s)
	}
	return s
}

// on are endpoints of the port on these nodes.
func on(port string, nodes ...string) []view.Endpoint {
	var endpoints []view.Endpoint
	for i, n := range nodes {
		e := endpoint(fmt.Sprintf("10.0.0.%d", i+1), n)
		e.Ports = []view.EndpointPort{{Name: port, Protocol: view.TCP, Port: 8080}}
		endpoints = append(endpoints, e)
	}
	return endpoints
}

// announcing are the nodes that announce the address of the fixture.
func announcing(c *view.Cluster) (layer2, bgp []string) {
	for _, node := range []string{"a", "b", "c"} {
		got, _ := fresh(c, onNode(node))
		if _, ok := got.Layer2[ip("192.0.2.10")]; ok {
			layer2 = append(layer2, node)
		}
		if _, ok := got.BGP["tor"].Routes[addr.HostPrefix(ip("192.0.2.10"))]; ok {
			bgp = append(bgp, node)
		}
	}
	return layer2, bgp
}

// TestASharedAddressIsAnnouncedByThoseThatServeAll: a node announces an address when it
// can serve every Service on it that any node can.
func TestASharedAddressIsAnnouncedByThoseThatServeAll(t *testing.T) {
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
			if layer2, bgp := announcing(c); !slices.Equal(layer2, test.want) || !slices.Equal(bgp, test.want) {
				t.Errorf("announced over layer 2 by %v and over BGP by %v, want %v", layer2, bgp, test.want)
			}
		})
	}
}

// guest is a Service of another namespace that came to have the address after that of the fixture.
func guest(s *view.Service) {
	s.Namespace, s.Guest = "dns", ips("192.0.2.10", "2001:db8::10")
}

// TestAGuestTakesNoAnnouncementAway: an address is announced for the namespace that had it first, and for
// another one while that has nothing that a node can serve.
func TestAGuestTakesNoAnnouncementAway(t *testing.T) {
	for name, test := range map[string]struct {
		first, second *view.Service
		at, also      []view.Endpoint
		change        func(*view.Cluster)
		want          []string
	}{
		"no common node":                  {first: service(local), second: other(local, guest), at: on("http", "a"), also: on("tls", "b"), want: []string{"a"}},
		"one common node":                 {first: service(local), second: other(local, guest), at: on("http", "a", "b"), also: on("tls", "b", "c"), want: []string{"a", "b"}},
		"the first is Cluster":            {first: service(), second: other(local, guest), at: on("http", "a"), also: on("tls", "b"), want: []string{"a", "b", "c"}},
		"the first has no endpoints":      {first: service(local), second: other(local, guest), also: on("tls", "b"), want: []string{"b"}},
		"the first one's cannot announce": {first: service(local), second: other(local, guest), at: on("http", "a"), also: on("tls", "b"), change: func(c *view.Cluster) { c.Nodes["a"].Excluded = true }, want: []string{"b"}},
		"the guest is older":              {first: service(local, func(s *view.Service) { s.Created = time.Unix(9, 0) }), second: other(local, guest), at: on("http", "a"), also: on("tls", "b"), want: []string{"a"}},
		"before the upgrade the older is the first": {
			first: service(local, func(s *view.Service) { s.Created = time.Unix(9, 0) }), second: other(local, func(s *view.Service) { s.Namespace = "dns" }),
			at: on("http", "a"), also: on("tls", "b"), want: []string{"b"},
		},
		"no advertisement selects the guest": {
			first: service(local, func(s *view.Service) { s.Labels = map[string]string{"public": "yes"} }), second: other(local, guest), at: on("http", "a"), also: on("tls", "a"),
			change: func(c *view.Cluster) {
				for _, ad := range c.L2Advertisements {
					ad.ServiceSelectors = []view.Selector{has("public", "yes")}
				}
				for _, ad := range c.BGPAdvertisements {
					ad.ServiceSelectors = []view.Selector{has("public", "yes")}
				}
			},
			want: []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(test.first, test.at...)
			c.Services[test.second.Ref] = test.second
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{test.second.Ref: test.also})
			if test.change != nil {
				test.change(c)
			}
			if layer2, bgp := announcing(c); !slices.Equal(layer2, test.want) || !slices.Equal(bgp, test.want) {
				t.Errorf("announced over layer 2 by %v and over BGP by %v, want %v", layer2, bgp, test.want)
			}
		})
	}
}

// TestAGuestChangesNothing: whatever guests come, and whatever their labels, policies and endpoints, each node
// announces what it announced without them, while it serves what was there.
func TestAGuestChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := func(of string) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t, of)
		}
		policy := func(of string) func(*view.Service) {
			is := rapid.Bool().Draw(t, of+" is local")
			return func(s *view.Service) { s.ExternalLocal = is }
		}
		c := cluster(service(policy("first")), on("http", nodes("first")...)...)
		if rapid.Bool().Draw(t, "selects") {
			for _, ad := range c.BGPAdvertisements {
				ad.ServiceSelectors = []view.Selector{has("public", "yes")}
			}
			c.Services[web].Labels = map[string]string{"public": "yes"}
		}
		layer2, bgp := announcing(c)
		if len(layer2) == 0 {
			return // the guest may have it, while there is nothing else to announce
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "guests") {
			s := other(policy("guest"), guest)
			s.Name, s.Ports[0].Port = fmt.Sprint("guest", i), uint16(1000+i)
			c.Services[s.Ref] = s
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{s.Ref: on("tls", nodes("guest")...)})
		}
		if l, b := announcing(c); !slices.Equal(l, layer2) || !slices.Equal(b, bgp) {
			t.Fatalf("announced by %v and %v, and with guests by %v and %v", layer2, bgp, l, b)
		}
	})
}
