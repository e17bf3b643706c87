package desired

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Reasons of the problems that are found here.
const (
	ReasonNoNode      = "NoNode"      // no node at all may announce an address
	ReasonPodsUnknown = "PodsUnknown" // this node cannot tell pods from other senders
	ReasonPodsOutside = "PodsOutside" // pods of this node send from elsewhere than pods are known to
	ReasonNodeSilent  = "NodeSilent"  // a node that Kubernetes calls ready sends no hellos any more
)

// excludeLabel and outOfServiceTaint keep a node from announcing anything, by their mere
// presence.
const (
	excludeLabel      = "node.kubernetes.io/exclude-from-external-load-balancers"
	outOfServiceTaint = "node.kubernetes.io/out-of-service"
)

// Options are the settings of the speaker that decisions depend on.
type Options struct {
	Node string // our own node's name
	// Classes are those of the Services that are announced.
	Classes view.Classes
	// Pods is how pods are told from other senders.
	Pods PodDetection
	// MasqueradeAll masquerades what pods send to ClusterIPs, as all else that goes there is.
	MasqueradeAll bool
	// NoPing leaves pings of VIPs unanswered.
	NoPing bool
	// NodePortCIDRs narrow down on which of the node's addresses NodePorts answer;
	// empty: on its Addresses. On loopback addresses they answer only for a prefix
	// that is within 127.0.0.0/8.
	NodePortCIDRs []netip.Prefix
	// NodePortPrimary adds its Addresses to NodePortCIDRs.
	NodePortPrimary bool
	// ExternalIPs says which spec.externalIPs are forwarded, by ExternalIPCIDRs if listed.
	ExternalIPs     ExternalIPs
	ExternalIPCIDRs []netip.Prefix
	// HostPorts are the ports on which Fairlead itself is reached on every node.
	HostPorts []uint16
	// APIServers are where this node reaches the API server, but for those that it reaches by a name.
	APIServers []netip.AddrPort
	// Resolvers are the DNS servers of this node.
	Resolvers []netip.Addr
}

// mesh is every other node that has an address, with a speaker or without one: a
// speaker's pod is gone for a moment whenever it restarts.
func mesh(c *view.Cluster, o Options) Mesh {
	m := Mesh{Key: c.HelloKey, Peers: map[string]Peer{}}
	for name, node := range c.Nodes {
		if name != o.Node && len(node.Addresses) > 0 {
			m.Peers[name] = Peer{Addrs: node.Addresses, Ready: c.Speakers[name].Ready}
		}
	}
	return m
}

// fallenNodes are the problems of nodes that are believed to be dead while Kubernetes calls them ready.
func fallenNodes(c *view.Cluster) []problem.Problem {
	var problems []problem.Problem
	for name := range c.Fallen {
		if node := c.Nodes[name]; node != nil && node.Ready {
			problems = append(problems, problem.New(problem.Object{Kind: "Node", Name: name}, ReasonNodeSilent,
				"the node's hellos have ended: new flows go to endpoints on other nodes where there are any; "+
					"look whether the node lives and its container pulse runs"))
		}
	}
	return problems
}

