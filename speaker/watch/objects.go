package watch

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// objects are the values that a snapshot is made of. Every value is replaced, never
// written to, since snapshots share them.
type objects struct {
	services  map[view.Ref]*view.Service
	slices    map[client.ObjectKey]view.Ref // which Service a slice is for; its label may change
	byService map[view.Ref][]part           // sorted by slice
	triggers  triggers
	nodes     map[string]*view.Node
	own       string                  // name of our node
	lastOwn   *view.Node              // what was last known of it
	speakers  map[string]view.Speaker // by pod, since two may be on a node during an update
	secrets   map[string]*corev1.Secret
	// daemonSets has the DaemonSet of the speakers, unless it is going.
	daemonSets map[string]struct{}
	roll       view.RollCall
	adjacent   map[string]view.Adjacency // by interface
	former     *view.Former
	unread     map[problem.Object][]problem.Problem // of Services and EndpointSlices, which are few

	pools             map[string]read[*view.Pool]
	l2Advertisements  map[string]read[*view.L2Advertisement]
	bgpAdvertisements map[string]read[*view.BGPAdvertisement]
	bfdProfiles       map[string]read[*view.BFDProfile]
	communities       map[string]read[*view.Community]
	bgpPeers          map[string]*v1beta1.BGPPeer // read at snapshot time: they need Secrets
	serviceCIDRs      map[string][]netip.Prefix

	// What has changed since the last snapshot: Services themselves or their endpoints,
	// and whether anything else has.
	touchedServices, touchedEndpoints map[view.Ref]struct{}
	others, rollCalled, preceded      bool
}

// part are the endpoints of a Service that one slice lists.
type part struct {
	slice     string
	endpoints []view.Endpoint
}

func newObjects(own string) objects {
	return objects{
		own:      own,
		services: map[view.Ref]*view.Service{}, slices: map[client.ObjectKey]view.Ref{},
		byService: map[view.Ref][]part{}, triggers: newTriggers(),
		nodes: map[string]*view.Node{}, speakers: map[string]view.Speaker{}, secrets: map[string]*corev1.Secret{},
		daemonSets: map[string]struct{}{},
		pools:      map[string]read[*view.Pool]{}, l2Advertisements: map[string]read[*view.L2Advertisement]{},
		bgpAdvertisements: map[string]read[*view.BGPAdvertisement]{}, bgpPeers: map[string]*v1beta1.BGPPeer{},
		adjacent: map[string]view.Adjacency{}, unread: map[problem.Object][]problem.Problem{},
		bfdProfiles: map[string]read[*view.BFDProfile]{}, communities: map[string]read[*view.Community]{},
		serviceCIDRs:    map[string][]netip.Prefix{},
		touchedServices: map[view.Ref]struct{}{}, touchedEndpoints: map[view.Ref]struct{}{},
	}
}

// put stores a value, or deletes it when there is none, and tells whether that
// changed anything.
func put[K comparable, V any](into map[K]V, key K, value V, present bool) bool {
	old, had := into[key]
	if !present {
		delete(into, key)
		return had
	}
	if had && reflect.DeepEqual(old, value) {
		return false
	}
	into[key] = value
	return true
}

// putNamed stores values of a kind whose objects are told apart by name.
func putNamed[V any](into map[string]V) func(client.ObjectKey, V, bool) bool {
	return func(key client.ObjectKey, value V, present bool) bool { return put(into, key.Name, value, present) }
}

func (o *objects) service(key client.ObjectKey, v *view.Service, present bool) bool {
	ref := view.Ref{Namespace: key.Namespace, Name: key.Name}
	if !put(o.services, ref, v, present) {
		return false
	}
	var unread []problem.Problem
	if present {
		unread = v.Unread
	}
	o.tell(problem.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name}, unread)
	o.touchedServices[ref] = struct{}{}
	return true
}

func (o *objects) slice(key client.ObjectKey, s slice, present bool) bool {
	changed := o.tell(problem.Object{Kind: "EndpointSlice", Namespace: key.Namespace, Name: key.Name}, s.unread)
	present = present && s.ours
	if service, had := o.slices[key]; had && (!present || service != s.service) {
		delete(o.slices, key)
		changed = o.join(service, key.Name, nil)
	}
	if present {
		o.slices[key] = s.service
		changed = o.join(s.service, key.Name, s.endpoints) || changed
	}
	if present && changed {
		o.triggers.note(s.of, s.trigger)
	}
	return changed
}

func (o *objects) node(key client.ObjectKey, n *view.Node, present bool) bool {
	if present && key.Name == o.own {
		o.lastOwn = n.Remember(o.lastOwn)
	}
	return put(o.nodes, key.Name, n, present)
}

// tell replaces what could not be read of an object, and tells whether that is news.
func (o *objects) tell(of problem.Object, unread []problem.Problem) bool {
	if slices.Equal(o.unread[of], unread) {
		return false
	}
	o.others = true
	if o.unread[of] = unread; len(unread) == 0 {
		delete(o.unread, of)
	}
	return true
}

// join replaces what one slice says about a Service, nil for nothing any more, in the
// order of the slices' names.
func (o *objects) join(service view.Ref, name string, endpoints []view.Endpoint) bool {
	parts := o.byService[service]
	i, had := slices.BinarySearchFunc(parts, name, func(p part, name string) int { return strings.Compare(p.slice, name) })
	switch {
	case endpoints == nil && !had, endpoints != nil && had && reflect.DeepEqual(parts[i].endpoints, endpoints):
		return false
	case endpoints == nil:
		parts = slices.Delete(parts, i, i+1)
	case had:
		parts[i].endpoints = endpoints
	default:
		parts = slices.Insert(parts, i, part{name, endpoints})
	}
	o.touchedEndpoints[service] = struct{}{}
	if len(parts) == 0 {
		delete(o.byService, service)
	} else {
		o.byService[service] = parts
	}
	return true
}

