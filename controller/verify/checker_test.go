package verify_test

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/view"
)

// redraw changes something that is no Service, at times.
func redraw(t *rapid.T, c *view.Cluster) {
	switch rapid.IntRange(0, 15).Draw(t, "what else") {
	case 0:
		c.Nodes = map[string]*view.Node{"n1": c.Nodes["n1"], "n2": {Name: "n2", Excluded: rapid.Bool().Draw(t, "excluded")}}
	case 1:
		c.Speakers = rapid.SampledFrom([]map[string]view.Speaker{nil, {"n1": {Node: "n1"}}, {"n1": {Node: "n1"}, "n2": {Node: "n2"}}}).Draw(t, "speakers")
	case 2:
		c.L2Advertisements = maps.Clone(c.L2Advertisements)
		c.L2Advertisements["red"] = &view.L2Advertisement{Name: "red", ServiceSelectors: []view.Selector{labelled(rapid.SampledFrom([]string{"red", "green"}).Draw(t, "chosen"))}}
	case 3:
		c.L2Advertisements = maps.Clone(c.L2Advertisements)
		c.L2Advertisements["all"] = &view.L2Advertisement{
			Name: "all", NodeSelectors: rapid.SampledFrom([][]view.Selector{nil, {labelled("first")}}).Draw(t, "nodes"),
		}
	case 4:
		c.L2Advertisements = maps.Clone(c.L2Advertisements)
		delete(c.L2Advertisements, "all")
	case 5:
		c.Pools = map[string]*view.Pool{"lan": {Name: "lan", Ranges: []netipx.IPRange{netipx.RangeOfPrefix(netip.PrefixFrom(netip.MustParseAddr("192.0.2.0"), 31))}}}
	case 6:
		c.BGPAdvertisements = rapid.SampledFrom([]map[string]*view.BGPAdvertisement{nil, {"all": {Name: "all"}}}).Draw(t, "over BGP")
		c.BGPPeers = map[string]*view.BGPPeer{"tor": peer("tor", "192.0.2.129", 179)}
	case 7:
		c.BGPSessions = map[string]*view.BGPSession{}
		for _, node := range []string{"n1", "n2"} {
			c.BGPSessions[node] = &view.BGPSession{Node: node, Peer: "tor", Established: rapid.Bool().Draw(t, node+" is up"), Changed: time.Unix(1, 0)}
		}
	case 8:
		vip := netip.MustParseAddr("192.0.2.1")
		c.Withheld = rapid.SampledFrom([]map[netip.Addr]string{nil, {vip: "taken"}, {vip: "taken by another"}, {vip.Next(): "taken"}}).Draw(t, "withheld")
	default:
	}
}

// TestACheckerDependsOnTheLastSnapshotAlone: what it finds after any history is what is found in the last snapshot
// alone.
func TestACheckerDependsOnTheLastSnapshotAlone(t *testing.T) {
	t.Parallel()
	vip := netip.MustParseAddr("192.0.2.1")
	rapid.Check(t, func(t *rapid.T) {
		c := &view.Cluster{
			Services: map[view.Ref]*view.Service{},
			Pools:    map[string]*view.Pool{"lan": {Name: "lan", Ranges: []netipx.IPRange{netipx.RangeOfPrefix(netip.PrefixFrom(vip, 28))}}},
			Nodes:    map[string]*view.Node{"n1": {Name: "n1", Labels: map[string]string{"first": "yes"}}, "n2": {Name: "n2"}},
			L2Advertisements: map[string]*view.L2Advertisement{
				"blue": {Name: "blue", ServiceSelectors: []view.Selector{labelled("blue")}, NodeSelectors: []view.Selector{labelled("first")}},
				"red":  {Name: "red", ServiceSelectors: []view.Selector{labelled("red")}, NodeSelectors: []view.Selector{labelled("first")}},
			},
		}
		var checker verify.Checker
		for range 20 {
			next := *c
			next.Services = maps.Clone(c.Services)
			next.Changes = view.Changes{Revision: c.Revision + 1, Since: c.Revision, Touched: map[view.Ref]struct{}{}}
			redraw(t, &next)
			for range rapid.IntRange(0, 2).Draw(t, "changes") {
				s := view.Service{
					Ref: view.Ref{
						Namespace: rapid.SampledFrom([]string{"shop", "shop", "dns"}).Draw(t, "namespace"),
						Name:      rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
					},
					Type:  rapid.SampledFrom([]view.ServiceType{view.LoadBalancer, view.LoadBalancer, view.ClusterIP}).Draw(t, "type"),
					VIPs:  rapid.SampledFrom([][]netip.Addr{nil, {vip}, {vip}, {vip.Next()}, {vip, vip.Next()}}).Draw(t, "VIPs"),
					Ports: port, ExternalLocal: rapid.Bool().Draw(t, "Local"),
					Labels:  map[string]string{rapid.SampledFrom([]string{"red", "blue", "green"}).Draw(t, "label"): "yes"},
					Request: view.Request{ShareKey: view.Secret(rapid.SampledFrom([]string{"", "k"}).Draw(t, "key"))},
				}
				next.Touched[s.Ref] = struct{}{}
				endpoints := on(rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node"))
				next.Services[s.Ref] = &s
				if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
					delete(next.Services, s.Ref)
				}
				next.Endpoints = next.Endpoints.With(map[view.Ref][]view.Endpoint{s.Ref: endpoints})
			}
			c = &next
			if rapid.IntRange(0, 9).Draw(t, "missed") == 0 {
				continue
			}
			if d := cmp.Diff(check(c), checker.Check(c, view.Occupied{}, ages)); d != "" {
				t.Fatalf("(-from nothing +checker):\n%s", d)
			}
		}
	})
}
