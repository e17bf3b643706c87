package blackbox_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// hint is what one endpoint says of who is to use it, and whether it is ready; it is
// terminating otherwise. "" is no hint.
type hint struct {
	zone, node  string
	terminating bool
}

// TestTopologyHints has packets follow the hints of EndpointSlices, by which Kubernetes says
// PreferSameZone and PreferSameNode: from the objects of the cluster to who answers. The node
// under test is "node" in zone "here"; p1 and p2 are pods of it, p3 is one of "other".
func TestTopologyHints(t *testing.T) {
	here, there := hint{zone: "here"}, hint{zone: "there"}
	cases := []struct {
		name       string
		zone       string // of the node
		p1, p2, p3 hint
		cluster    string // who answers under policy Cluster
		local      string // who answers strangers under policy Local
	}{
		{"zones", "here", here, there, there, "p1", "p1 p2"},
		{"zones, of which ours is elsewhere", "here", there, there, here, "p3", "p1 p2"},
		{"zones, none of them ours", "here", there, there, there, "p1 p2 p3", "p1 p2"},
		{"one without a hint", "here", here, there, hint{}, "p1 p2 p3", "p1 p2"},
		{"a node without a zone", "", here, there, there, "p1 p2 p3", "p1 p2"},
		{"nodes", "here", hint{node: "node"}, hint{node: "node"}, hint{node: "other"}, "p1 p2", "p1 p2"},
		{"nodes before zones", "here", hint{"there", "other", false}, hint{"there", "node", false}, hint{"here", "other", false}, "p2", "p1 p2"},
		{"nodes, none of them ours, then zones", "here", hint{"there", "other", false}, hint{"here", "other", false}, hint{"there", "other", false}, "p2", "p1 p2"},
		{"one without a node, then zones", "here", hint{"there", "node", false}, hint{"there", "node", false}, here, "p3", "p1 p2"},
		{"the only one of our zone terminates", "here", hint{"here", "", true}, there, there, "p2 p3", "p2"},
		{"who terminates needs no hint", "here", here, hint{terminating: true}, there, "p1", "p1"},
	}
	eachBackend(t, func(t *testing.T, c *cluster) {
		var pods []netip.Prefix
		for _, f := range addr.Families() {
			pods = append(pods, blackbox.Plan(f).Pods)
		}
		engine := desired.NewEngine(desired.Options{Node: "node", Pods: desired.PodDetection{ClusterCIDRs: pods}})
		for _, tt := range cases {
			node, _ := engine.Decide(hinted(tt.zone, tt.p1, tt.p2, tt.p3))
			c.Apply(node.Forwarding)
			var all asking
			for _, f := range addr.Families() {
				a := blackbox.Plan(f)
				for _, s := range c.senders(f)[:5] {
					local := tt.local
					if s.name == "p1" || s.name == "node" {
						local = tt.cluster // the short circuit
					}
					all.add(func() error { return answerFrom(s, netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, 1), 80), tt.cluster) })
					all.add(func() error { return answerFrom(s, netip.AddrPortFrom(blackbox.Nth(a.VIPs, 2), 80), local) })
				}
			}
			if err := all.all(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	})
}

// answerFrom asks until all of these have answered, and nobody else.
func answerFrom(s sender, to netip.AddrPort, servers string) error {
	const most = 100 // one of three stays silent as often with a chance of 10^-17
	var seen []string
	for i := 0; i < most && (i < 12 || len(seen) < len(strings.Fields(servers))); i++ {
		got, err := ask(s, view.TCP, to, answerIn)
		if err != nil {
			return fmt.Errorf("%s -> %s: %w", s.name, to, err)
		}
		if !slices.Contains(seen, got.Server) {
			seen = append(seen, got.Server)
		}
	}
	slices.Sort(seen)
	if got := strings.Join(seen, " "); got != servers {
		return fmt.Errorf("%s -> %s: %s answer, want %s", s.name, to, got, servers)
	}
	return nil
}

// hinted is a cluster with two Services over p1, p2 and p3 with these hints: number 1 of
// policy Cluster, number 2 of policy Local.
func hinted(zone string, hints ...hint) *view.Cluster {
	c := &view.Cluster{Services: map[view.Ref]*view.Service{}, Nodes: map[string]*view.Node{
		"node": {Name: "node", Ready: true, Labels: map[string]string{}}, "other": {Name: "other", Ready: true},
	}}
	if zone != "" {
		c.Nodes["node"].Labels["topology.kubernetes.io/zone"] = zone
	}
	var endpoints []view.Endpoint
	web := func(n byte, local bool) *view.Service {
		return &view.Service{
			Ref: view.Ref{Namespace: "shop", Name: fmt.Sprint("s", n)}, Type: view.LoadBalancer, ExternalLocal: local,
			Ports: []view.ServicePort{{Protocol: view.TCP, Port: 80}},
		}
	}
	services := []*view.Service{web(1, false), web(2, true)}
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		for i, s := range services {
			s.ClusterIPs = append(s.ClusterIPs, blackbox.Nth(a.ClusterIPs, byte(i+1)))
			s.VIPs = append(s.VIPs, blackbox.Nth(a.VIPs, byte(i+1)))
		}
		for i, pod := range []netip.Addr{a.P1, a.P2, a.P3} {
			e := view.Endpoint{
				Addr: pod, Node: []string{"node", "node", "other"}[i], Ready: !hints[i].terminating, Serving: true, Terminating: hints[i].terminating,
				Ports: []view.EndpointPort{{Protocol: view.TCP, Port: blackbox.ServePort}},
			}
			if h := hints[i]; h.zone != "" || h.node != "" {
				e.Hints = &view.Hints{}
				if h.zone != "" {
					e.Hints.ForZones = []string{h.zone}
				}
				if h.node != "" {
					e.Hints.ForNodes = []string{h.node}
				}
			}
			endpoints = append(endpoints, e)
		}
	}
	all := map[view.Ref][]view.Endpoint{}
	for _, s := range services {
		c.Services[s.Ref], all[s.Ref] = s, endpoints
	}
	c.Endpoints = new(view.Endpoints).With(all)
	return c
}
