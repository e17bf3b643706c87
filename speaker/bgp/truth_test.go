package bgp

import (
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// truth is a cluster of nodes a and b, of which a is this one, with a router and a Service.
func truth(policyLocal bool, endpoints ...view.Endpoint) *view.Cluster {
	address := netip.MustParsePrefix(vip).Addr()
	ref := view.Ref{Namespace: "shop", Name: "web"}
	c := &view.Cluster{
		Configured: true,
		Nodes: map[string]*view.Node{
			"a": {Name: "a", Ready: true, Addresses: []netip.Addr{node4, node6}},
			"b": {Name: "b", Ready: true, Addresses: []netip.Addr{node4b}},
		},
		Pools:             map[string]*view.Pool{"all": {Name: "all", Ranges: []netipx.IPRange{netipx.IPRangeFrom(address, address)}}},
		BGPAdvertisements: map[string]*view.BGPAdvertisement{"all": {Name: "all"}},
		BGPPeers: map[string]*view.BGPPeer{"tor": {
			Name: "tor", MyASN: nodeASN, PeerASN: routerASN, PeerAddress: router4, SourceAddress: node4,
			HoldTime: longHold, KeepaliveTime: longHold / 3, GracefulRestart: true,
		}},
		Services: map[view.Ref]*view.Service{ref: {
			Ref: ref, Type: view.LoadBalancer, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
			VIPs: []netip.Addr{address}, Ports: []view.ServicePort{{Protocol: view.TCP, Port: 80}}, ExternalLocal: policyLocal,
		}},
	}
	c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref: endpoints})
	return c
}

// TestFRRFollowsEndpoints has the endpoints of a Service come, be replaced and go, and asks
// the router's kernel each time. Over a rolling update it never loses the route.
func TestFRRFollowsEndpoints(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node4, nodeASN))
	s := newSpeaker(t)
	on := func(node, state string) view.Endpoint {
		e := view.Endpoint{
			Addr: netip.MustParseAddr("10.0.0.1"), Node: node, Ready: state == "ready", Serving: state != "dead", Terminating: state != "ready",
			Ports: []view.EndpointPort{{Protocol: view.TCP, Port: 8080}},
		}
		if state == "ready" {
			e.Addr = e.Addr.Next()
		}
		return e
	}
	apply := func(c *view.Cluster) {
		t.Helper()
		node, problems := desired.For(c, desired.Options{Node: "a", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		mustApply(t, s, node.BGP)
	}
	const local, everyone = true, false
	there := []string{node4.String()}
	apply(truth(local, on("a", "ready")))
	r.waitForKernel(vip, there...)

	// Pods are replaced one after another: here the last one still serves, and no new one is ready.
	lost := r.watchKernel()
	for _, pods := range [][]view.Endpoint{
		{on("a", "terminating")}, {on("a", "terminating"), on("b", "ready")}, {on("a", "terminating"), on("a", "ready")}, {on("a", "ready")},
	} {
		apply(truth(local, pods...))
		if got := s.States()["tor"].Advertised; got != 1 {
			t.Errorf("%d routes are advertised with %v, want the one", got, pods)
		}
	}
	for name, step := range map[string]struct {
		policy bool
		pods   []view.Endpoint
		there  bool
	}{
		"Local, ready here":              {local, []view.Endpoint{on("a", "ready"), on("b", "ready")}, true},
		"Local, ready elsewhere alone":   {local, []view.Endpoint{on("b", "ready")}, false},
		"Local, terminating here":        {local, []view.Endpoint{on("a", "terminating"), on("b", "ready")}, true},
		"Local, dead here":               {local, []view.Endpoint{on("a", "dead"), on("b", "ready")}, false},
		"Cluster, ready elsewhere":       {everyone, []view.Endpoint{on("b", "ready")}, true},
		"Cluster, terminating elsewhere": {everyone, []view.Endpoint{on("b", "terminating")}, true},
		"Cluster, nobody":                {everyone, nil, false},
	} {
		t.Log(name)
		if lost != nil {
			if gone := lost(); len(gone) > 0 {
				t.Errorf("over a rolling update the router lost %v", gone)
			}
			lost = nil
		}
		apply(truth(step.policy, step.pods...))
		if step.there {
			r.waitForKernel(vip, there...)
		} else {
			r.waitForKernel(vip)
		}
	}
	all := truth(everyone)
	all.BGPAdvertisements["all"].WithoutEndpoints = true
	apply(all)
	r.waitForKernel(vip, there...)
	if !slices.Equal(r.kernel(vip), there) {
		t.Error("not announced without endpoints, though that is asked for")
	}
}
