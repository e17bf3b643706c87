// Package desired decides what one node must do: it turns a snapshot of the
// cluster into the whole wanted state of this node's forwarding, layer 2 claims
// and BGP sessions. It is pure, so that the same cluster always gives the same
// node, whatever path led there. Read this package first: the appliers only
// render what it says.
package desired

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// Node is the whole wanted state of one node.
type Node struct {
	Forwarding Forwarding
	Addrs      []netip.Addr // view.Node.Addresses
	// Layer2 has a claim for each address that this node may have to answer for.
	Layer2 map[netip.Addr]Claim
	// Elsewhere are the addresses that other nodes may have to answer for and this one
	// may not, sorted.
	Elsewhere []netip.Addr
	// BGP has the sessions of this node by BGPPeer name.
	BGP map[string]Session
	// BFD has the BFD sessions of this node by BGPPeer name.
	BFD map[string]BFD
	// Unnumbered are the interfaces at whose other ends routers are to be found, sorted.
	Unnumbered []string
	// Announcing numbers the state of Layer2, Elsewhere, BGP, BFD, Unnumbered and Mesh: while it stays, they do.
	Announcing uint64
	// Mesh is whom this node tells that it is alive, and hears.
	Mesh Mesh
	// Health are the Services whose healthCheckNodePort this node answers.
	Health map[view.Ref]HealthCheck
}

// HealthCheck is what a cloud's or a user's load balancer learns when it asks a node
// whether it has endpoints of a Service (spec.healthCheckNodePort, policy Local).
type HealthCheck struct {
	Port uint16
	// Ready counts the distinct addresses of ready endpoints on this node, by the
	// families that the Service has here. Terminating ones do not count, though they
	// are still served (KEP-1669).
	Ready map[addr.Family]int
}

// Mesh is every other node, and the key that proves that a hello is one of ours.
type Mesh struct {
	Key   view.Secret // "": no hello is sent or believed
	Peers map[string]Peer
}

// Peer is another node of the mesh.
type Peer struct {
	Addrs []netip.Addr // view.Node.Addresses
	// Ready: Kubernetes says that a speaker runs there. It is believed only
	// until the first hello is heard.
	Ready bool
}

// Forwarding is what the kernel of one node must do for Services. A backend
// (iptables, nftables) renders it and decides nothing.
type Forwarding struct {
	Ports map[PortKey]Port
	Count map[addr.Family]int // of Ports; nil if nobody counts
	// Pods are the prefixes that pods send from, summarized, both families.
	// They tell pods from strangers (kube-proxy's local detector) to ports without PodLinks.
	// Empty for a family: nobody is taken for a pod. Who sends from a loopback address is
	// none: no pod could answer him.
	Pods []netip.Prefix
	// NodePorts are where NodePorts answer: on the addresses in these prefixes that
	// are this node's own as a packet comes, loopback ones excepted. Summarized, both
	// families.
	NodePorts []netip.Prefix
	// Loopback are the prefixes within 127.0.0.0/8 on whose addresses NodePorts answer as
	// well, but for what arrives from elsewhere. Summarized; nil unless asked for.
	Loopback []netip.Prefix
	// Guard has dropped what arrives from elsewhere to or from 127.0.0.0/8, as the kernel
	// itself does unless net.ipv4.conf.all.route_localnet is set, which Loopback needs
	// (CVE-2020-8558). True wherever Loopback has something.
	Guard bool
	// ServiceRanges have no addresses but ClusterIPs. A packet to a port that a ClusterIP does
	// not have is refused, as by a host on which nobody listens, and one to an address of these
	// ranges that no Service has is dropped, as its Service may be on the way. Neither
	// concerns an address of this node's own, nor a packet that was translated already.
	// Summarized, both families; nil where nobody tells the ranges.
	ServiceRanges []netip.Prefix
	// HealthPorts are the TCP ports of Health, sorted: the node's firewall must let
	// them in.
	HealthPorts []uint16

	// Former has, by VIP that this node may have to answer for on its networks, the address
	// of the node that had it before: of one that another node answers for now, of that node,
	// so that it is in the kernel before the VIP moves. Packets of TCP connections that were
	// open by then, which this node's connection table does not know, are handed over to that
	// node unchanged. nil: it is not known yet, and what an earlier process knew is left alone.
	Former map[netip.Addr]netip.Addr
	// Handing numbers this state of Former, 0 if nobody counts.
	Handing uint64

	// Revision numbers this state of Ports, 0 if nobody counts. Changed holds each
	// key whose port is new, another or gone since revision Since. See Changes.
	Revision, Since uint64
	Changed         map[PortKey]struct{}
}

// Has tells whether there is anything to forward of the family, or to guard.
func (f Forwarding) Has(family addr.Family) bool {
	if f.Guard && family == addr.IPv4 {
		return true
	}
	if f.Count != nil {
		return f.Count[family] > 0
	}
	for key := range f.Ports {
		if key.Family == family {
			return true
		}
	}
	return false
}

