// Package view is the cluster as the decisions see it: a snapshot of
// plain values. Package fromkube makes it from API objects; allocation, election
// and desired read it. A *Cluster of the speaker is immutable and may be kept for ever: a changed
// object is a new value in a new snapshot. The controller's is brought up to date in place, and holds
// until it is taken again. In both, unchanged objects keep their pointers, so that comparing
// pointers finds what has changed.
package view

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
)

// Ref names a namespaced object.
type Ref struct {
	Namespace, Name string
}

// String is namespace/name.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Compare orders by namespace, then name.
func (r Ref) Compare(o Ref) int {
	if c := strings.Compare(r.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(r.Name, o.Name)
}

// Cluster is one snapshot. The controller's holds few endpoints, those
// of Services of policy Local, and where there are aggregates of all of type LoadBalancer.
// The speaker's holds everything, but of a Service only what a speaker reads. Problems found
// while reading objects travel along.
type Cluster struct {
	Services  map[Ref]*Service
	Endpoints Endpoints
	Nodes     map[string]*Node
	// Speakers are by node name. The controller's says on which nodes one has written, and nothing more of them.
	Speakers map[string]Speaker
	// Deployed: the DaemonSet of the speakers exists and is not being deleted. The speaker's snapshot has it.
	Deployed bool
	// LastOwn is what was last known of this node, see OwnNode. The speaker's snapshot has it; nil: nothing.
	LastOwn *Node
	// Fallen are the nodes that this one believes to be dead, see RollCall. The
	// speaker's snapshot has them; none of it is Kubernetes' word.
	Fallen map[string]struct{}
	// Adjacent are the routers on this node's unnumbered links, by interface;
	// those that a BGPPeer names and that were looked at. The speaker's snapshot has them.
	Adjacent          map[string]Adjacency
	Pools             map[string]*Pool
	L2Advertisements  map[string]*L2Advertisement
	BGPAdvertisements map[string]*BGPAdvertisement
	BGPPeers          map[string]*BGPPeer
	BFDProfiles       map[string]*BFDProfile
	Communities       map[string]*Community
	// BGPSessions are by the names of their objects. The controller's snapshot has them.
	BGPSessions map[string]*BGPSession
	// Withheld are addresses that no node answers for on the local network, since another machine has them, with the words of
	// the node that would. The controller's snapshot has them.
	Withheld map[netip.Addr]string
	// Triggers says when the newest change of a Service's endpoints was caused, as by a
	// pod that became ready, on the clock of the control plane. It holds changes of the
	// last minutes only, and none of before this process began.
	Triggers map[EndpointsOf]time.Time
	// Namespaces are the labels of each namespace. The controller's snapshot has them.
	Namespaces map[string]map[string]string
	// ServiceRanges are those that ClusterIPs are from, sorted, if the API server tells
	// them; if it does not, ClusterIPs are those of Services that are not in the
	// snapshot, which the controller's alone has.
	ServiceRanges []netip.Prefix
	ClusterIPs    map[Ref][]netip.Addr
	// What else has addresses, as far as the controller's snapshot has it: pods by the podCIDRs of nodes and the
	// clusterCIDRs, each range once; the networks that nodes are on, each once; the API servers; and by their
	// spec.externalIPs Services that are not in the snapshot.
	PodRanges   []netip.Prefix
	Networks    []netip.Prefix
	APIServers  []netip.Addr
	ExternalIPs map[Ref][]netip.Addr
	// Reservations are the IPReservations. The speaker's snapshot has what they hold, and no more of them.
	Reservations map[Ref]*Reservation
	// Cooling are addresses that were freed a short time ago, and by which Service or
	// reservation: no other may have them yet. The controller's snapshot has them.
	Cooling map[netip.Addr]Ref
	// HelloKey authenticates the nodes to each other.
	HelloKey Secret
	// Configured tells that our own kinds and Secrets have been read at least
	// once. Before, no advertisement means nothing: what is announced stays.
	Configured bool
	Problems   []problem.Problem
	Changes
}

// Changes say what differs between a snapshot and an earlier one of the same source, so
// that a decision need not look at the rest. The zero value says nothing.
type Changes struct {
	// Revision numbers this snapshot, and Since the one that the rest is relative to;
	// 0: not known.
	Revision, Since uint64
	// Touched are the Services that came, went, or changed, themselves or their endpoints; those in ClusterIPs, too.
	Touched map[Ref]struct{}
	// Reserved are the reservations that came, went, or hold other addresses.
	Reserved map[Ref]struct{}
	// Others: something else changed than Touched and Reserved say.
	Others bool
}

// Protocol is a transport protocol as Kubernetes spells it.
type Protocol string

// The protocols that are forwarded.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// Number is the IANA number, 0 for a protocol that is not forwarded.
func (p Protocol) Number() uint8 {
	switch p {
	case TCP:
		return 6
	case UDP:
		return 17
	case SCTP:
		return 132
	default:
		return 0
	}
}

// ServiceType is spec.type; ExternalName Services are not in a snapshot.
type ServiceType string

// The types of Services that have addresses.
const (
	ClusterIP    ServiceType = "ClusterIP"
	NodePort     ServiceType = "NodePort"
	LoadBalancer ServiceType = "LoadBalancer"
)

// IPFamilyPolicy is spec.ipFamilyPolicy.
type IPFamilyPolicy string

// The family policies of KEP-563.
const (
	SingleStack      IPFamilyPolicy = "SingleStack"
	PreferDualStack  IPFamilyPolicy = "PreferDualStack"
	RequireDualStack IPFamilyPolicy = "RequireDualStack"
)

// Service is a Service with a cluster IP (headless and ExternalName ones are
// left out unless they are of type LoadBalancer, which cannot be).
type Service struct {
	Ref
	UID     string // tells two Services of one name apart
	Created time.Time
	Labels  map[string]string
	Type    ServiceType
	Class   string // spec.loadBalancerClass; "" when unset

	ClusterIPs  []netip.Addr // at most one a family, primary first
	ExternalIPs []netip.Addr
	// Ingress are the addresses in status.loadBalancer.ingress, whatever
	// their ipMode; VIPs are those of them that nodes forward (ipMode VIP).
	Ingress []netip.Addr
	VIPs    []netip.Addr
	// Guest are those that Services of another namespace had first, see CompareOn.
	Guest []netip.Addr
	Ports []ServicePort

	ExternalLocal bool          // externalTrafficPolicy: Local, and reachable from outside
	InternalLocal bool          // internalTrafficPolicy: Local
	Affinity      time.Duration // sessionAffinity: ClientIP and its timeout; 0 for none
	// HealthCheckPort is spec.healthCheckNodePort of a LoadBalancer with policy Local; 0: none.
	HealthCheckPort uint16
	// SourceRanges are the sources that may use the VIPs. nil: all. Both families mixed.
	SourceRanges []netip.Prefix
	Unread       []problem.Problem // of values that mean nothing and were left out

	Families     []addr.Family // spec.ipFamilies, primary first
	FamilyPolicy IPFamilyPolicy

	// Request is what the user asks of the allocation. Only the controller's
	// snapshot has it.
	Request Request
	// Deleting: the object has a deletion timestamp.
	Deleting bool
	// ProxiedElsewhere: the label service.kubernetes.io/service-proxy-name
	// gives the Service to another proxy; its address is allocated and announced,
	// and not forwarded.
	ProxiedElsewhere bool
}

// Object is the Service as problems name it.
func (s *Service) Object() problem.Object {
	return problem.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}
}

