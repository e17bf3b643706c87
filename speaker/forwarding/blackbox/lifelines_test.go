package blackbox_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// lifeline is what a Service asks for and must not get, and the host that is reached there.
type lifeline struct {
	server string
	at     func(blackbox.Addresses) netip.Addr
	port   uint16
}

func ofNode(a blackbox.Addresses) netip.Addr  { return a.Node }
func ofOther(a blackbox.Addresses) netip.Addr { return a.Other }

// lifelines are those of a node that has an API server, and of a host that is a router and has another one.
func lifelines() []lifeline {
	var all []lifeline
	for _, port := range []uint16{179, 2379, 3784, 4784, 6443, 7474, 7475, 7476, 10250, 10256} {
		all = append(all, lifeline{"node", ofNode, port})
	}
	for _, port := range []uint16{179, 3784, 4784, 6443} {
		all = append(all, lifeline{"other", ofOther, port})
	}
	return all
}

// ordinary is a port on which no lifeline is.
const ordinary = 8000

// evilCluster is one in which a Service asks for all of the lifelines, and the ordinary port of their addresses: in its
// spec, in the status that another load balancer has written, or by NodePorts.
func evilCluster(how string) *view.Cluster {
	s := &view.Service{Ref: view.Ref{Namespace: "evil", Name: "x"}, Type: view.LoadBalancer, Class: "example.com/other"}
	node := &view.Node{Name: "node", Ready: true}
	c := &view.Cluster{
		Configured: true, Services: map[view.Ref]*view.Service{s.Ref: s}, Nodes: map[string]*view.Node{"node": node},
		BGPPeers: map[string]*view.BGPPeer{},
	}
	var endpoints, servers []view.Endpoint
	ports := map[uint16]bool{ordinary: true}
	for _, l := range lifelines() {
		ports[l.port] = true
	}
	var targets []view.EndpointPort
	for port := range ports {
		for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
			p := view.ServicePort{Name: fmt.Sprint(protocol, port), Protocol: protocol, Port: port}
			if how == "by NodePorts" {
				p.NodePort = port
			}
			s.Ports = append(s.Ports, p)
			targets = append(targets, view.EndpointPort{Name: p.Name, Protocol: protocol, Port: blackbox.ServePort})
		}
	}
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		s.ClusterIPs = append(s.ClusterIPs, blackbox.Nth(a.ClusterIPs, 1))
		switch how {
		case "by externalIPs":
			s.ExternalIPs = append(s.ExternalIPs, a.Node, a.Other)
		case "by a status":
			s.VIPs = append(s.VIPs, a.Node, a.Other)
		}
		node.Addresses = append(node.Addresses, a.Node)
		c.BGPPeers[f.String()] = &view.BGPPeer{Name: f.String(), PeerAddress: a.Other, PeerPort: 179}
		endpoints = append(endpoints, view.Endpoint{Addr: a.P1, Node: "node", Ready: true, Serving: true, Ports: targets})
		for _, at := range []netip.Addr{a.Node, a.Other} {
			servers = append(servers, view.Endpoint{Addr: at, Ports: []view.EndpointPort{{Name: "https", Protocol: view.TCP, Port: 6443}}})
		}
	}
	c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{s.Ref: endpoints, {Namespace: "default", Name: "kubernetes"}: servers})
	return c
}

// TestLifelinesLeadWhereTheyAre has a Service ask for them in each way: every packet reaches the host that has the
// address, from the network and from the node itself; and other ports of a node's address are forwarded, as the
// author of spec.externalIPs or of a NodePort expects.
func TestLifelinesLeadWhereTheyAre(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, l := range lifelines() {
				host := map[string]*netlab.Host{"node": c.Node, "other": c.Other}[l.server]
				host.ServeAt(l.server, netip.AddrPortFrom(l.at(a), l.port))
			}
			c.Node.ServeAt("node", netip.AddrPortFrom(a.Node, ordinary))
		}
		for how, server := range map[string]string{"by externalIPs": "p1", "by a status": "node", "by NodePorts": "p1"} {
			node, _ := desired.NewEngine(desired.Options{Node: "node", HostPorts: []uint16{7474, 7475, 7476, 10256}}).Decide(evilCluster(how))
			node.Forwarding.Delta = desired.Delta[desired.PortKey]{} // of another engine each time
			c.Apply(node.Forwarding)
			var all asking
			ask := func(want string, to netip.AddrPort, from ...*netlab.Host) {
				for _, host := range from {
					for _, protocol := range []string{"tcp", "udp"} {
						all.add(func() error {
							got, err := host.Ask(protocol, to, answerIn)
							if err == nil && got.Server != want {
								err = errors.New(got.Server + " answers")
							}
							if err != nil {
								return fmt.Errorf("%s: %s asks %s over %s: %w; want %s", how, host.Name, to, protocol, err, want)
							}
							return nil
						})
					}
				}
			}
			for _, f := range addr.Families() {
				a := blackbox.Plan(f)
				for _, l := range lifelines() {
					ask(l.server, netip.AddrPortFrom(l.at(a), l.port), c.Client, c.Node)
				}
				ask(server, netip.AddrPortFrom(a.Node, ordinary), c.Client)
			}
			all.report(t)
		}
	})
}
