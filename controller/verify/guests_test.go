package verify_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/view"
)

// TestGuestsAreTold: an address is announced for the Services of the namespace that had it first, which hear
// nothing of others, and a guest is told what it lacks there.
func TestGuestsAreTold(t *testing.T) {
	t.Parallel()
	const (
		guest   = "Service/dns/guest: NoCommonNode: 192.0.2.1 is announced by "
		first   = "namespace \"shop\", which had it first"
		none    = guest + "no node that has endpoints of this Service, which externalTrafficPolicy Local asks for: nodes announce it for the Services of " + first + "; run its pods on the nodes that announce it, or set the policy Cluster"
		some    = guest + "2 nodes, and 1 of them have no endpoints of this Service, which externalTrafficPolicy Local asks for: nodes announce it for the Services of " + first + "; run its pods on all that announce it, or set the policy Cluster"
		nowhere = guest + "nobody: nodes announce it for the Services of " + first + ", and none may now; wait, or ask for another address"
	)
	for name, test := range map[string]struct {
		at, also []view.Endpoint
		change   func(c *view.Cluster, host, guest *view.Service)
		want     []string
		advice   bool
	}{
		"on the same nodes":      {at: on("n1", "n2"), also: on("n1", "n2", "n3")},
		"on some of them":        {at: on("n1", "n2"), also: on("n2", "n3"), want: []string{some}, advice: true},
		"on others":              {at: on("n1", "n2"), also: on("n3"), want: []string{none}},
		"on others, and Cluster": {at: on("n1"), also: on("n3"), change: func(_ *view.Cluster, _, guest *view.Service) { guest.ExternalLocal = false }},
		"without endpoints":      {at: on("n1"), also: on()},
		"the first has none":     {at: on(), also: on("n3")},
		"the guest is not chosen by the advertisement": {at: on("n1"), also: on("n1"), change: func(c *view.Cluster, host, _ *view.Service) {
			host.Labels = map[string]string{"public": "yes"}
			c.L2Advertisements["lan"].ServiceSelectors = []view.Selector{labelled("public")}
		}},
		"the first one's are apart": {at: on("n1"), also: on("n1"), change: func(c *view.Cluster, host, _ *view.Service) {
			other := *host
			other.Name = "other"
			c.Services[other.Ref] = &other
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{other.Ref: on("n2")})
		}, want: []string{
			nowhere,
			"Service/shop/host: NoCommonNode: 192.0.2.1 is announced by nobody: no node has endpoints of all Services that share it under externalTrafficPolicy Local: shop/host has them on n1, shop/other has them on n2; run their pods on the same nodes, or set the policy Cluster",
			"Service/shop/other: NoCommonNode: 192.0.2.1 is announced by nobody: no node has endpoints of all Services that share it under externalTrafficPolicy Local: shop/host has them on n1, shop/other has them on n2; run their pods on the same nodes, or set the policy Cluster",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vip := netip.MustParseAddr("192.0.2.1")
			service := func(namespace, name string) *view.Service {
				return &view.Service{
					Ref: view.Ref{Namespace: namespace, Name: name}, Type: view.LoadBalancer, ExternalLocal: true, VIPs: []netip.Addr{vip}, Ports: port,
					Request: view.Request{ShareKey: "k"},
				}
			}
			host, guest := service("shop", "host"), service("dns", "guest")
			guest.Guest = []netip.Addr{vip}
			c := &view.Cluster{
				Pools:            map[string]*view.Pool{"lan": {Name: "lan", Ranges: []netipx.IPRange{netipx.MustParseIPRange("192.0.2.0-192.0.2.9")}}},
				Nodes:            map[string]*view.Node{"n1": {Name: "n1"}, "n2": {Name: "n2"}, "n3": {Name: "n3"}},
				Services:         map[view.Ref]*view.Service{host.Ref: host, guest.Ref: guest},
				L2Advertisements: map[string]*view.L2Advertisement{"lan": {Name: "lan"}},
			}
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{host.Ref: test.at, guest.Ref: test.also})
			if test.change != nil {
				test.change(c, host, guest)
			}
			var got []string
			for _, p := range check(c) {
				got = append(got, p.String())
				if p.Advisory != test.advice {
					t.Errorf("%s is advice: %t", p, p.Advisory)
				}
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}
