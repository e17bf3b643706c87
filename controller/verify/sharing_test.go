package verify_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/view"
)

// TestSharedWithoutACommonNode: those who share an address under policy Local are told
// when no node can serve all of them, and who is where.
func TestSharedWithoutACommonNode(t *testing.T) {
	t.Parallel()
	vip := netip.MustParseAddr("192.0.2.1")
	ref := func(name string) view.Ref { return view.Ref{Namespace: "shop", Name: name} }
	local := func(name string) *view.Service {
		return &view.Service{Ref: ref(name), Type: view.LoadBalancer, ExternalLocal: true, VIPs: []netip.Addr{vip}, Ports: port}
	}
	for name, test := range map[string]struct {
		endpoints map[string][]view.Endpoint
		change    func(*view.Cluster)
		want      []string
	}{
		"a common node": {
			endpoints: map[string][]view.Endpoint{"a": on("n1", "n2"), "b": on("n2", "n3"), "c": on("n2")},
		},
		"none": {
			endpoints: map[string][]view.Endpoint{"a": on("n1", "n2"), "b": on("n3")},
			want: []string{
				"Service/shop/a: NoCommonNode: 192.0.2.1 is announced by nobody: no node has endpoints of all Services that share it under externalTrafficPolicy Local: shop/a has them on n1 n2, shop/b has them on n3; run their pods on the same nodes, or set the policy Cluster",
				"Service/shop/b: NoCommonNode: 192.0.2.1 is announced by nobody: no node has endpoints of all Services that share it under externalTrafficPolicy Local: shop/a has them on n1 n2, shop/b has them on n3; run their pods on the same nodes, or set the policy Cluster",
			},
		},
		"one without endpoints is in nobody's way": {
			endpoints: map[string][]view.Endpoint{"a": on("n1"), "b": on()},
		},
		"nor is one on nodes that announce nothing": {
			endpoints: map[string][]view.Endpoint{"a": on("n1"), "b": on("n2")},
			change:    func(c *view.Cluster) { c.Nodes["n2"].Excluded = true },
		},
		"of two that are on one without network, each has another one": {
			endpoints: map[string][]view.Endpoint{"a": on("n1", "n2"), "b": on("n2", "n3")},
			change:    func(c *view.Cluster) { c.Nodes["n2"].NetworkUnavailable = true },
			want: []string{
				"Service/shop/a: NoCommonNode: 192.0.2.1 is announced by nobody: no node has endpoints of all Services that share it under externalTrafficPolicy Local: shop/a has them on n1, shop/b has them on n3; run their pods on the same nodes, or set the policy Cluster",
				"Service/shop/b: NoCommonNode: 192.0.2.1 is announced by nobody: no node has endpoints of all Services that share it under externalTrafficPolicy Local: shop/a has them on n1, shop/b has them on n3; run their pods on the same nodes, or set the policy Cluster",
			},
		},
		"nor one of policy Cluster": {
			endpoints: map[string][]view.Endpoint{"a": on("n1"), "b": on("n2")},
			change:    func(c *view.Cluster) { c.Services[ref("b")].ExternalLocal = false },
		},
		"nor one with another address": {
			endpoints: map[string][]view.Endpoint{"a": on("n1"), "b": on("n2")},
			change:    func(c *view.Cluster) { c.Services[ref("b")].VIPs = []netip.Addr{vip.Next()} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &view.Cluster{
				Nodes:    map[string]*view.Node{"n1": {Name: "n1"}, "n2": {Name: "n2"}, "n3": {Name: "n3"}},
				Services: map[view.Ref]*view.Service{},
			}
			for name, endpoints := range test.endpoints {
				c.Services[ref(name)] = local(name)
				c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref(name): endpoints})
			}
			if test.change != nil {
				test.change(c)
			}
			var got []string
			for _, p := range check(c) {
				if got = append(got, p.String()); p.Advisory {
					t.Errorf("%s leaves %s as if it had what it needs", p.Reason, p.Object)
				}
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}
