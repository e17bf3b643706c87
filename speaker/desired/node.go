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
	"fairlead.dev/fairlead/speaker/election"
)

// Node is the whole wanted state of one node.
type Node struct {
	Forwarding Forwarding
	Addrs      []netip.Addr // view.Node.Addresses
	// Layer2 has the addresses that this node may have to answer for.
	Layer2 map[netip.Addr]Candidacy
	// Elsewhere are the addresses that other nodes may have to answer for and this one
	// may not, sorted.
	Elsewhere []netip.Addr
	// Digests sums up the candidates for all these addresses.
	Digests Digests
	// BGP has the sessions of this node by BGPPeer name.
	BGP map[string]Session
	// BFD has the BFD sessions of this node by BGPPeer name.
	BFD map[string]BFD
	// Unnumbered are the interfaces of unnumbered sessions, sorted: pulse finds the routers there.
	Unnumbered []string
	// Announced numbers the state of Layer2, Elsewhere, Digests, BGP, BFD, Unnumbered and Mesh. Of the sessions, only
	// the routes to its changed prefixes differ.
	Announced Delta[netip.Prefix]
	// Mesh is the other nodes, to which this one says hello and which it hears.
	Mesh Mesh
	// Health are the Services with a healthCheckNodePort, which this node answers.
	Health map[view.Ref]HealthCheck
}

// Delta numbers the states of some keyed values, and says which keys may differ from an earlier
// state. The zero Delta numbers none.
type Delta[K comparable] struct {
	Revision uint64 // of this state, 0: not numbered
	Since    uint64 // the revision that Changed is relative to, 0: any key may differ
	Changed  map[K]struct{}
}

// ChangedSince returns the keys of values that may differ from those at a revision, and whether they are
// known; otherwise, any may differ.
func (d Delta[K]) ChangedSince(revision uint64) (keys map[K]struct{}, known bool) {
	switch revision {
	case 0:
		return nil, false
	case d.Revision:
		return nil, true
	}
	return d.Changed, revision == d.Since
}

// Advance begins the next state, in which these keys may differ.
func (d *Delta[K]) Advance(changed map[K]struct{}) {
	d.Since, d.Changed = d.Revision, changed
	d.Revision++
}

// Restart begins the next state, in which any key may differ.
func (d *Delta[K]) Restart() { *d = Delta[K]{Revision: d.Revision + 1} }

// HealthCheck is what a load balancer outside of the cluster learns when it asks a node
// whether it has endpoints of a Service (spec.healthCheckNodePort, policy Local).
type HealthCheck struct {
	Port uint16
	// Ready counts the distinct addresses of ready endpoints on this node, by the
	// families that the Service has here. Terminating ones do not count, though they
	// are still served (KEP-1669).
	Ready map[addr.Family]int
}

// Mesh is every other node, and the key that authenticates hellos.
type Mesh struct {
	Key   view.Secret // "": no hello is sent or believed
	Peers map[string]Peer
}

// Peer is another node of the mesh.
type Peer struct {
	Addrs []netip.Addr // view.Node.Addresses
	// Ready: Kubernetes says that a speaker runs there. This counts only until the
	// first hello is heard.
	Ready bool
}

// MasqueradeMark is the bit of the packet mark by which the rules of iptables ask for masquerade of what is for a
// Service. kube-proxy uses the same by default.
const MasqueradeMark = 1 << 14

