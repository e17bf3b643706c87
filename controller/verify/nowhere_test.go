package verify_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/view"
)

// TestAnnouncedByNobody: a Service that has an address is told where advertisements cover its pool,
// and none of them has a node announce it.
func TestAnnouncedByNobody(t *testing.T) {
	t.Parallel()
	ref := view.Ref{Namespace: "shop", Name: "web"}
	label := func(names ...string) map[string]string {
		labels := map[string]string{}
		for _, name := range names {
			labels[name] = "yes"
		}
		return labels
	}
	serving := func(nodes ...string) view.Endpoints {
		var none view.Endpoints
		return none.With(map[view.Ref][]view.Endpoint{ref: on(nodes...)})
	}
	const (
		elsewhere = "Service/shop/web: NoServingNode: 192.0.2.1 is announced by nobody: under externalTrafficPolicy Local only nodes with endpoints announce it, and its endpoints "
		wayOut    = "; run its pods on nodes that announce, or set the policy Cluster"
		unable    = "Service/shop/web: NoServingNode: 192.0.2.1 is announced by nobody: no node that its advertisements choose may announce: "
		labelOff  = "remove the label node.kubernetes.io/exclude-from-external-load-balancers, which control-plane nodes usually have, or set speaker.ignoreExcludeLB of the chart; " +
			"or out of service: remove the taint node.kubernetes.io/out-of-service"
		unableOut = "; or have an advertisement choose other nodes"
		others    = "Service/shop/web: ServiceNotSelected: 192.0.2.1 is announced by nobody: of the advertisements that cover its IPAddressPool none chooses the Service by spec.serviceSelectors: "
		relabel   = "; label the Service, or correct the selectors"
		down      = "no BGP session is established: see the condition Established of BGPPeer "
	)
	now, taken := time.Now(), map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "node n1 does not answer"}
	overBGP := func(c *view.Cluster, down ...*view.BGPSession) {
		c.L2Advertisements, c.BGPAdvertisements = nil, map[string]*view.BGPAdvertisement{"all": {Name: "all"}}
		c.BGPSessions = map[string]*view.BGPSession{}
		for _, s := range down {
			s.Changed = now.Add(-time.Minute)
			c.BGPSessions[s.Node+s.Peer] = s
		}
	}
	all := func() []*view.BGPSession {
		return []*view.BGPSession{{Node: "n1", Peer: "first"}, {Node: "n1", Peer: "anywhere"}, {Node: "n2", Peer: "anywhere"}, {Node: "n3", Peer: "anywhere"}}
	}
	for name, test := range map[string]struct {
		change func(c *view.Cluster, s *view.Service, l2 *view.L2Advertisement)
		want   string
	}{
		"an endpoint on a node that announces": {
			change: func(*view.Cluster, *view.Service, *view.L2Advertisement) {},
		},
		"endpoints on other nodes": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) { c.Endpoints = serving("n3", "n2") },
			want:   elsewhere + "are on n2 n3, which no advertisement of the address chooses" + wayOut,
		},
		"an address that another machine has": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) { c.Withheld = taken },
			want:   "Service/shop/web: AddressTaken: 192.0.2.1 is announced by nobody: node n1 does not answer",
		},
		"one that a router is told of as well": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) {
				c.Withheld, c.BGPAdvertisements = taken, map[string]*view.BGPAdvertisement{"all": {Name: "all"}}
			},
		},
		"one that a router would be told of": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) {
				l2Advertisements := c.L2Advertisements
				overBGP(c, all()...)
				c.Withheld, c.L2Advertisements = taken, l2Advertisements
			},
			want: "Service/shop/web: AddressTaken: 192.0.2.1 is announced by nobody: node n1 does not answer",
		},
		"an address that another machine has, of a Service without endpoints": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) {
				c.Withheld, c.Endpoints = taken, view.Endpoints{}
			},
		},
		"another address that another machine has": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) {
				c.Withheld = map[netip.Addr]string{netip.MustParseAddr("192.0.2.2"): "node n1 does not answer"}
			},
		},
		"the same of policy Cluster": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				c.Endpoints, s.ExternalLocal = serving("n2"), false
			},
		},
		"policy Cluster, and the only node that is chosen is excluded, as a single one that has the control plane": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				s.ExternalLocal, c.Nodes["n1"].Excluded = false, true
			},
			want: unable + "n1: excluded from load balancers: " + labelOff + unableOut,
		},
		"policy Cluster, excluded, and there is no endpoint yet": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				s.ExternalLocal, c.Nodes["n1"].Excluded, c.Endpoints = false, true, serving()
			},
			want: unable + "n1: excluded from load balancers: " + labelOff + unableOut,
		},
		"policy Cluster, and no node that is chosen may announce, each for a reason of its own": {
			change: func(c *view.Cluster, s *view.Service, l2 *view.L2Advertisement) {
				s.ExternalLocal, l2.NodeSelectors = false, nil
				c.Nodes["n1"].Condemned, c.Nodes["n2"].NetworkUnavailable, c.Nodes["n4"] = true, true, &view.Node{Name: "n4"}
				c.Speakers = map[string]view.Speaker{"n1": {Node: "n1"}}
			},
			want: unable + "n1: about to be deleted by an autoscaler; n2: without network: see the condition NetworkUnavailable of the node; " +
				"n3 n4: without a speaker: see speaker.nodeSelector and speaker.tolerations of the chart" + unableOut,
		},
		"policy Cluster, and the routers are for excluded nodes alone": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				s.ExternalLocal, c.Nodes["n1"].Excluded, c.L2Advertisements = false, true, nil
				c.BGPAdvertisements = map[string]*view.BGPAdvertisement{"all": {Name: "all", Peers: []string{"first"}}}
			},
			want: unable + "n1: excluded from load balancers: " + labelOff + unableOut,
		},
		"policy Cluster, and another advertisement chooses a node that announces": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				s.ExternalLocal, c.Nodes["n1"].Excluded = false, true
				c.BGPAdvertisements = map[string]*view.BGPAdvertisement{"all": {Name: "all"}}
			},
		},
		"policy Cluster, and all BGP sessions are down": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				s.ExternalLocal, c.Nodes["n3"].Excluded = false, true
				overBGP(c, all()...)
			},
			want: unable + "n1: " + down + "anywhere first; n2: " + down + "anywhere; n3: excluded from load balancers: " + labelOff + unableOut,
		},
		"policy Cluster, all are down, and layer 2 announces": {
			change: func(c *view.Cluster, s *view.Service, l2 *view.L2Advertisement) {
				s.ExternalLocal = false
				overBGP(c, all()...)
				c.L2Advertisements = map[string]*view.L2Advertisement{"lan": l2}
			},
		},
		"policy Cluster, and all but one are down": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				s.ExternalLocal = false
				overBGP(c, all()...)
				c.BGPSessions["n1first"].Established = true
			},
		},
		"policy Cluster, and of one nothing is known": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				s.ExternalLocal = false
				overBGP(c, all()[1:]...)
			},
		},
		"policy Cluster, and one has been down for a moment": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				s.ExternalLocal = false
				overBGP(c, all()...)
				c.BGPSessions["n1first"].Changed = now.Add(-9 * time.Second)
			},
		},
		"those of the only node with endpoints are down": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) { overBGP(c, all()[:2]...) },
			want:   elsewhere + "are on n1, where " + down + "anywhere first" + wayOut,
		},
		"policy Cluster, and no speaker says anything yet": {
			change: func(_ *view.Cluster, s *view.Service, _ *view.L2Advertisement) { s.ExternalLocal = false },
		},
		"another advertisement for these": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) {
				c.Endpoints = serving("n2")
				c.BGPAdvertisements = map[string]*view.BGPAdvertisement{"all": {Name: "all"}}
			},
		},
		"another one whose only router is not for these": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) {
				c.Endpoints = serving("n2")
				c.BGPAdvertisements = map[string]*view.BGPAdvertisement{"all": {Name: "all", Peers: []string{"first"}}}
				c.BGPPeers["second"] = peer("second", "192.0.2.2", 179)
			},
			want: elsewhere + "are on n2, which no advertisement of the address chooses" + wayOut,
		},
		"the only node with endpoints is excluded": {
			change: func(c *view.Cluster, _ *view.Service, l2 *view.L2Advertisement) {
				c.Endpoints, l2.NodeSelectors = serving("n2"), nil
				c.Nodes["n2"].Excluded = true
			},
			want: elsewhere + "are on n2, which may announce nothing: excluded from load balancers, out of service, about to be deleted by an autoscaler, without network, or without a speaker (the chart's speaker.nodeSelector)" + wayOut,
		},
		"it is, and what nobody serves is announced all the same": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) {
				c.Endpoints = serving("n2")
				c.Nodes["n2"].Excluded = true
				c.BGPAdvertisements = map[string]*view.BGPAdvertisement{"all": {Name: "all", WithoutEndpoints: true}}
			},
		},
		"the only node with endpoints has no speaker": {
			change: func(c *view.Cluster, _ *view.Service, l2 *view.L2Advertisement) {
				c.Endpoints, l2.NodeSelectors = serving("n2"), nil
				c.Speakers = map[string]view.Speaker{"n1": {Node: "n1"}}
			},
			want: elsewhere + "are on n2, which may announce nothing: excluded from load balancers, out of service, about to be deleted by an autoscaler, without network, or without a speaker (the chart's speaker.nodeSelector)" + wayOut,
		},
		"it has one": {
			change: func(c *view.Cluster, _ *view.Service, l2 *view.L2Advertisement) {
				c.Endpoints, l2.NodeSelectors = serving("n2"), nil
				c.Speakers = map[string]view.Speaker{"n2": {Node: "n2"}}
			},
		},
		"no node that is chosen may announce": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) { c.Nodes["n1"].Excluded = true },
			want:   unable + "n1: excluded from load balancers: " + labelOff + unableOut, // another policy or another node would not help
		},
		"endpoints of no node": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) { c.Endpoints = serving("") },
			want:   elsewhere + "name no node" + wayOut,
		},
		"no endpoints": {
			change: func(c *view.Cluster, _ *view.Service, _ *view.L2Advertisement) { c.Endpoints = serving() },
		},
		"an address of no pool": {
			change: func(c *view.Cluster, s *view.Service, _ *view.L2Advertisement) {
				c.Endpoints, s.VIPs = serving("n2"), []netip.Addr{netip.MustParseAddr("198.51.100.1")}
			},
		},
		"an advertisement of others only": {
			change: func(_ *view.Cluster, s *view.Service, l2 *view.L2Advertisement) {
				s.ExternalLocal, l2.ServiceSelectors = false, []view.Selector{labelled("public")}
			},
			want: others + "L2Advertisement lan" + relabel,
		},
		"an advertisement of it": {
			change: func(_ *view.Cluster, s *view.Service, l2 *view.L2Advertisement) {
				s.Labels, l2.ServiceSelectors = label("public"), []view.Selector{labelled("public")}
			},
		},
		"an advertisement of it by which no node goes is the pool's business": {
			change: func(_ *view.Cluster, s *view.Service, l2 *view.L2Advertisement) {
				s.Labels, l2.ServiceSelectors = label("public"), []view.Selector{labelled("public")}
				l2.NodeSelectors = []view.Selector{labelled("none")}
			},
			want: "L2Advertisement/lan: NoNodeSelected: nothing is announced by it: the advertisement chooses no node by spec.nodeSelectors: label a node, or correct them",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &view.Service{Ref: ref, Type: view.LoadBalancer, ExternalLocal: true, VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Ports: port}
			// Another one has the label, so that no selector is for nobody at all.
			other := &view.Service{Ref: view.Ref{Namespace: "shop", Name: "other"}, Type: view.LoadBalancer, Labels: label("public")}
			l2 := &view.L2Advertisement{Name: "lan", NodeSelectors: []view.Selector{labelled("edge")}}
			c := &view.Cluster{
				Pools:            map[string]*view.Pool{"lan": {Name: "lan", Ranges: []netipx.IPRange{netipx.MustParseIPRange("192.0.2.0-192.0.2.9")}}},
				Nodes:            map[string]*view.Node{"n1": {Name: "n1", Labels: label("edge")}, "n2": {Name: "n2"}, "n3": {Name: "n3"}},
				Services:         map[view.Ref]*view.Service{ref: s, other.Ref: other},
				L2Advertisements: map[string]*view.L2Advertisement{"lan": l2},
				BGPPeers:         map[string]*view.BGPPeer{"first": peer("first", "192.0.2.1", 179, labelled("edge"))},
				Endpoints:        serving("n1"),
			}
			c.BGPPeers["anywhere"] = peer("anywhere", "192.0.2.3", 179)
			test.change(c, s, l2)
			var got []string
			for _, p := range new(verify.Checker).Check(c, view.Occupied{}, now) {
				if p.Object.Kind != "BGPPeer" { // of which not all are announced to
					got = append(got, p.String())
				}
			}
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}