// endpoints are those of a Service over all its slices.
func (o *objects) endpoints(service view.Ref) []view.Endpoint {
	parts := o.byService[service]
	if len(parts) == 1 {
		return parts[0].endpoints // shared: neither is ever written to
	}
	var joined []view.Endpoint
	for _, p := range parts {
		joined = append(joined, p.endpoints...)
	}
	return joined
}

// dirty tells whether anything has changed since the last snapshot.
func (o *objects) dirty() bool {
	return o.others || o.rollCalled || o.preceded || len(o.touchedServices)+len(o.touchedEndpoints) > 0
}

// snapshot copies what has changed since the last one, nil at first, and shares the rest.
func (o *objects) snapshot(last *view.Cluster) *view.Cluster {
	c := &view.Cluster{}
	if last != nil {
		*c = *last
	}
	c.Changes = view.Changes{Revision: c.Revision + 1, Since: c.Revision, Others: o.others}
	if len(o.touchedServices) > 0 || last == nil {
		c.Services = maps.Clone(o.services)
	}
	if len(o.touchedEndpoints) > 0 || last == nil {
		changed := make(map[view.Ref][]view.Endpoint, len(o.touchedEndpoints))
		for service := range o.touchedEndpoints {
			changed[service] = o.endpoints(service)
		}
		c.Endpoints = c.Endpoints.With(changed)
		c.Triggers = o.triggers.share()
	}
	if o.others || last == nil {
		o.readOthers(c)
	}
	maps.Copy(o.touchedServices, o.touchedEndpoints)
	if fell := c.Fall(o.roll); len(fell) > 0 {
		for _, service := range c.Endpoints.On(fell) {
			o.touchedServices[service] = struct{}{}
		}
	}
	c.Touched, c.Former = o.touchedServices, o.former
	o.touchedServices, o.touchedEndpoints = map[view.Ref]struct{}{}, map[view.Ref]struct{}{}
	o.others, o.rollCalled, o.preceded = false, false, false
	return c
}

// readOthers copies all that are no Services and no endpoints.
func (o *objects) readOthers(c *view.Cluster) {
	c.Nodes, c.LastOwn = maps.Clone(o.nodes), o.lastOwn
	c.Adjacent = o.adjacent
	c.Speakers, c.Deployed = map[string]view.Speaker{}, len(o.daemonSets) > 0
	c.Pools = map[string]*view.Pool{}
	c.L2Advertisements = map[string]*view.L2Advertisement{}
	c.BGPAdvertisements = map[string]*view.BGPAdvertisement{}
	c.BGPPeers = map[string]*view.BGPPeer{}
	c.BFDProfiles = map[string]*view.BFDProfile{}
	c.Communities = map[string]*view.Community{}
	c.ServiceRanges = view.JoinRanges(o.serviceCIDRs)
	c.Problems = nil
	for _, s := range o.speakers {
		if other, two := c.Speakers[s.Node]; two {
			s.Ready, s.BoundsLoad = s.Ready || other.Ready, s.BoundsLoad && other.BoundsLoad
		}
		c.Speakers[s.Node] = s
	}
	if s := o.secrets[v1beta1.HelloSecret]; s != nil {
		c.Problems = append(c.Problems, o.takeHelloKey(c, s)...)
	}
	take(c, c.Pools, o.pools)
	take(c, c.L2Advertisements, o.l2Advertisements)
	take(c, c.BGPAdvertisements, o.bgpAdvertisements)
	take(c, c.BFDProfiles, o.bfdProfiles)
	take(c, c.Communities, o.communities)
	for name, p := range o.bgpPeers {
		peer, problems := fromkube.BGPPeer(p, func(name string) (*corev1.Secret, bool) {
			s, ok := o.secrets[name]
			return s, ok
		})
		c.BGPPeers[name] = peer
		c.Problems = append(c.Problems, problems...)
	}
	for _, unread := range o.unread {
		c.Problems = append(c.Problems, unread...)
	}
	problem.Sort(c.Problems)
}

// podCIDRsWritten tells whether the cluster is one whose Nodes get podCIDRs, or may be: of several, some
// Node has some.
func (o *objects) podCIDRsWritten() bool {
	for _, n := range o.nodes {
		if len(n.PodCIDRs) > 0 {
			return true
		}
	}
	return len(o.nodes) < 2
}

// takeHelloKey moves the key of the hellos into the snapshot, and tells if there is none. What is
// empty replaces no key: nodes without one answer for nothing on layer 2.
func (o *objects) takeHelloKey(c *view.Cluster, s *corev1.Secret) []problem.Problem {
	if key := s.Data[v1beta1.HelloSecretKey]; len(key) > 0 {
		c.HelloKey = view.Secret(key)
		return nil
	}
	of, then := problem.Object{Kind: "Secret", Namespace: s.Namespace, Name: s.Name}, "the key that it had stays in use"
	if len(c.HelloKey) == 0 {
		of, then = problem.Object{Kind: "Node", Name: o.own}, "a node whose pulse has not had one since it began answers for no address on layer 2"
	}
	return []problem.Problem{problem.New(of, v1beta1.ReasonHelloKeyMissing, "Secret %s/%s has no value of the key %q: %s; "+
		"the controller makes one, or if the Secret is deleted", s.Namespace, s.Name, v1beta1.HelloSecretKey, then)}
}

// take moves what was read of one kind into the snapshot.
func take[T any](c *view.Cluster, into map[string]T, from map[string]read[T]) {
	for name, r := range from {
		into[name] = r.value
		c.Problems = append(c.Problems, r.problems...)
	}
}
