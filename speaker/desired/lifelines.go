package desired

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/view"
)

// Ports that no Service gets on an address of a node, whatever else has ports of its own there: those of BGP
// (RFC 4271), of BFD over one hop and over several (RFC 5881, RFC 5883), of kubelets where their Nodes do not say
// another, and of etcd, on nodes with an API server.
const (
	portBGP         = 179
	portBFD         = 3784
	portBFDMultihop = 4784
	portKubelet     = 10250
	portEtcd        = 2379
	portEtcdPeers   = 2380
)

// apiServer is the Service of which the API servers themselves are the endpoints.
var apiServer = view.Ref{Namespace: "default", Name: "kubernetes"}

// lifelines are by address what no Service gets of it.
type lifelines map[netip.Addr]lifeline

// lifeline is an address by which a cluster is kept alive.
type lifeline struct {
	of    string   // what has the address, as messages say it
	ports []uint16 // which no Service gets, whatever the protocol; sorted
	node  bool     // a node has it
}

func (l lifeline) equal(o lifeline) bool {
	return l.of == o.of && l.node == o.node && slices.Equal(l.ports, o.ports)
}

// takes reports whether packets to the address and port are never translated.
func (l lifelines) takes(a netip.Addr, port uint16) bool {
	_, is := slices.BinarySearch(l[a].ports, port)
	return is
}

// has reports whether the address is a lifeline's. Another machine answers on its other ports.
func (l lifelines) has(a netip.Addr) bool {
	_, is := l[a]
	return is
}

// leave returns addresses without those with which the port is taken.
func (l lifelines) leave(addresses []netip.Addr, port uint16) []netip.Addr {
	return without(addresses, func(a netip.Addr) bool { return l.takes(a, port) })
}

// free returns addresses without those of lifelines.
func (l lifelines) free(addresses []netip.Addr) []netip.Addr {
	return without(addresses, l.has)
}

// without returns addresses themselves where none is taken.
func without(addresses []netip.Addr, taken func(netip.Addr) bool) []netip.Addr {
	if !slices.ContainsFunc(addresses, taken) {
		return addresses
	}
	return slices.DeleteFunc(slices.Clone(addresses), taken)
}

// differ are the addresses of which something else is taken.
func (l lifelines) differ(o lifelines) map[netip.Addr]struct{} {
	differ := map[netip.Addr]struct{}{}
	for a, one := range l {
		if other, both := o[a]; !both || !one.equal(other) {
			differ[a] = struct{}{}
		}
	}
	for a := range o {
		if _, both := l[a]; !both {
			differ[a] = struct{}{}
		}
	}
	return differ
}

// APIServers returns where the API servers of a cluster are, as the endpoints of Service default/kubernetes say.
func APIServers(c *view.Cluster) (all []netip.AddrPort) {
	for _, e := range c.Endpoints.Of(apiServer) {
		for _, p := range e.Ports {
			all = append(all, netip.AddrPortFrom(e.Addr, p.Port))
		}
	}
	return all
}

// lifelinesOf finds the addresses of nodes, those towards routers included, of routers and of API servers. own are the
// ports that no NodePort of this node can be.
func lifelinesOf(c *view.Cluster, o Options) (found lifelines, own []uint16) {
	found = make(lifelines, 2*len(c.Nodes))
	usual := sorted(append([]uint16{portBGP, portBFD, portBFDMultihop, portKubelet}, o.HostPorts...)...)
	own = usual
	for _, peer := range c.BGPPeers {
		if peer.PeerAddress.IsValid() {
			found.add(peer.PeerAddress, lifeline{of: "a router", ports: sorted(portBGP, peer.PeerPort, portBFD, portBFDMultihop)})
		}
		if peer.SourceAddress.IsValid() {
			found.add(peer.SourceAddress, lifeline{"a node", usual, true})
		}
	}
	servers := map[netip.Addr][]uint16{}
	for _, s := range slices.Concat(APIServers(c), o.APIServers) {
		servers[s.Addr()] = append(servers[s.Addr()], s.Port())
	}
	for name, node := range nodes(c, o) {
		ports := portsOfNode(node, usual, servers)
		for _, a := range slices.Concat(node.Addresses, node.ExternalIPs) {
			found.add(a, lifeline{"a node", ports, true})
		}
		if name == o.Node {
			own = ports
		}
	}
	for a, ports := range servers {
		found.add(a, lifeline{of: "an API server", ports: sorted(ports...)})
	}
	return found, own
}

// add notes what is taken of an address, beside what is known of it.
func (l lifelines) add(a netip.Addr, more lifeline) {
	if known, has := l[a]; has {
		more.node = more.node || known.node
		if !slices.Equal(known.ports, more.ports) {
			more.ports = sorted(slices.Concat(known.ports, more.ports)...)
		}
	}
	l[a] = more
}

// portsOfNode are the ports of a node's own addresses: mostly the usual ones, which are not copied then.
func portsOfNode(node *view.Node, usual []uint16, servers map[netip.Addr][]uint16) []uint16 {
	var more []uint16
	if node.KubeletPort != 0 && node.KubeletPort != portKubelet {
		more = append(more, node.KubeletPort)
	}
	for _, a := range slices.Concat(node.Addresses, node.ExternalIPs) {
		if ports := servers[a]; ports != nil {
			more = append(append(more, portEtcd, portEtcdPeers), ports...)
		}
	}
	if more == nil {
		return usual
	}
	return sorted(slices.Concat(usual, more)...)
}

// sorted are ports in their order, each once, without 0.
func sorted(ports ...uint16) []uint16 {
	ports = slices.DeleteFunc(ports, func(p uint16) bool { return p == 0 })
	slices.Sort(ports)
	return slices.Compact(ports)
}