// Forwarding is what the kernel of one node must do for Services. A backend
// (iptables, nftables) renders it and decides nothing.
type Forwarding struct {
	Ports map[PortKey]Port
	Count map[addr.Family]int // of Ports; nil: not counted
	// Pods are the prefixes from which pods send, summarized, both families. They tell
	// pods from other senders (kube-proxy's local detector) for ports without PodLinks. If a
	// family has none, see PodsKnown. A sender with a loopback address is never
	// one, since no pod could answer it.
	Pods []netip.Prefix
	// NodePorts are the prefixes in which NodePorts answer, on the addresses that this node
	// has when a packet arrives; loopback addresses are excluded. Summarized, both
	// families.
	NodePorts []netip.Prefix
	// Loopback are the prefixes within 127.0.0.0/8 in which NodePorts answer as
	// well, but only for this node itself. Summarized; nil unless asked for.
	Loopback []netip.Prefix
	// Guard drops what arrives from elsewhere to or from 127.0.0.0/8. The kernel does that by
	// itself unless net.ipv4.conf.all.route_localnet is set, which Loopback needs
	// (CVE-2020-8558). Always true if Loopback has something.
	Guard bool
	// ServiceRanges are prefixes with no addresses but ClusterIPs. A packet to a port that a
	// ClusterIP does not have is refused, as by a host without a listener. A packet to an
	// address in these ranges that no Service has is dropped, since its Service may be about to
	// come. Neither applies to this node's own addresses or to packets that have been
	// translated. Summarized, both families; nil if the ranges are not known.
	ServiceRanges []netip.Prefix
	// Refused are prefixes in which only VIPs of announced ports are served, since nodes announce all of them: a packet to
	// another address or port is refused like one to a port that a ClusterIP does not have. Summarized, both families.
	Refused []netip.Prefix
	// Own are the addresses of the node, as its Node says.
	Own []netip.Addr
	// Sources are where what is masqueraded gets another source than the address of the interface by which it leaves, longer
	// prefixes first. What forwards finds them out by the node's routes.
	Sources []Source
	// Echo are addresses of this node, up to one of each family, that answer pings of VIPs. See Port.Pinged.
	Echo []netip.Addr
	// HealthPorts are the TCP ports of Health, sorted: the node's firewall must let
	// them in.
	HealthPorts []uint16
	// HealthNarrow: HealthPorts answer only where NodePorts do, since the options say where.
	// Else they answer on every address of the node. See HealthPrefixes.
	HealthNarrow bool

	// Foreign are the Services that another proxy forwards on this node, with their ClusterIPs.
	Foreign map[view.Ref][]netip.Addr

	Delta[PortKey] // of Ports, see Changes
}

// Has reports whether there is anything to forward, or to guard, in the family.
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

// PodsKnown reports whether addresses tell pods from other senders in the family. While they do not, no
// sender takes the short circuit of policy Local on ports without PodLinks, since any may be outside
// of the cluster; and packets to their ClusterIPs keep their source, since any sender may be a pod,
// which NetworkPolicies and applications know by its address. kube-proxy does the same without
// a local detector.
func (f Forwarding) PodsKnown(family addr.Family) bool {
	return slices.ContainsFunc(f.Pods, func(p netip.Prefix) bool { return addr.FamilyOf(p.Addr()) == family })
}

// Change is what one port was and what it should be; nil stands for nothing.
type Change struct {
	Key      PortKey
	From, To *Port
}

