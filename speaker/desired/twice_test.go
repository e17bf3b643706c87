package desired_test

import (
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// TestContradictorySlices: one address that is ready on two nodes, or ready and not, by slices in any order, is one and the same for all nodes,
// in forwarding, health checks and announcements alike, and told; what is no contradiction is not.
func TestContradictorySlices(t *testing.T) {
	another := func(e *view.Endpoint) { e.Ports = []view.EndpointPort{{Name: "http", Protocol: view.TCP, Port: 9090}} }
	for name, test := range map[string]struct {
		endpoints []view.Endpoint
		on        string // the one node that has it; "": not looked at
		told      string
	}{
		"of two controllers": {[]view.Endpoint{endpoint("10.0.0.1", "b"), endpoint("10.0.0.1", "a")}, "a", "10.0.0.1 on a and b"},
		"in IPv6":            {[]view.Endpoint{endpoint("fd00::1", "c"), endpoint("fd00::1", "b")}, "b", "fd00::1 on b and c"},
		"both families": {
			[]view.Endpoint{endpoint("fd00::1", "c"), endpoint("10.0.0.1", "b"), endpoint("fd00::1", "b"), endpoint("10.0.0.1", "c")}, "b", "10.0.0.1 on b and c, fd00::1 on b and c",
		},
		"a third one":                           {[]view.Endpoint{endpoint("10.0.0.1", "c"), endpoint("10.0.0.1", "b"), endpoint("10.0.0.1", "a")}, "a", "10.0.0.1 on a and b and c"},
		"twice on one node":                     {[]view.Endpoint{endpoint("10.0.0.1", "a"), endpoint("10.0.0.1", "a")}, "a", ""},
		"ready and not ready":                   {[]view.Endpoint{endpoint("10.0.0.1", "b", dead), endpoint("10.0.0.1", "b")}, "b", "it gets flows: 10.0.0.1"},
		"ready, and not where no node is named": {[]view.Endpoint{endpoint("fd00::1", "", dead), endpoint("fd00::1", "b")}, "b", "it gets flows: fd00::1"},
		"not ready twice":                       {[]view.Endpoint{endpoint("10.0.0.1", "b", dead), endpoint("10.0.0.1", "b", dead)}, "", ""},
		"not ready, and it terminates":          {[]view.Endpoint{endpoint("10.0.0.1", "b", terminating), endpoint("10.0.0.1", "b")}, "b", ""},
		"one terminates":                        {[]view.Endpoint{endpoint("10.0.0.1", "a", terminating), endpoint("10.0.0.1", "b")}, "b", ""},
		"one is not ready":                      {[]view.Endpoint{endpoint("10.0.0.1", "a", dead), endpoint("10.0.0.1", "b")}, "b", ""},
		"one names no node":                     {[]view.Endpoint{endpoint("10.0.0.1", ""), endpoint("10.0.0.1", "b")}, "b", ""},
		"another port is another":               {[]view.Endpoint{endpoint("10.0.0.1", "a", another), endpoint("10.0.0.1", "b")}, "", ""},
		"and of course one of all":              {[]view.Endpoint{endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			reversed := slices.Clone(test.endpoints)
			slices.Reverse(reversed)
			for _, endpoints := range [][]view.Endpoint{test.endpoints, reversed} {
				c := cluster(service(local, func(s *view.Service) { s.HealthCheckPort = 30001 }), endpoints...)
				family := addr.FamilyOf(endpoints[0].Addr)
				var told []string
				for _, node := range []string{"a", "b", "c"} {
					decided, problems := fresh(c, onNode(node))
					if here := node == test.on; test.on != "" && (len(port(t, c, node, family).Local) > 0 != here || decided.Health[web].Ready[family] > 0 != here) {
						t.Errorf("node %s has %v, and its health check says %d; it is to be on %s", node, port(t, c, node, family).Local, decided.Health[web].Ready[family], test.on)
					}
					if nodes := view.UsableOf(c.Services[web], endpoints, family).Nodes(); test.on != "" && !slices.Equal(nodes, []string{test.on}) {
						t.Errorf("announced from %v, want %s", nodes, test.on)
					}
					for _, p := range problems {
						if p.Object.Kind == "Service" {
							told = append(told, p.Message)
						}
					}
				}
				slices.Sort(told)
				told = slices.Compact(told)
				if (test.told == "") != (len(told) == 0) || len(told) > 1 || len(told) == 1 && !strings.Contains(told[0], test.told+";") {
					t.Errorf("told %q, want %q", told, test.told)
				}
			}
		})
	}
}
