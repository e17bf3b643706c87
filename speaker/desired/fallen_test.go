package desired_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// Endpoints on a node that fell silent get nothing new while there are others. Nothing
// else about the Service changes by it.
func TestEndpointsOnFallenNodes(t *testing.T) {
	for name, test := range map[string]struct {
		fallen    []string
		endpoints []view.Endpoint
		want      []string
	}{
		"others serve": {
			fallen:    []string{"b"},
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"), endpoint("10.0.0.3", "c")},
			want:      []string{"10.0.0.1:8080", "10.0.0.3:8080"},
		},
		"the last endpoint stays": {
			fallen:    []string{"b", "c"},
			endpoints: []view.Endpoint{endpoint("10.0.0.2", "b"), endpoint("10.0.0.3", "c")},
			want:      []string{"10.0.0.2:8080", "10.0.0.3:8080"},
		},
		"one that is not ready is no other": {
			fallen:    []string{"b"},
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "a", dead), endpoint("10.0.0.2", "b")},
			want:      []string{"10.0.0.2:8080"},
		},
		"one that terminates and serves is": {
			fallen:    []string{"b"},
			endpoints: []view.Endpoint{endpoint("10.0.0.1", "c", terminating), endpoint("10.0.0.2", "b")},
			want:      []string{"10.0.0.1:8080"},
		},
		"the zone's others": {
			fallen: []string{"b"},
			endpoints: []view.Endpoint{
				endpoint("10.0.0.1", "c", forZones("z-a")), endpoint("10.0.0.2", "b", forZones("z-a")), endpoint("10.0.0.3", "c", forZones("z-c")),
			},
			want: []string{"10.0.0.1:8080"},
		},
		"another zone's where the own has fallen": {
			fallen:    []string{"b"},
			endpoints: []view.Endpoint{endpoint("10.0.0.2", "b", forZones("z-a")), endpoint("10.0.0.3", "c", forZones("z-c"))},
			want:      []string{"10.0.0.3:8080"},
		},
		"endpoints of no node": {
			fallen:    []string{"b"},
			endpoints: []view.Endpoint{endpoint("10.0.0.1", ""), endpoint("10.0.0.2", "b")},
			want:      []string{"10.0.0.1:8080"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(service(), test.endpoints...)
			c.Fall(view.RollCall{Alive: []string{"a", "b", "c"}, Silent: test.fallen})
			_, problems := fresh(c, onNode("a"))
			var told []string
			for _, p := range problems {
				if p.Reason == desired.ReasonNodeSilent {
					told = append(told, p.Object.Name)
				}
			}
			if diff := cmp.Diff(test.fallen, told); diff != "" {
				t.Errorf("told of (-want +got):\n%s", diff)
			}
			got := port(t, c, "a", addr.IPv4)
			if diff := cmp.Diff(targets(test.want...), got.Cluster, compare); diff != "" {
				t.Errorf("Cluster (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever falls: a Service that has endpoints without it has some with it, none of them
// on a fallen node if another could be had, and its own node's set stays as it was.
func TestNobodyFallsForNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"a", "b", "c", ""}
		var endpoints []view.Endpoint
		for i := range rapid.IntRange(0, 5).Draw(t, "endpoints") {
			e := endpoint(fmt.Sprintf("10.0.0.%d", i+1), rapid.SampledFrom(nodes).Draw(t, "node"))
			e.Ready, e.Serving, e.Terminating = rapid.Bool().Draw(t, "ready"), rapid.Bool().Draw(t, "serving"), rapid.Bool().Draw(t, "terminating")
			endpoints = append(endpoints, e)
		}
		standing := cluster(service(), endpoints...)
		fell := *standing
		fell.Fallen = map[string]struct{}{}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"b", "c"}), rapid.ID).Draw(t, "fallen") {
			fell.Fallen[name] = struct{}{}
		}
		key := desired.PortKey{Service: web, Name: "http", Protocol: view.TCP, Family: addr.IPv4}
		of := func(c *view.Cluster) desired.Port {
			node, _ := fresh(c, onNode("a"))
			return node.Forwarding.Ports[key]
		}
		before, after := of(standing), of(&fell)
		if (len(before.Cluster) > 0) != (len(after.Cluster) > 0) || before.Anywhere != after.Anywhere {
			t.Fatalf("%v became %v", before.Cluster, after.Cluster)
		}
		if !slices.Equal(before.Local, after.Local) {
			t.Fatalf("the node's own endpoints %v became %v", before.Local, after.Local)
		}
		down := func(at string) bool {
			for _, e := range endpoints {
				if e.Addr.String() == at {
					_, gone := fell.Fallen[e.Node]
					return gone
				}
			}
			return false
		}
		fallen, others := 0, 0
		for _, to := range after.Cluster {
			if down(to.Addr().String()) {
				fallen++
			}
		}
		for _, e := range endpoints {
			if (e.Ready || e.Serving && e.Terminating) && !down(e.Addr.String()) {
				others++
			}
		}
		if fallen > 0 && others > 0 {
			t.Fatalf("of %v some are on fallen nodes %v, and %d others could be had", after.Cluster, fell.Fallen, others)
		}
	})
}
