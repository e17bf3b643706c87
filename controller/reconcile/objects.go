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

	services          map[view.Ref]*corev1.Service
	reservations      map[view.Ref]*v1beta1.IPReservation
	booked            map[view.Ref]*view.Reservation // the views of these
	pools             map[string]*v1beta1.IPAddressPool
	l2Advertisements  map[string]*v1beta1.L2Advertisement
	bgpAdvertisements map[string]*v1beta1.BGPAdvertisement
	bgpPeers          map[string]*v1beta1.BGPPeer
	bfdProfiles       map[string]*v1beta1.BFDProfile
	communities       map[string]*v1beta1.Community
	bgpSessions       map[string]*v1beta1.BGPSession
	nodes             map[string]*view.Node
	secrets           map[string]*corev1.Secret
	serviceRanges     map[string][]netip.Prefix // by ServiceCIDR

	// clusterIPs are those of the Services that are not relevant.
	clusterIPs map[view.Ref][]netip.Addr

	namespaces map[string]map[string]string // their labels

	slices map[client.ObjectKey]view.Ref // which Service a slice is for; its label may change
	parts  map[view.Ref][]part

	aggregates int // how many BGPAdvertisements have an aggregate

	// poolViews keep their pointers as long as nothing changes but what a pool's status
	// counts.
	poolViews map[string]pool

	// What has changed since the last snapshot.
	touched map[view.Ref]struct{} // Services, or their endpoints
	others  bool                  // something else
	places  bool                  // of that, nodes, namespaces or ranges of ClusterIPs
	// sessions: BGPSessions, which nobody gets an address by.
	sessions bool
	lent     *snapshot
}

// pool is what was read of an IPAddressPool.
type pool struct {
	view     *view.Pool
	problems []problem.Problem
}

func newObjects(requests fromkube.Requests, read fromkube.Nodes) *objects {
	return &objects{
		requests:          requests,
		read:              read,
		wake:              make(chan struct{}, 1),
		views:             map[view.Ref]*view.Service{},
		services:          map[view.Ref]*corev1.Service{},
		reservations:      map[view.Ref]*v1beta1.IPReservation{},
		booked:            map[view.Ref]*view.Reservation{},
		pools:             map[string]*v1beta1.IPAddressPool{},
		l2Advertisements:  map[string]*v1beta1.L2Advertisement{},
		bgpAdvertisements: map[string]*v1beta1.BGPAdvertisement{},
		bgpPeers:          map[string]*v1beta1.BGPPeer{},
		bfdProfiles:       map[string]*v1beta1.BFDProfile{},
		communities:       map[string]*v1beta1.Community{},
		bgpSessions:       map[string]*v1beta1.BGPSession{},
		nodes:             map[string]*view.Node{},
		secrets:           map[string]*corev1.Secret{},
		serviceRanges:     map[string][]netip.Prefix{},
		clusterIPs:        map[view.Ref][]netip.Addr{},
		namespaces:        map[string]map[string]string{},
		slices:            map[client.ObjectKey]view.Ref{},
		parts:             map[view.Ref][]part{},
		poolViews:         map[string]pool{},
		touched:           map[view.Ref]struct{}{},
		others:            true,
		places:            true,
		lent: &snapshot{
			cluster:  &view.Cluster{Services: map[view.Ref]*view.Service{}},
			services: map[view.Ref]*corev1.Service{},
		},
	}
}

