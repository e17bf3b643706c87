package reconcile

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/mirror"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// objects mirrors what the informers know, as far as it matters here, and keeps
// the view of each object, so that a change costs the reading of one object. The
// objects belong to the informers and are only read.
type objects struct {
	mu    sync.Mutex
	wake  chan struct{} // one slot: something changed since the last snapshot
	views map[view.Ref]*view.Service
	// requests reads what Services ask for.
	requests fromkube.Requests
	read     fromkube.Nodes

	mirror.Config
	endpointSlices mirror.Slices
	services       map[view.Ref]*corev1.Service
	bookings       bookings
	bgpSessions    map[string]*v1beta1.BGPSession
	withheld       map[string]withheld // by the names of their L2Addresses
	nodes          map[string]*view.Node
	namespaces     map[string]map[string]string // their labels
	// clusterIPs and externalIPs are those of the Services that are not relevant.
	clusterIPs, externalIPs map[view.Ref][]netip.Addr
	own                     Own
	networks                map[string][]netip.Prefix // that nodes are on
	aggregates              int                       // how many BGPAdvertisements have an aggregate
	// strays tell of keys that mean nothing, of cluster-scoped objects that have some.
	strays   map[problem.Object]problem.Problem
	straying map[view.Ref]struct{} // Services with such keys

	// What has changed since the last snapshot.
	touched  map[view.Ref]struct{} // Services, or their endpoints
	others   bool                  // something else
	places   bool                  // of that, nodes, namespaces, ranges or what else has addresses
	prefixes bool                  // of that, podCIDRs or networks of nodes
	sessions bool                  // BGPSessions and L2Addresses, on which no address depends
	lent     *snapshot
}

func newObjects(requests fromkube.Requests, read fromkube.Nodes, own Own) *objects {
	return &objects{
		requests: requests, read: read, own: own, wake: make(chan struct{}, 1),
		Config: mirror.NewConfig(), endpointSlices: mirror.NewSlices(),
		views: map[view.Ref]*view.Service{}, services: map[view.Ref]*corev1.Service{},
		bookings:    newBookings(),
		bgpSessions: map[string]*v1beta1.BGPSession{}, withheld: map[string]withheld{}, nodes: map[string]*view.Node{},
		namespaces: map[string]map[string]string{}, clusterIPs: map[view.Ref][]netip.Addr{},
		strays:      map[problem.Object]problem.Problem{},
		straying:    map[view.Ref]struct{}{},
		externalIPs: map[view.Ref][]netip.Addr{}, networks: map[string][]netip.Prefix{},
		touched: map[view.Ref]struct{}{}, others: true, places: true, prefixes: true,
		lent: &snapshot{
			cluster:  &view.Cluster{Services: map[view.Ref]*view.Service{}},
			services: map[view.Ref]*corev1.Service{},
			straying: map[view.Ref]struct{}{},
		},
	}
}

// snapshot is everything at one moment. It is lent, and holds until the next one is taken.
type snapshot struct {
	cluster *view.Cluster

	// The objects behind the views, of those kinds that have a status.
	services          map[view.Ref]*corev1.Service
	reservations      map[view.Ref]*v1beta1.IPReservation
	excess            map[view.Ref]*v1beta1.IPReservation // too many, and to be told
	pools             map[string]*v1beta1.IPAddressPool
	l2Advertisements  map[string]*v1beta1.L2Advertisement
	bgpAdvertisements map[string]*v1beta1.BGPAdvertisement
	bgpPeers          map[string]*v1beta1.BGPPeer
	bfdProfiles       map[string]*v1beta1.BFDProfile
	communities       map[string]*v1beta1.Community
	bgpSessions       map[string]*v1beta1.BGPSession
	strays            map[problem.Object]problem.Problem
	straying          map[view.Ref]struct{}

	// contested are the objects with a status that another program writes, too, and until when that counts.
	contested map[problem.Object]time.Time
}