// CompareOn orders the Services on one address: those of the namespace that had it first, then
// guests, and of each the older before the younger. The first one's namespace is the host of the
// address. Ages alone do not tell which came first: a Service may be older than those that it joins.
func (s *Service) CompareOn(a netip.Addr, o *Service) int {
	if guest := slices.Contains(s.Guest, a); guest != slices.Contains(o.Guest, a) {
		if guest {
			return 1
		}
		return -1
	}
	return cmp.Or(s.Created.Compare(o.Created), s.Compare(o.Ref))
}

// ServicePort is one entry of spec.ports. NodePort is 0 for none.
type ServicePort struct {
	Name           string
	Protocol       Protocol
	Port, NodePort uint16
}

// Classes are the load balancer classes that Fairlead handles: that of the name
// ("" for Services that name none), and with Unclassed Services that name none as well.
type Classes struct {
	Name      string
	Unclassed bool
}

// Serves reports whether Fairlead handles a Service with this spec.loadBalancerClass.
func (c Classes) Serves(class string) bool {
	return class == c.Name || class == "" && c.Unclassed
}

// Request is what a Service of type LoadBalancer asks for; zero: any address
// from any pool that gives addresses by itself. A request that cannot be read
// is a Problem with Invalid set: such a Service gets nothing new, and loses nothing.
type Request struct {
	Addresses []netip.Addr // any number of each family, no duplicates
	Pools     []string     // the Service gets addresses of these only, of the first that can
	// Reservations are the names of IPReservations of its namespace: the Service gets
	// addresses that these hold only, of the first that can.
	Reservations []string
	// ShareKey lets Services with the same one share an address; "": none may. No message has it:
	// it may be read by those of another namespace.
	ShareKey Secret
	// ShareWith are the other namespaces whose Services may share addresses with this one, if they
	// name its namespace in turn.
	ShareWith []string
	Invalid   *problem.Problem
	// Conflicts says what is asked for in several places, and differently.
	Conflicts []string
	// Stray tells of annotations and labels that look like a request and are none; nil for none.
	Stray *problem.Problem
}

