package desired_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// TestRefusedPrefixes: what nodes announce and no port serves is refused, but for what other machines may have.
func TestRefusedPrefixes(t *testing.T) {
	foreign := func(s *view.Service) { s.ProxiedElsewhere = true }
	for name, test := range map[string]struct {
		service *view.Service
		change  func(*view.Cluster)
		want    []netip.Prefix
	}{
		"an aggregate":                         {service(), func(*view.Cluster) {}, prefixes("192.0.2.0/28")},
		"nothing, without a session":           {service(), func(c *view.Cluster) { c.BGPPeers = nil }, nil},
		"a Service of another proxy":           {service(foreign), func(c *view.Cluster) { c.BGPPeers = nil }, prefixes("192.0.2.10/32", "2001:db8::10/128")},
		"a Service of another proxy and class": {service(foreign, func(s *view.Service) { s.Class = "example.com/lb" }), func(*view.Cluster) {}, nil},
		"a reservation in an aggregate": {service(), func(c *view.Cluster) {
			c.Reservations = map[view.Ref]*view.Reservation{{Name: "r"}: {Held: ips("192.0.2.0")}}
		}, prefixes("192.0.2.0/28")},
		"a node in an aggregate": {service(), func(c *view.Cluster) { c.Nodes["b"].Addresses = ips("192.0.2.15") }, prefixes("192.0.2.0/29", "192.0.2.8/30", "192.0.2.12/31", "192.0.2.14/32")},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(test.service, endpoint("10.0.0.1", "a"), endpoint("fd00::1", "b"))
			c.BGPPeers = map[string]*view.BGPPeer{"tor": {Name: "tor", PeerAddress: ip("198.51.100.1"), MyASN: 64512, PeerASN: 64513}}
			c.BGPAdvertisements = map[string]*view.BGPAdvertisement{"all": {Name: "all", AggregationLength: map[addr.Family]int{addr.IPv4: 28}}}
			test.change(c)
			node, _ := fresh(c, onNode("a"))
			if got := node.Forwarding.Refused; !slices.Equal(got, test.want) {
				t.Errorf("refused are %v, want %v", got, test.want)
			}
		})
	}
}

// TestOnlyAnnouncedVIPsAreRefusedAndPinged: those of other classes are another load balancer's, which may serve more there.
func TestOnlyAnnouncedVIPsAreRefusedAndPinged(t *testing.T) {
	for name, test := range map[string]struct {
		service          *view.Service
		node             string
		refusing, pinged bool
	}{
		"ours":                      {service(), "a", true, true},
		"of another class":          {service(func(s *view.Service) { s.Class = "example.com/lb" }), "a", false, false},
		"Local with an endpoint":    {service(local), "a", true, true},
		"Local without an endpoint": {service(local), "b", true, false},
	} {
		p := port(t, cluster(test.service, endpoint("10.0.0.1", "a")), test.node, addr.IPv4)
		if refusing, pinged := len(p.Announced) > 0, len(p.Pinged()) > 0; refusing != test.refusing || pinged != test.pinged {
			t.Errorf("%s: other ports are refused %t, pings answered %t; want %t, %t", name, refusing, pinged, test.refusing, test.pinged)
		}
	}
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	c.Services[service().Ref].VIPs = ips("192.0.2.10", "192.0.2.11")
	c.Nodes["b"].Addresses = ips("192.0.2.10")
	if p := port(t, c, "a", addr.IPv4); len(p.VIPs) != 2 || !slices.Equal(p.Announced, ips("192.0.2.11")) || !slices.Equal(p.Pinged(), p.Announced) {
		t.Errorf("a node has the first of the VIPs %v: other ports of %v are refused, pings of %v answered", p.VIPs, p.Announced, p.Pinged())
	}
	c = cluster(service())
	if p := port(t, c, "a", addr.IPv4); len(p.Announced) == 0 || len(p.Pinged()) > 0 {
		t.Errorf("without endpoints: other ports of %v are refused, pings of %v answered", p.Announced, p.Pinged())
	}
	c.Nodes["a"].Addresses = ips("203.0.113.1", "2001:db8:9::1")
	o := onNode("a")
	if node, _ := fresh(c, o); !slices.Equal(node.Forwarding.Echo, ips("203.0.113.1", "2001:db8:9::1")) {
		t.Errorf("%v answer pings", node.Forwarding.Echo)
	}
	o.NoPing = true
	if node, _ := fresh(c, o); len(node.Forwarding.Echo) != 0 {
		t.Errorf("switched off: %v answer pings", node.Forwarding.Echo)
	}
}