// Changes returns the differences between the ports that an applier holds and the wanted
// ones, in the order of their keys, for the ports that are in scope; nil: all. If held is at revision at, but for
// some ports, only these are compared and what has changed since then; with 0, everything is.
func (f Forwarding) Changes(held map[PortKey]Port, at uint64, scope func(PortKey) bool, some ...PortKey) []Change {
	var changes []Change
	compare := func(key PortKey) {
		from, had := held[key]
		to, wanted := f.Ports[key]
		if had == wanted && from.Equal(to) || scope != nil && !scope(key) {
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
	for _, key := range some {
		compare(key)
	}
	for key := range f.ChangedSince(at, maps.Keys(held)) {
		compare(key)
	}
	slices.SortFunc(changes, func(a, b Change) int { return a.Key.Compare(b.Key) })
	return slices.CompactFunc(changes, func(a, b Change) bool { return a.Key == b.Key })
}

// ChangedSince yields the keys of all ports that may have changed since a revision; 0 stands
// for an unknown one. It finds those that have been removed among held.
func (f Forwarding) ChangedSince(revision uint64, held iter.Seq[PortKey]) iter.Seq[PortKey] {
	if changed, known := f.Delta.ChangedSince(revision); known {
		return maps.Keys(changed)
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

// Label names the port for people, in up to so many bytes.
func (k PortKey) Label(most int) string {
	text := k.Service.String()
	if k.Name != "" {
		text += ":" + k.Name
	}
	return text[:min(len(text), most)]
}

// OfFamily returns what reports whether a port is of the family.
func OfFamily(family addr.Family) func(PortKey) bool {
	return func(k PortKey) bool { return k.Family == family }
}

// Compare orders by Service, name, protocol and family.
func (k PortKey) Compare(o PortKey) int {
	return cmp.Or(k.Service.Compare(o.Service), cmp.Compare(k.Name, o.Name),
		cmp.Compare(k.Protocol, o.Protocol), cmp.Compare(k.Family, o.Family))
}

// Port is what a node does with traffic to one Service port in one family.
//
// Destinations are ClusterIP:Port (internal), VIPs and ExternalIPs:Port, and the node's own
// addresses:NodePort (external); on loopback addresses only for the node itself. Each is
// served by one of two sets of endpoints:
//
//	internal                         InternalLocal ? Local : Cluster
//	external, policy Cluster         Cluster, masqueraded
//	external, policy Local
//	  from pods                      Cluster, not masqueraded (short circuit)
//	  from this node                 Cluster, masqueraded (short circuit)
//	  from anyone else               Local, not masqueraded: the pod sees the client
//	internal, not from a pod         masqueraded; with MasqueradeAll from a pod, too.
//	                                 While no pods are known: only loopback addresses
//	                                 without MasqueradeAll
//	an endpoint to itself (hairpin)  masqueraded
//
// A sender is a pod if its address is in Forwarding.Pods or, if the port has PodLinks, if it
// sends by one of these. Pods are not known while neither tells, see PodsKnown.
//
// If the set is empty, packets are refused: those of TCP by a reset, which the kernel does not limit in rate, others
// by ICMP port unreachable. They are dropped instead if the set is Local and Anywhere says that other nodes have endpoints.
//
// If several ports have one destination, one of them gets it for all senders, whatever it
// does with their packets: an address of a Service comes before a NodePort, a
// ClusterIP or VIP before a VIP that another namespace had first (see Guest) and that before an ExternalIP, then
// a port with endpoints for external senders before one without (see Rank), then the lowest key. If one port has an address in several roles, VIP comes
// before ExternalIP. A ClusterIP is no port's VIP or ExternalIP.
type Port struct {
	ClusterIP   netip.Addr // invalid: none in this family
	ExternalIPs []netip.Addr
	VIPs        []netip.Addr
	Guest       []netip.Addr // those of VIPs that Services of another namespace had first
	Port        uint16
	NodePort    uint16 // 0: none

	Cluster, Local []netip.AddrPort // sorted, no duplicates
	// Serving are the endpoints on any node that still serve, ready or terminating,
	// whatever the policy and topology. It does not affect new flows; existing flows
	// stay with these endpoints. Sorted, no duplicates.
	Serving []netip.AddrPort
	// Listed are all endpoints, also those that do not serve or are on nodes believed to be
	// dead: their connections may be open still, and nothing but the end of those may end
	// them. Sorted, no duplicates.
	Listed        []netip.AddrPort
	InternalLocal bool
	ExternalLocal bool
	Anywhere      bool // an endpoint that can serve exists on some node
	MasqueradeAll bool // also what pods send to the ClusterIP
	// Announced are those of VIPs for which nodes of the cluster answer or announce routes, and that no other machine has. What goes to
	// another port of one is refused as for the ClusterIP: it would leave for the network again, and come back.
	Announced []netip.Addr
	PodLinks  Links

	Affinity time.Duration // 0: none
	// SourceRanges are the sources that may use the VIPs (not the ExternalIPs, NodePort or
	// ClusterIP), ranges of this family only. If Restricted and without ranges, none
	// may.
	SourceRanges []netip.Prefix
	Restricted   bool
}

// RankExternalIP is the first Rank of an address that only spec.externalIPs lists.
const RankExternalIP = 4

// Rank orders the ports that have an address, the lowest first: an address from an allocator comes
// before one that the author of a Service wrote into spec.externalIPs, and where Services of two namespaces share
// it and one takes a port of the other, those that had it first come before guests. Of the same kind, a port that can
// serve external senders comes before one that would refuse or drop them, as in kube-proxy, where rules
// that translate come before those that refuse.
func (p Port) Rank(a netip.Addr) int {
	rank := 0
	switch {
	case slices.Contains(p.Guest, a):
		rank = 2
	case slices.Contains(p.ExternalIPs, a) && !slices.Contains(p.VIPs, a):
		rank = RankExternalIP
	}
	if !p.servesOutside() {
		rank++
	}
	return rank
}

// servesOutside reports whether this node serves senders from outside.
func (p Port) servesOutside() bool {
	if p.ExternalLocal {
		return len(p.Local) > 0
	}
	return len(p.Cluster) > 0
}

// Endpoints returns all that may have connections, whether they get new ones or not. Sorted, no
// duplicates.
func (p Port) Endpoints() []netip.AddrPort {
	all := slices.Clone(p.Cluster)
	for _, more := range [][]netip.AddrPort{p.Local, p.Serving, p.Listed} {
		if !slices.Equal(more, p.Cluster) { // as they mostly are
			all = append(all, more...)
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}

// Equal compares two ports by value.
func (p Port) Equal(o Port) bool {
	return p.ClusterIP == o.ClusterIP && p.Port == o.Port && p.NodePort == o.NodePort &&
		p.InternalLocal == o.InternalLocal && p.ExternalLocal == o.ExternalLocal &&
		p.Anywhere == o.Anywhere && p.MasqueradeAll == o.MasqueradeAll && p.PodLinks == o.PodLinks && p.Affinity == o.Affinity && p.Restricted == o.Restricted &&
		slices.Equal(p.ExternalIPs, o.ExternalIPs) && slices.Equal(p.VIPs, o.VIPs) && slices.Equal(p.Announced, o.Announced) && slices.Equal(p.Guest, o.Guest) &&
		slices.Equal(p.Cluster, o.Cluster) && slices.Equal(p.Local, o.Local) &&
		slices.Equal(p.Serving, o.Serving) && slices.Equal(p.Listed, o.Listed) &&
		slices.Equal(p.SourceRanges, o.SourceRanges)
}

// Candidacy says which nodes may answer for an address on the local network. The owner is
// the first candidate that is alive and able.
type Candidacy struct {
	Candidates []string // node names, best first; the same list on every node
	// Tiers are the same candidates, and First the one of them that comes before its tier: Candidates
	// follow from both by election.Rank for the address. Most addresses share their Tiers. nil: the order
	// is to be taken as it is.
	Tiers *election.Tiers
	First string
	// Interfaces on which this node may answer; empty: those that suit the address.
	Interfaces []string
	// Named are the candidates for which advertisements name interfaces, sorted; the same list on every node.
	Named []string
	// AnnounceInterval is how often this node announces the address again while it answers;
	// 0: never.
	AnnounceInterval time.Duration
	// NoPreempt: the candidate that answers keeps the address while it is alive and able, also when one
	// before it comes back; the same on every node.
	NoPreempt bool
}

// IsNamed reports whether the advertisements name the interfaces of a candidate.
func (c Candidacy) IsNamed(node string) bool {
	_, named := slices.BinarySearch(c.Named, node)
	return named
}