// Endpoint is one endpoint of a Service (EndpointSlice endpoints[i].addresses[0]).
type Endpoint struct {
	Addr                        netip.Addr
	Node                        string // "" when the slice names none
	Ready, Serving, Terminating bool
	Pod                         bool           // its targetRef says that it is one
	Ports                       []EndpointPort // shared by all endpoints of one slice
	Hints                       *Hints         // nil: none given
}

// Hints say on which nodes and in which zones an endpoint is meant to be used.
type Hints struct{ ForNodes, ForZones []string }

// EndpointsOf names the endpoints of one Service in one family.
type EndpointsOf struct {
	Service Ref
	Family  addr.Family
}

// EndpointPort is one port of an EndpointSlice; it belongs to the Service port
// of the same name and protocol.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Node is a node of the cluster.
type Node struct {
	Name   string
	UID    string // tells two Nodes of one name apart
	Labels map[string]string
	// Addresses are its InternalIPs, primary first, and then its ExternalIPs of a family
	// that has no InternalIP.
	Addresses []netip.Addr
	// ExternalIPs are all of its ExternalIPs, those of Addresses among them.
	ExternalIPs []netip.Addr
	PodCIDRs    []netip.Prefix // spec.podCIDRs
	Ready       bool           // condition Ready is True
	// NetworkUnavailable: condition NetworkUnavailable is True.
	NetworkUnavailable bool
	// Excluded: the label node.kubernetes.io/exclude-from-external-load-balancers, unless
	// it is ignored, or the taint node.kubernetes.io/out-of-service, by which an operator
	// says that the node is off, whatever it says itself (KEP-2268).
	Excluded bool
	Deleting bool
	Cordoned bool // spec.unschedulable
	// Condemned: an autoscaler is about to delete it (taint ToBeDeletedByClusterAutoscaler
	// or karpenter.sh/disrupted), and load balancers ought to leave it (KEP-3836).
	Condemned bool
	// KubeletPort is the TCP port of its kubelet; 0: not known.
	KubeletPort uint16
}

// MayAnnounce reports whether the node may announce addresses at all.
func (n *Node) MayAnnounce() bool { return !n.Excluded && !n.Condemned && !n.NetworkUnavailable }

// Speaker is the speaker on one node, of one pod or of all.
type Speaker struct {
	Node  string
	Ready bool
	// BoundsLoad tells that it gives no node many more addresses than others.
	BoundsLoad bool
}

// Pool is an IPAddressPool that parsed; Ranges are sorted and do not overlap.
type Pool struct {
	Name          string
	Created       time.Time
	Labels        map[string]string
	Ranges        []netipx.IPRange
	AutoAssign    bool
	AvoidBuggyIPs bool
	Disabled      bool // gives no new addresses
	// Priority: lower is better; 0 comes after all others.
	Priority int32
	// Namespaces, NamespaceSelectors and ServiceSelectors choose the Services that may
	// have new addresses; see Serves.
	Namespaces         []string
	NamespaceSelectors []Selector
	ServiceSelectors   []Selector
	MaxPerNamespace    int           // addresses of both families; 0: any number
	CoolDown           time.Duration // before another Service gets a freed address

	// Former are the ranges that the pool has or had when its status was written, and
	// of those that it had, what Services hold. Renumber: these get other addresses.
	Former   []netipx.IPRange
	Renumber bool
}

// Had reports whether the address counted as one of the pool when its status was written.
func (p *Pool) Had(a netip.Addr) bool {
	return slices.ContainsFunc(p.Former, func(r netipx.IPRange) bool { return r.Contains(a) })
}

// Holds reports whether all addresses of the prefix are in the pool's ranges.
func (p *Pool) Holds(prefix netip.Prefix) bool {
	whole := netipx.RangeOfPrefix(prefix)
	return slices.ContainsFunc(p.Ranges, func(r netipx.IPRange) bool { return r.Contains(whole.From()) && r.Contains(whole.To()) })
}

// Object is the pool as problems name it.
func (p *Pool) Object() problem.Object {
	return problem.Object{Kind: "IPAddressPool", Name: p.Name}
}

// Contains reports whether the address lies in one of the pool's ranges.
func (p *Pool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r netipx.IPRange) bool { return r.Contains(a) })
}

// Selector decides on labels; fromkube compiles LabelSelectors into it.
type Selector interface {
	Matches(labels map[string]string) bool
}

// Secret is a string that prints as dots, so that no log or dump shows it.
type Secret string

// String hides the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "••••"
}

// GoString hides the value from %#v as well.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the value from encoders. The error is always nil.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MatchesAny reports whether one of the selectors matches; no selectors match all.
func MatchesAny(selectors []Selector, labels map[string]string) bool {
	return len(selectors) == 0 || slices.ContainsFunc(selectors, func(s Selector) bool { return s.Matches(labels) })
}