// portsOf decides what the kernel does for one Service. addrs are the node's own.
func portsOf(s *view.Service, endpoints []view.Endpoint, from vantage, addrs []netip.Addr, lines lifelines, o Options) (ports map[PortKey]Port, contradictory map[netip.Addr][]string) {
	ports, contradictory = make(map[PortKey]Port, len(s.Ports)), map[netip.Addr][]string{}
	for _, family := range addr.Families() {
		clusterIP := firstOf(s.ClusterIPs, family)
		if !clusterIP.IsValid() {
			continue // without an address of the family the Service is not there for it
		}
		external, vips, guest := allOf(s.ExternalIPs, family), allOf(s.VIPs, family), allOf(s.Guest, family)
		offers, ofFamily := view.OffersByPort(endpoints, family, s.PortNames())
		maps.Copy(contradictory, ofFamily)
		ranges, restricted := restriction(s.SourceRanges, family)
		for _, p := range s.Ports {
			key := PortKey{Service: s.Ref, Name: p.Name, Protocol: p.Protocol, Family: family}
			sets := choose(offers[view.PortName{Name: p.Name, Protocol: p.Protocol}], from)
			port := Port{
				ClusterIP:     clusterIP,
				ExternalIPs:   lines.leave(external, p.Port),
				VIPs:          lines.leave(vips, p.Port),
				Guest:         guest,
				Port:          p.Port,
				NodePort:      p.NodePort,
				Cluster:       sets.cluster,
				Local:         sets.local,
				Serving:       sets.serving,
				Listed:        sets.listed,
				Anywhere:      sets.anywhere,
				InternalLocal: s.InternalLocal,
				ExternalLocal: s.ExternalLocal,
				Affinity:      s.Affinity,
				MasqueradeAll: o.MasqueradeAll,
				PodLinks:      o.Pods.Links,
				SourceRanges:  ranges,
				Restricted:    restricted,
			}
			if announceable(s, o) {
				port.Announced = lines.free(port.VIPs)
			}
			port.SourceRanges = admitItself(port.SourceRanges, addrs, port.VIPs)
			ports[key] = port
		}
	}
	return ports, contradictory
}

// restriction picks the ranges of one family. A range that covers the whole
// family lifts the restriction. A list that names only the other family admits
// no source of this one: kube-proxy admits all of them, which no reader of
// "loadBalancerSourceRanges: [10.0.0.0/8]" expects.
func restriction(ranges []netip.Prefix, family addr.Family) ([]netip.Prefix, bool) {
	if ranges == nil {
		return nil, false
	}
	var own []netip.Prefix
	for _, r := range ranges {
		if addr.FamilyOf(r.Addr()) != family {
			continue
		}
		if r.Bits() == 0 {
			return nil, false
		}
		own = append(own, r)
	}
	slices.SortFunc(own, netip.Prefix.Compare)
	return slices.Compact(own), true
}

// admitItself adds the VIPs to ranges that one of the node's addresses is in. Where a
// VIP is also bound on the node, the node's own requests to it come from the VIP.
func admitItself(ranges []netip.Prefix, addrs, vips []netip.Addr) []netip.Prefix {
	admitted := slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
	})
	if !admitted {
		return ranges
	}
	ranges = slices.Clip(ranges) // other ports have them, too
	for _, vip := range vips {
		ranges = append(ranges, addr.HostPrefix(vip))
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	return slices.Compact(ranges)
}

// nodePorts are the prefixes in which NodePorts answer; loopback those that
// ask for it, and not those that merely have loopback addresses among others. On ::1 they
// cannot: the kernel has nothing like route_localnet for IPv6.
func nodePorts(node *view.Node, o Options) (answering, loopback []netip.Prefix) {
	if o.NodePortPrimary || len(o.NodePortCIDRs) == 0 {
		for _, a := range addresses(node) {
			answering = append(answering, addr.HostPrefix(a))
		}
	}
	for _, p := range o.NodePortCIDRs {
		switch lo := addr.Loopback(); {
		case lo.Contains(p.Addr()) && p.Bits() >= lo.Bits():
			loopback = append(loopback, p)
		case p.Addr().IsLoopback() && p.IsSingleIP():
		default:
			answering = append(answering, p)
		}
	}
	return addr.Summarize(answering), addr.Summarize(loopback)
}

func addresses(node *view.Node) []netip.Addr {
	if node == nil {
		return nil
	}
	return node.Addresses
}

// firstOf is the first address of the family, invalid when there is none.
func firstOf(addresses []netip.Addr, family addr.Family) netip.Addr {
	for _, a := range addresses {
		if addr.FamilyOf(a) == family {
			return a
		}
	}
	return netip.Addr{}
}

// allOf are the addresses of the family, sorted, nil when there are none.
func allOf(addresses []netip.Addr, family addr.Family) []netip.Addr {
	var own []netip.Addr
	for _, a := range addresses {
		if addr.FamilyOf(a) == family {
			own = append(own, a)
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	return slices.Compact(own)
}

// Source is the source address of what is masqueraded and goes to a prefix.
type Source struct {
	To   netip.Prefix
	From netip.Addr // an address of this node of the same family; invalid: that of the interface
}