// snapshot takes everything that is known now, at the cost of what has changed since the
// last time: it is the last one, brought up to date.
func (o *objects) snapshot() *snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.lent
	c := s.cluster
	c.Changes = view.Changes{Revision: c.Revision + 1, Since: c.Revision, Touched: o.touched, Others: o.others}
	endpoints := map[view.Ref][]view.Endpoint{}
	for ref := range o.touched {
		follow(c.Services, o.views, ref)
		follow(s.services, o.services, ref)
		follow(s.straying, o.straying, ref)
		if now := o.endpoints(ref); len(now) > 0 || len(c.Endpoints.Of(ref)) > 0 {
			endpoints[ref] = now
		}
	}
	c.Endpoints = c.Endpoints.With(endpoints)
	if o.places {
		c.Namespaces, c.Nodes = maps.Clone(o.namespaces), maps.Clone(o.nodes)
		o.occupy(c)
	}
	if o.others {
		o.Fill(c)
		c.Reservations, s.reservations, s.excess = o.bookings.looked()
		s.pools = maps.Clone(o.Pools.Objects)
		s.l2Advertisements = maps.Clone(o.L2Advertisements.Objects)
		s.bgpAdvertisements = maps.Clone(o.BGPAdvertisements.Objects)
		s.bgpPeers = maps.Clone(o.BGPPeers.Objects)
		s.bfdProfiles = maps.Clone(o.BFDProfiles.Objects)
		s.communities = maps.Clone(o.Communities.Objects)
	}
	s.strays = maps.Clone(o.strays)
	switch {
	case len(c.ServiceRanges) > 0:
		c.ClusterIPs = nil
	case c.ClusterIPs == nil:
		c.ClusterIPs = maps.Clone(o.clusterIPs)
	default:
		for ref := range c.Touched {
			follow(c.ClusterIPs, o.clusterIPs, ref)
		}
	}
	if o.sessions {
		s.bgpSessions = maps.Clone(o.bgpSessions)
		c.BGPSessions = make(map[string]*view.BGPSession, len(o.bgpSessions))
		for name, session := range o.bgpSessions {
			c.BGPSessions[name] = fromkube.BGPSession(session)
		}
		c.Withheld = make(map[netip.Addr]string, len(o.withheld))
		for _, w := range o.withheld {
			c.Withheld[w.address] = w.why
		}
	}
	o.touched, o.others, o.places, o.sessions = map[view.Ref]struct{}{}, false, false, false
	return s
}

// follow makes one entry of a map that of another one.
func follow[K comparable, V any](m, other map[K]V, key K) {
	if value, there := other[key]; there {
		m[key] = value
	} else {
		delete(m, key)
	}
}

// The functions below take over the newest state of one object, nil for one that
// is gone, and report whether it matters.

func (o *objects) setService(key client.ObjectKey, s *corev1.Service) bool {
	ref := view.Ref{Namespace: key.Namespace, Name: key.Name}
	_, known := o.services[ref]
	used := o.clusterIPs[ref]
	delete(o.straying, ref)
	delete(o.clusterIPs, ref)
	listed := o.externalIPs[ref]
	delete(o.externalIPs, ref)
	if known || relevant(s) {
		o.touched[ref] = struct{}{}
	}
	if !relevant(s) {
		delete(o.services, ref)
		delete(o.views, ref)
		if used := fromkube.ClusterIPs(s); len(used) > 0 {
			o.clusterIPs[ref] = used
		}
		if lists := fromkube.ExternalIPs(s); len(lists) > 0 {
			o.externalIPs[ref] = lists
		}
	}
	if !slices.Equal(used, o.clusterIPs[ref]) {
		o.touched[ref] = struct{}{}
	}
	if !slices.Equal(listed, o.externalIPs[ref]) {
		o.others, o.places = true, true
		known = true
	}
	if !relevant(s) {
		return known
	}
	o.services[ref] = s
	if v := o.requests.Service(s); v != nil {
		o.views[ref] = v
		if v.Request.Stray != nil {
			o.straying[ref] = struct{}{}
		}
	} else {
		delete(o.views, ref)
	}
	return true
}