// snapshot is everything at one moment. It is lent, and holds until the next one is taken.
type snapshot struct {
	cluster *view.Cluster

	// The objects behind the views, of those kinds that have a status.
	services          map[view.Ref]*corev1.Service
	reservations      map[view.Ref]*v1beta1.IPReservation
	pools             map[string]*v1beta1.IPAddressPool
	l2Advertisements  map[string]*v1beta1.L2Advertisement
	bgpAdvertisements map[string]*v1beta1.BGPAdvertisement
	bgpPeers          map[string]*v1beta1.BGPPeer
	bfdProfiles       map[string]*v1beta1.BFDProfile
	communities       map[string]*v1beta1.Community
	bgpSessions       map[string]*v1beta1.BGPSession

	// contested are those whose status somebody else writes, too, and until when that counts.
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
		if now := o.endpoints(ref); len(now) > 0 || len(c.Endpoints.Of(ref)) > 0 {
			endpoints[ref] = now
		}
	}
	c.Endpoints = c.Endpoints.With(endpoints)
	if o.places {
		c.Namespaces, c.Nodes, c.ServiceRanges = maps.Clone(o.namespaces), maps.Clone(o.nodes), view.JoinRanges(o.serviceRanges)
	}
	c.ClusterIPs = nil
	if len(c.ServiceRanges) == 0 {
		c.ClusterIPs = maps.Clone(o.clusterIPs)
	}
	if o.others {
		o.readOthers(s)
	}
	if o.sessions {
		s.bgpSessions = maps.Clone(o.bgpSessions)
		c.BGPSessions = make(map[string]*view.BGPSession, len(o.bgpSessions))
		for name, session := range o.bgpSessions {
			c.BGPSessions[name] = fromkube.BGPSession(session)
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

// readOthers takes all that are no Services, endpoints or places.
func (o *objects) readOthers(s *snapshot) {
	c := s.cluster
	c.Reservations = maps.Clone(o.booked)
	c.Pools = make(map[string]*view.Pool, len(o.pools))
	c.L2Advertisements = make(map[string]*view.L2Advertisement, len(o.l2Advertisements))
	c.BGPAdvertisements = make(map[string]*view.BGPAdvertisement, len(o.bgpAdvertisements))
	c.BGPPeers = make(map[string]*view.BGPPeer, len(o.bgpPeers))
	c.BFDProfiles = make(map[string]*view.BFDProfile, len(o.bfdProfiles))
	c.Communities = make(map[string]*view.Community, len(o.communities))
	c.Problems = nil
	for name, p := range o.poolViews {
		c.Pools[name], c.Problems = p.view, append(c.Problems, p.problems...)
	}
	for name, a := range o.l2Advertisements {
		v, problems := fromkube.L2Advertisement(a)
		c.L2Advertisements[name], c.Problems = v, append(c.Problems, problems...)
	}
	for name, a := range o.bgpAdvertisements {
		v, problems := fromkube.BGPAdvertisement(a)
		c.BGPAdvertisements[name], c.Problems = v, append(c.Problems, problems...)
	}
	for name, p := range o.bgpPeers {
		v, problems := fromkube.BGPPeer(p, o.secret)
		c.BGPPeers[name], c.Problems = v, append(c.Problems, problems...)
	}
	for name, p := range o.bfdProfiles {
		v, problems := fromkube.BFDProfile(p)
		c.BFDProfiles[name], c.Problems = v, append(c.Problems, problems...)
	}
	for name, of := range o.communities {
		v, problems := fromkube.Community(of)
		c.Communities[name], c.Problems = v, append(c.Problems, problems...)
	}
	s.reservations = maps.Clone(o.reservations)
	s.pools = maps.Clone(o.pools)
	s.l2Advertisements = maps.Clone(o.l2Advertisements)
	s.bgpAdvertisements = maps.Clone(o.bgpAdvertisements)
	s.bgpPeers = maps.Clone(o.bgpPeers)
	s.bfdProfiles = maps.Clone(o.bfdProfiles)
	s.communities = maps.Clone(o.communities)
}

func (o *objects) secret(name string) (*corev1.Secret, bool) {
	s, ok := o.secrets[name]
	return s, ok
}

// The functions below take in the newest state of one object, nil for one that
// is gone, and tell whether it matters.

func (o *objects) setService(key client.ObjectKey, s *corev1.Service) bool {
	ref := view.Ref{Namespace: key.Namespace, Name: key.Name}
	_, known := o.services[ref]
	delete(o.clusterIPs, ref)
	if known || relevant(s) {
		o.touched[ref] = struct{}{}
	}
	if !relevant(s) {
		delete(o.services, ref)
		delete(o.views, ref)
		if used := fromkube.ClusterIPs(s); len(used) > 0 {
			o.clusterIPs[ref] = used
		}
		return known
	}
	o.services[ref] = s
	if v := fromkube.Service(s); v != nil {
		v.Request = o.requests.Read(s, v)
		o.views[ref] = v
	} else {
		delete(o.views, ref)
	}
	return true
}

// relevant tells whether the Service has addresses, may get some, or carries a
// condition of ours from the time when it did. Most Services of a cluster do not.
func relevant(s *corev1.Service) bool {
	return s != nil && (s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 ||
		meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated) != nil)
}

func (o *objects) setPool(key client.ObjectKey, p *v1beta1.IPAddressPool) bool {
	if p == nil {
		delete(o.poolViews, key.Name)
	} else if v, problems := fromkube.Pool(p); !reflect.DeepEqual(o.poolViews[key.Name], pool{v, problems}) {
		o.poolViews[key.Name] = pool{v, problems}
	}
	return set(o, o.pools, key.Name, p)
}

func (o *objects) setL2Advertisement(key client.ObjectKey, a *v1beta1.L2Advertisement) bool {
	return set(o, o.l2Advertisements, key.Name, a)
}

func (o *objects) setBGPAdvertisement(key client.ObjectKey, a *v1beta1.BGPAdvertisement) bool {
	o.aggregate(o.bgpAdvertisements[key.Name], a)
	return set(o, o.bgpAdvertisements, key.Name, a)
}

func (o *objects) setBGPPeer(key client.ObjectKey, p *v1beta1.BGPPeer) bool {
	return set(o, o.bgpPeers, key.Name, p)
}

func (o *objects) setBFDProfile(key client.ObjectKey, p *v1beta1.BFDProfile) bool {
	return set(o, o.bfdProfiles, key.Name, p)
}

func (o *objects) setCommunity(key client.ObjectKey, c *v1beta1.Community) bool {
	return set(o, o.communities, key.Name, c)
}

// setBGPSession has the newest version of each, to delete it by. The number of prefixes, say,
// matters to nobody here.
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

func (o *objects) setSecret(key client.ObjectKey, s *corev1.Secret) bool {
	return set(o, o.secrets, key.Name, s)
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
	return set(o, o.nodes, key.Name, v)
}

// setServiceCIDR knows of a ServiceCIDR its ranges.
func (o *objects) setServiceCIDR(key client.ObjectKey, s *networkingv1.ServiceCIDR) bool {
	before := o.serviceRanges[key.Name]
	o.others, o.places = true, true
	if s == nil {
		delete(o.serviceRanges, key.Name)
		return len(before) > 0
	}
	o.serviceRanges[key.Name] = fromkube.ServiceRanges(s)
	return !slices.Equal(before, o.serviceRanges[key.Name])
}

// setNamespace knows of namespaces what selectors see: their labels.
func (o *objects) setNamespace(key client.ObjectKey, n *metav1.PartialObjectMetadata) bool {
	labels, known := o.namespaces[key.Name]
	switch {
	case n == nil:
		delete(o.namespaces, key.Name)
		o.others, o.places = true, true
		return false // its Services are gone, or about to
	case known && maps.Equal(labels, n.Labels):
		return false
	}
	o.namespaces[key.Name] = n.Labels
	o.others, o.places = true, true
	return true
}

// set stores what is there and deletes what is not.
func set[T any](o *objects, into map[string]*T, name string, value *T) bool {
	if value == nil {
		delete(into, name)
	} else {
		into[name] = value
	}
	o.others = true
	return true
}
