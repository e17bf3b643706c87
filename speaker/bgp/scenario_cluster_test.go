package bgp

import (
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// theService is that of the command service.
var theService = view.Ref{Namespace: "shop", Name: "web"}

// cluster is one of two nodes with a session to the router each, and of a Service at VIP without endpoints.
func (s *scene) cluster() *view.Cluster {
	c := &view.Cluster{
		Configured: true,
		Nodes: map[string]*view.Node{
			"node1": {Name: "node1", Ready: true, Addresses: []netip.Addr{node4, node6}},
			"node2": {Name: "node2", Ready: true, Addresses: []netip.Addr{node4b, node6b}},
		},
		Pools:             map[string]*view.Pool{"all": {Name: "all"}},
		BGPAdvertisements: map[string]*view.BGPAdvertisement{"all": {Name: "all"}},
		BGPPeers: map[string]*view.BGPPeer{theRouter: {
			Name: theRouter, MyASN: s.asn(), PeerASN: routerASN, PeerAddress: s.local(), PeerPort: 179, HoldTime: longHold, KeepaliveTime: longHold / 3,
		}},
	}
	service := &view.Service{Ref: theService, Type: view.LoadBalancer, Ports: []view.ServicePort{{Protocol: view.TCP, Port: 80}}}
	for _, f := range s.families() {
		address := f.prefixes["VIP"].Addr()
		service.VIPs = append(service.VIPs, address)
		service.ClusterIPs = append(service.ClusterIPs, podOf(f, 1, 9))
		c.Pools["all"].Ranges = append(c.Pools["all"].Ranges, netipx.IPRangeFrom(address, address))
	}
	c.Services = map[view.Ref]*view.Service{theService: service}
	return c
}

// podOf is the address of a pod of a node.
func podOf(f spoken, node, number byte) netip.Addr {
	if f.afi == "ipv6" {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x10, 14: node, 15: number})
	}
	return netip.AddrFrom4([4]byte{10, 0, node, number})
}

// endpoints adds those of one node, by what each of them does: ready, terminating (and serving) or dead.
func (s *scene) endpoints(c *view.Cluster, node string, do []string) {
	all := c.Endpoints.Of(theService)
	for number, does := range do {
		for _, f := range s.families() {
			all = append(all, view.Endpoint{
				Addr: podOf(f, node[len(node)-1]-'0', byte(number+1)), Node: node,
				Ready: does == "ready", Serving: does != "dead", Terminating: does != "ready",
				Ports: []view.EndpointPort{{Protocol: view.TCP, Port: 8080}},
			})
		}
	}
	c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{theService: all})
}

// service has the nodes announce what the cluster's state makes of a Service at VIP, in place of what announce
// said: service [local] [node1=ready,terminating] [node2=ready] [bandwidth=1000] [always]
func (s *scene) service(args []string) {
	c := s.cluster()
	service, advertisement := c.Services[theService], c.BGPAdvertisements["all"]
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "local":
			service.ExternalLocal = true
		case "always":
			advertisement.WithoutEndpoints = true
		case "bandwidth":
			mbits, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				s.fail("%v", err)
			}
			advertisement.EndpointBandwidth = uint32(mbits)
		case "node1", "node2":
			s.endpoints(c, name, strings.Split(value, ","))
		default:
			s.fail("a Service has no %q", arg)
		}
	}
	for i, n := range s.nodes {
		name := "node" + strconv.Itoa(i+1)
		node, problems := desired.NewEngine(desired.Options{Node: name, Pods: desired.PodDetection{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd10::/64")}}}).Decide(c)
		if len(problems) > 0 {
			s.fail("%s: %v", name, problems)
		}
		n.change(func() {
			clear(n.routes)
			maps.Copy(n.routes, node.BGP[theRouter].Routes)
		})
	}
}