// Missing are the ports of which the kernel is not as wanted, each with what it has
// instead, the zero Port for nothing. Those that are not wanted are to go, and have not.
type Missing map[PortKey]Port

// Lacking counts, by family, the wanted ports that are missing.
func (f Forwarding) Lacking(missing Missing) map[addr.Family]int {
	lacking := map[addr.Family]int{}
	for key := range missing {
		if _, wanted := f.Ports[key]; wanted {
			lacking[key.Family]++
		}
	}
	return lacking
}

// Change is what one port was and is to be; nil stands for nothing.
type Change struct {
	Key      PortKey
	From, To *Port
}

// Changes lists what differs between the ports that somebody holds and the wanted
// ones, in the order of their keys. Whoever brought held to revision at before pays
// only for what has changed since; 0 compares all.
func (f Forwarding) Changes(held map[PortKey]Port, at uint64) []Change {
	var changes []Change
	compare := func(key PortKey) {
		from, had := held[key]
		to, wanted := f.Ports[key]
		if had == wanted && from.Equal(to) {
			return
		}
		change := Change{Key: key}
		if had {
			change.From = new(from)
		}
		if wanted {
			change.To = new(to)
		}
		changes = append(changes, change)
	}
	for key := range f.ChangedSince(at, maps.Keys(held)) {
		compare(key)
	}
	slices.SortFunc(changes, func(a, b Change) int { return a.Key.Compare(b.Key) })
	return changes
}

// ChangedSince yields the keys of all ports that may be others than they were at a
// revision, 0 for one that is not known. What is gone it finds among held.
func (f Forwarding) ChangedSince(revision uint64, held iter.Seq[PortKey]) iter.Seq[PortKey] {
	switch {
	case revision != 0 && revision == f.Revision:
		return func(func(PortKey) bool) {}
	case revision != 0 && revision == f.Since:
		return maps.Keys(f.Changed)
	}
	return func(yield func(PortKey) bool) {
		for key := range f.Ports {
			if !yield(key) {
				return
			}
		}
		for key := range held {
			if _, wanted := f.Ports[key]; !wanted && !yield(key) {
				return
			}
		}
	}
}

// PortKey names one port of one Service in one family: the unit of forwarding.
type PortKey struct {
	Service  view.Ref
	Name     string // the Service port's name, "" for an unnamed one
	Protocol view.Protocol
	Family   addr.Family
}

// Compare orders by Service, name, protocol and family.
func (k PortKey) Compare(o PortKey) int {
	return cmp.Or(k.Service.Compare(o.Service), cmp.Compare(k.Name, o.Name),
		cmp.Compare(k.Protocol, o.Protocol), cmp.Compare(k.Family, o.Family))
}

// Port is what a node does with traffic to one Service port in one family.
//
// Destinations are ClusterIP:Port (internal), VIPs and ExternalIPs:Port and the
// node's own addresses:NodePort (external), loopback ones for itself alone. Each is served by one of two sets of
// endpoints:
//
//	internal                         InternalLocal ? Local : Cluster
//	external, policy Cluster         Cluster, masqueraded
//	external, policy Local
//	  from pods                      Cluster, not masqueraded (short circuit)
//	  from this node                 Cluster, masqueraded (short circuit)
//	  from anyone else               Local, not masqueraded: the pod sees the client
//	internal, not from a pod         masqueraded; with MasqueradeAll from a pod, too
//	an endpoint to itself (hairpin)  masqueraded
//
// A pod is who sends from an address in Forwarding.Pods or, if there are any, by one of
// PodLinks.
//
// An empty set refuses (ICMP port unreachable), or drops where the set is Local
// and Anywhere says that endpoints exist on other nodes.
//
// Where destinations meet, one port has them for all senders, whatever it does with
// their packets: an address of a Service comes before a NodePort, the lowest key
// before others, and what is several of these to one port is a VIP rather than an
// ExternalIP, and that rather than a ClusterIP.
type Port struct {
	ClusterIP   netip.Addr // invalid: none in this family
	ExternalIPs []netip.Addr
	VIPs        []netip.Addr
	Port        uint16
	NodePort    uint16 // 0: none

	Cluster, Local []netip.AddrPort // sorted, no duplicates
	// Serving are the endpoints, on any node, that still serve: ready ones and
	// terminating ones, whatever policy and topology. New flows do not go by
	// it; flows that are there stay with these. Sorted, no duplicates.
	Serving       []netip.AddrPort
	InternalLocal bool
	ExternalLocal bool
	Anywhere      bool // an endpoint that can serve exists on some node
	MasqueradeAll bool // what pods send to the ClusterIP as well
	PodLinks      Links

	Affinity time.Duration // 0: none
	// SourceRanges limit who may use the VIPs (not the ExternalIPs, NodePort or
	// ClusterIP). Of this family only. Restricted with no ranges admits nobody.
	SourceRanges []netip.Prefix
	Restricted   bool
}

