package verify_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/view"
)

// TestSharedAndAnnouncedByNobody: an address that two Services share is announced only by an
// advertisement that chooses both, from a node that serves both. Each may be chosen, and
// served where it is chosen, while the address is not announced; then both are told.
func TestSharedAndAnnouncedByNobody(t *testing.T) {
	t.Parallel()
	const (
		unshared = ": ServiceNotSelected: 192.0.2.1 is announced by nobody: of the advertisements that cover its IPAddressPool none chooses all the Services that share it by spec.serviceSelectors: " +
			"some are chosen by L2Advertisement dns, L2Advertisement web; label the Services, or correct the selectors"
		apart = ": NoServingNode: 192.0.2.1 is announced by nobody: under externalTrafficPolicy Local only nodes with endpoints of all Services that share it announce it, and these are on n2, " +
			"which no advertisement of the address chooses; run the pods on nodes that announce, or set the policy Cluster"
	)
	for name, test := range map[string]struct {
		change func(c *view.Cluster, dns, web *view.Service)
		want   []string
	}{
		"one advertisement for both": {
			change: func(c *view.Cluster, _, _ *view.Service) {
				c.L2Advertisements["all"] = &view.L2Advertisement{Name: "all"}
			},
		},
		"one for each": {
			change: func(*view.Cluster, *view.Service, *view.Service) {},
			want:   []string{"Service/shop/dns" + unshared, "Service/shop/web" + unshared},
		},
		"one for each, and each has labels for both": {
			change: func(_ *view.Cluster, dns, web *view.Service) {
				dns.Labels["web"], web.Labels["dns"] = "yes", "yes"
			},
		},
		"served together where nothing is announced": {
			change: func(c *view.Cluster, dns, web *view.Service) {
				c.L2Advertisements = map[string]*view.L2Advertisement{"edge": {Name: "edge", NodeSelectors: []view.Selector{labelled("edge")}}}
				dns.ExternalLocal, web.ExternalLocal = true, true
				c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{dns.Ref: on("n1", "n2"), web.Ref: on("n2", "n3")})
			},
			want: []string{"Service/shop/dns" + apart, "Service/shop/web" + apart},
		},
		"one of policy Cluster is served everywhere": {
			change: func(c *view.Cluster, dns, web *view.Service) {
				c.L2Advertisements = map[string]*view.L2Advertisement{"edge": {Name: "edge", NodeSelectors: []view.Selector{labelled("edge")}}}
				dns.ExternalLocal = true
				c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{dns.Ref: on("n1", "n2"), web.Ref: on("n2")})
			},
		},
		"one that nobody serves takes nothing from the other": {
			change: func(c *view.Cluster, dns, web *view.Service) {
				c.L2Advertisements = map[string]*view.L2Advertisement{"edge": {Name: "edge", NodeSelectors: []view.Selector{labelled("edge")}}}
				dns.ExternalLocal, web.ExternalLocal = true, true
				c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{dns.Ref: on("n1")})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := func(name string) *view.Service {
				return &view.Service{
					Ref: view.Ref{Namespace: "shop", Name: name}, Type: view.LoadBalancer, Labels: map[string]string{name: "yes"},
					VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Ports: port,
					Request: view.Request{ShareKey: "one"},
				}
			}
			ad := func(name string) *view.L2Advertisement {
				return &view.L2Advertisement{Name: name, ServiceSelectors: []view.Selector{labelled(name)}}
			}
			edge := map[string]string{"edge": "yes"}
			dns, web := service("dns"), service("web")
			c := &view.Cluster{
				Pools:            map[string]*view.Pool{"lan": {Name: "lan", Ranges: []netipx.IPRange{netipx.MustParseIPRange("192.0.2.0-192.0.2.9")}}},
				Nodes:            map[string]*view.Node{"n1": {Name: "n1", Labels: edge}, "n2": {Name: "n2"}, "n3": {Name: "n3", Labels: edge}},
				Services:         map[view.Ref]*view.Service{dns.Ref: dns, web.Ref: web},
				L2Advertisements: map[string]*view.L2Advertisement{"dns": ad("dns"), "web": ad("web")},
			}
			test.change(c, dns, web)
			var got []string
			for _, p := range check(c) {
				got = append(got, p.String())
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}