// relevant reports whether the Service has addresses, may get some, or carries a
// condition of ours from the time when it did. Most Services of a cluster do not.
func relevant(s *corev1.Service) bool {
	return s != nil && (s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 ||
		meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated) != nil)
}

// named takes over objects of a kind of ours. Every version matters: the next status is written over it.
func named[O, V any](o *objects, kind *mirror.Kind[*O, V]) func(client.ObjectKey, *O) bool {
	return func(key client.ObjectKey, object *O) bool {
		o.others = true
		kind.Set(key, object, object != nil)
		return true
	}
}

func (o *objects) setBGPAdvertisement(key client.ObjectKey, a *v1beta1.BGPAdvertisement) bool {
	o.aggregate(o.BGPAdvertisements.Objects[key.Name], a)
	return named(o, &o.BGPAdvertisements)(key, a)
}

// setBGPSession keeps the newest version of each, to delete it by. Most fields, such as the number of
// prefixes, do not matter here.
func (o *objects) setBGPSession(key client.ObjectKey, s *v1beta1.BGPSession) bool {
	o.sessions = true
	before := o.bgpSessions[key.Name]
	if s == nil {
		delete(o.bgpSessions, key.Name)
		return before != nil
	}
	o.bgpSessions[key.Name] = s
	return before == nil || *fromkube.BGPSession(before) != *fromkube.BGPSession(s)
}

// withheld is an address for which no node answers, and why.
type withheld struct {
	address netip.Addr
	why     string
}

// setL2Address keeps those for which no node answers. Which node answers for the others does not matter here.
func (o *objects) setL2Address(key client.ObjectKey, a *v1beta1.L2Address) bool {
	var now withheld
	if a != nil {
		now.address, now.why = fromkube.Withheld(a)
	}
	if now == o.withheld[key.Name] {
		return false
	}
	if o.withheld[key.Name] = now; !now.address.IsValid() {
		delete(o.withheld, key.Name)
	}
	o.sessions = true
	return true
}

func (o *objects) setSecret(key client.ObjectKey, s *corev1.Secret) bool {
	return set(o, o.Secrets, key.Name, s)
}

func (o *objects) setNode(key client.ObjectKey, n *corev1.Node) bool {
	var v *view.Node
	if n != nil {
		v = o.read.Read(n)
	}
	if reflect.DeepEqual(o.nodes[key.Name], v) {
		return false
	}
	o.places = true
	if had := o.nodes[key.Name]; had == nil || v == nil || !slices.Equal(had.PodCIDRs, v.PodCIDRs) {
		o.prefixes = true
	}
	return set(o, o.nodes, key.Name, v)
}

func (o *objects) setServiceCIDR(key client.ObjectKey, s *networkingv1.ServiceCIDR) bool {
	before := o.ServiceCIDRs[key.Name]
	o.others, o.places = true, true
	if s == nil {
		delete(o.ServiceCIDRs, key.Name)
		return len(before) > 0
	}
	o.ServiceCIDRs[key.Name] = fromkube.ServiceRanges(s)
	return !slices.Equal(before, o.ServiceCIDRs[key.Name])
}

func (o *objects) setNamespace(key client.ObjectKey, n *metav1.PartialObjectMetadata) bool {
	labels, known := o.namespaces[key.Name]
	if n != nil && known && maps.Equal(labels, n.Labels) {
		return false
	}
	o.others, o.places = true, true
	if n == nil {
		delete(o.namespaces, key.Name)
		return false // its Services are gone, or about to
	}
	o.namespaces[key.Name] = n.Labels
	return true
}

func set[T any](o *objects, into map[string]*T, name string, value *T) bool {
	if value == nil {
		delete(into, name)
	} else {
		into[name] = value
	}
	o.others = true
	return true
}
