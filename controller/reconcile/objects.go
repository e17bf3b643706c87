package reconcile

import (
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
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

	services          map[view.Ref]*corev1.Service
	pools             map[string]*v1beta1.IPAddressPool
	l2Advertisements  map[string]*v1beta1.L2Advertisement
	bgpAdvertisements map[string]*v1beta1.BGPAdvertisement
	bgpPeers          map[string]*v1beta1.BGPPeer
	nodes             map[string]*view.Node
	secrets           map[string]*corev1.Secret

	namespaces map[string]map[string]string // their labels

	slices map[client.ObjectKey]view.Ref // which Service a slice is for; its label may change
	parts  map[view.Ref][]part
}

func newObjects(requests fromkube.Requests) *objects {
	return &objects{
		requests:          requests,
		wake:              make(chan struct{}, 1),
		views:             map[view.Ref]*view.Service{},
		services:          map[view.Ref]*corev1.Service{},
		pools:             map[string]*v1beta1.IPAddressPool{},
		l2Advertisements:  map[string]*v1beta1.L2Advertisement{},
		bgpAdvertisements: map[string]*v1beta1.BGPAdvertisement{},
		bgpPeers:          map[string]*v1beta1.BGPPeer{},
		nodes:             map[string]*view.Node{},
		secrets:           map[string]*corev1.Secret{},
		namespaces:        map[string]map[string]string{},
		slices:            map[client.ObjectKey]view.Ref{},
		parts:             map[view.Ref][]part{},
	}
}

// snapshot is everything at one moment.
type snapshot struct {
	cluster *view.Cluster

	// The objects behind the views, of those kinds that have a status.
	services          map[view.Ref]*corev1.Service
	pools             map[string]*v1beta1.IPAddressPool
	l2Advertisements  map[string]*v1beta1.L2Advertisement
	bgpAdvertisements map[string]*v1beta1.BGPAdvertisement
	bgpPeers          map[string]*v1beta1.BGPPeer
}

// snapshot takes everything that is known now.
func (o *objects) snapshot() *snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &view.Cluster{
		Services:          maps.Clone(o.views),
		Namespaces:        maps.Clone(o.namespaces),
		Endpoints:         new(view.Endpoints).With(o.endpoints()),
		Nodes:             maps.Clone(o.nodes),
		Pools:             make(map[string]*view.Pool, len(o.pools)),
		L2Advertisements:  make(map[string]*view.L2Advertisement, len(o.l2Advertisements)),
		BGPAdvertisements: make(map[string]*view.BGPAdvertisement, len(o.bgpAdvertisements)),
		BGPPeers:          make(map[string]*view.BGPPeer, len(o.bgpPeers)),
	}
	for name, p := range o.pools {
		v, problems := fromkube.Pool(p)
		c.Pools[name], c.Problems = v, append(c.Problems, problems...)
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
	return &snapshot{
		cluster:           c,
		services:          maps.Clone(o.services),
		pools:             maps.Clone(o.pools),
		l2Advertisements:  maps.Clone(o.l2Advertisements),
		bgpAdvertisements: maps.Clone(o.bgpAdvertisements),
		bgpPeers:          maps.Clone(o.bgpPeers),
	}
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
	if !relevant(s) {
		delete(o.services, ref)
		delete(o.views, ref)
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
	return set(o.pools, key.Name, p)
}

func (o *objects) setL2Advertisement(key client.ObjectKey, a *v1beta1.L2Advertisement) bool {
	return set(o.l2Advertisements, key.Name, a)
}

func (o *objects) setBGPAdvertisement(key client.ObjectKey, a *v1beta1.BGPAdvertisement) bool {
	return set(o.bgpAdvertisements, key.Name, a)
}

func (o *objects) setBGPPeer(key client.ObjectKey, p *v1beta1.BGPPeer) bool {
	return set(o.bgpPeers, key.Name, p)
}

func (o *objects) setSecret(key client.ObjectKey, s *corev1.Secret) bool {
	return set(o.secrets, key.Name, s)
}

func (o *objects) setNode(key client.ObjectKey, n *corev1.Node) bool {
	var v *view.Node
	if n != nil {
		v = fromkube.Node(n)
	}
	if reflect.DeepEqual(o.nodes[key.Name], v) {
		return false
	}
	return set(o.nodes, key.Name, v)
}

// setNamespace knows of namespaces what selectors see: their labels.
func (o *objects) setNamespace(key client.ObjectKey, n *metav1.PartialObjectMetadata) bool {
	labels, known := o.namespaces[key.Name]
	switch {
	case n == nil:
		delete(o.namespaces, key.Name)
		return false // its Services are gone, or about to
	case known && maps.Equal(labels, n.Labels):
		return false
	}
	o.namespaces[key.Name] = n.Labels
	return true
}

// set stores what is there and deletes what is not.
func set[T any](into map[string]*T, name string, value *T) bool {
	if value == nil {
		delete(into, name)
	} else {
		into[name] = value
	}
	return true
}