// Equal compares two ports by value.
func (p Port) Equal(o Port) bool {
	return p.ClusterIP == o.ClusterIP && p.Port == o.Port && p.NodePort == o.NodePort &&
		p.InternalLocal == o.InternalLocal && p.ExternalLocal == o.ExternalLocal &&
		p.Anywhere == o.Anywhere && p.MasqueradeAll == o.MasqueradeAll && p.PodLinks == o.PodLinks && p.Affinity == o.Affinity && p.Restricted == o.Restricted &&
		slices.Equal(p.ExternalIPs, o.ExternalIPs) && slices.Equal(p.VIPs, o.VIPs) &&
		slices.Equal(p.Cluster, o.Cluster) && slices.Equal(p.Local, o.Local) &&
		slices.Equal(p.Serving, o.Serving) &&
		slices.Equal(p.SourceRanges, o.SourceRanges)
}

// Claim says who may answer for an address on the local network. The owner is
// the first candidate that is alive and able.
type Claim struct {
	Candidates []string // node names, best first; the same list on every node
	// Interfaces on which this node may answer; empty: those that suit the address.
	Interfaces []string
}

// Session is one BGP session of this node and what it announces.
type Session struct {
	Identity Identity
	Routes   map[netip.Prefix]RouteAttrs
	// Aggregates are those of Routes that are for more than one address can be, with
	// the addresses within that this node is to serve: never none, sorted.
	Aggregates map[netip.Prefix][]netip.Addr
	// Leaving are routes that are about to go, none of Routes: routers that have them are asked to
	// prefer others. The agent has it; what is decided here has none.
	Leaving map[netip.Prefix]RouteAttrs
}

// Addresses are those that one of Routes is announced for.
func (s Session) Addresses(route netip.Prefix) []netip.Addr {
	if within, ok := s.Aggregates[route]; ok {
		return within
	}
	return []netip.Addr{route.Addr()}
}

// Identity is what a session is made of: a change of it means a new session.
// It is comparable.
type Identity struct {
	MyASN   uint32
	PeerASN uint32 // 0: any but MyASN
	// DynamicASN: the user gave no number of the router, but said whether it is ours.
	DynamicASN bool
	// PeerAddress is that of the router. It and SourceAddress are link-local with Interface
	// as zone where that is given, and invalid while NoRouter says why they are not known.
	PeerAddress     netip.Addr
	Interface       string // of an unnumbered session
	Passive         bool   // the router opens the connection
	NoRouter        string
	PeerPort        uint16
	SourceAddress   netip.Addr // invalid: the kernel chooses
	RouterID        netip.Addr // IPv4, always valid
	HoldTime        time.Duration
	KeepaliveTime   time.Duration
	ConnectTime     time.Duration
	EBGPMultiHop    bool
	TTLSecurity     bool // RFC 5082: refuse packets of whoever is not on our network
	OneFamily       bool // carry that of PeerAddress alone, or IPv6 over Interface
	GracefulRestart bool
	Password        view.Secret
	// NextHops for families other than the session's own: this node's first
	// address of each family, invalid where it has none.
	NextHop4, NextHop6 netip.Addr
}

// BFD is one BFD session of this node with a router (RFC 5880). It is comparable.
type BFD struct {
	Peer  netip.Addr
	Local netip.Addr // invalid: the kernel chooses
	// MultiHop is RFC 5883 in place of RFC 5881. MinTTL is the least TTL or hop
	// limit that its packets may come with; 0 over one hop, where it is always 255.
	MultiHop          bool
	MinTTL            uint8
	Transmit, Receive time.Duration // as the session is Up, of whole microseconds
	Multiplier        uint8         // so many packets in a row may be lost
	Passive           bool          // the router begins
}

// RouteAttrs are the attributes of one announced prefix; a change of them means
// announcing it anew.
type RouteAttrs struct {
	LocalPref        uint32  // 0: not set; for iBGP
	MED              *uint32 // nil: not set
	Prepend          int     // how often our ASN stands in the path beyond once; for eBGP
	Bandwidth        uint32  // of the link, in Mbit/s; 0: not told
	Communities      []uint32
	LargeCommunities []view.LargeCommunity
}

// Equal compares two attribute sets by value.
func (a RouteAttrs) Equal(o RouteAttrs) bool {
	return a.LocalPref == o.LocalPref && a.Prepend == o.Prepend && a.Bandwidth == o.Bandwidth &&
		(a.MED == nil) == (o.MED == nil) && (a.MED == nil || *a.MED == *o.MED) &&
		slices.Equal(a.Communities, o.Communities) && slices.Equal(a.LargeCommunities, o.LargeCommunities)
}
