package watch

import (
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/mirror"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// objects are the values that a snapshot is made of. Every value is replaced, never
// written to, since snapshots share them.
type objects struct {
	mirror.Config
	services map[view.Ref]*view.Service
	// reservations have what they hold.
	reservations map[view.Ref]*view.Reservation
	slices       mirror.Slices
	triggers     triggers
	nodes        map[string]*view.Node
	own          string                  // name of our node
	lastOwn      *view.Node              // what was last known of it
	speakers     map[string]view.Speaker // by pod, since two may be on a node during an update
	// daemonSets has the DaemonSet of the speakers, unless it is being deleted.
	daemonSets map[string]struct{}
	roll       view.RollCall
	adjacent   map[string]view.Adjacency            // by interface
	unread     map[problem.Object][]problem.Problem // of Services and EndpointSlices, which are few
	named      named

	// What has changed since the last snapshot: Services themselves or their endpoints, reservations,
	// the roll call, and anything else.
	touchedServices, touchedEndpoints, reserved map[view.Ref]struct{}
	others, hellos                              bool
}

func newObjects(own string) objects {
	return objects{
		Config: mirror.NewConfig(), own: own,
		named: newNamed(), services: map[view.Ref]*view.Service{}, reservations: map[view.Ref]*view.Reservation{}, slices: mirror.NewSlices(), triggers: newTriggers(),
		nodes: map[string]*view.Node{}, speakers: map[string]view.Speaker{}, daemonSets: map[string]struct{}{},
		adjacent: map[string]view.Adjacency{}, unread: map[problem.Object][]problem.Problem{},
		touchedServices: map[view.Ref]struct{}{}, touchedEndpoints: map[view.Ref]struct{}{}, reserved: map[view.Ref]struct{}{},
	}
}

// put stores a value, or deletes it when there is none, and reports whether that
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
	o.setUnread(problem.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name}, unread)
	o.touchedServices[ref] = struct{}{}
	return true
}

func (o *objects) reservation(key client.ObjectKey, r *view.Reservation, present bool) bool {
	ref := view.Ref{Namespace: key.Namespace, Name: key.Name}
	changed := put(o.reservations, ref, r, present)
	if changed {
		o.reserved[ref] = struct{}{}
	}
	return changed
}

func (o *objects) slice(key client.ObjectKey, s slice, _ bool) bool {
	changed := o.setUnread(problem.Object{Kind: "EndpointSlice", Namespace: key.Namespace, Name: key.Name}, s.unread)
	for _, service := range o.slices.Set(key, s.service, s.endpoints) {
		o.touchedEndpoints[service] = struct{}{}
		changed = true
	}
	if s.endpoints != nil && changed {
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

// setUnread replaces the problems of reading an object, and reports whether they changed.
func (o *objects) setUnread(of problem.Object, unread []problem.Problem) bool {
	if slices.Equal(o.unread[of], unread) {
		return false
	}
	o.others = true
	if o.unread[of] = unread; len(unread) == 0 {
		delete(o.unread, of)
	}
	return true
}

// dirty reports whether anything has changed since the last snapshot.
func (o *objects) dirty() bool {
	return o.others || o.hellos || len(o.touchedServices)+len(o.touchedEndpoints)+len(o.reserved) > 0
}

// snapshot makes a snapshot of the last one, nil at first, and what has changed. It shares all values, and
// copies the map of Services or reservations where one changed, and the map of endpoints in parts.
func (o *objects) snapshot(last *view.Cluster) *view.Cluster {
	c := &view.Cluster{}
	if last != nil {
		*c = *last
	}
	c.Changes = view.Changes{Revision: c.Revision + 1, Since: c.Revision, Others: o.others}
	if len(o.touchedServices) > 0 || last == nil {
		c.Services = maps.Clone(o.services)
	}
	if len(o.reserved) > 0 || last == nil {
		c.Reservations = maps.Clone(o.reservations)
	}
	if len(o.touchedEndpoints) > 0 || last == nil {
		changed := make(map[view.Ref][]view.Endpoint, len(o.touchedEndpoints))
		for service := range o.touchedEndpoints {
			changed[service] = o.slices.Of(service)
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
	c.Touched, c.Reserved = o.touchedServices, o.reserved
	o.touchedServices, o.touchedEndpoints, o.reserved = map[view.Ref]struct{}{}, map[view.Ref]struct{}{}, map[view.Ref]struct{}{}
	o.others, o.hellos = false, false
	return c
}

func (o *objects) readOthers(c *view.Cluster) {
	o.Fill(c)
	o.need(c)
	c.Nodes, c.LastOwn = maps.Clone(o.nodes), o.lastOwn
	c.Adjacent = o.adjacent
	c.Speakers, c.Deployed = map[string]view.Speaker{}, len(o.daemonSets) > 0
	for _, s := range o.speakers {
		if other, two := c.Speakers[s.Node]; two {
			s.Ready, s.BoundsLoad = s.Ready || other.Ready, s.BoundsLoad && other.BoundsLoad
		}
		c.Speakers[s.Node] = s
	}
	if s := o.Secrets[v1beta1.HelloSecret]; s != nil {
		c.Problems = append(c.Problems, o.takeHelloKey(c, s)...)
	}
	for _, unread := range o.unread {
		c.Problems = append(c.Problems, unread...)
	}
	problem.Sort(c.Problems)
}

// podCIDRsWritten reports whether the Nodes of the cluster get podCIDRs, as far as is known: of several Nodes,
// one has some.
func (o *objects) podCIDRsWritten() bool {
	written := func(n *view.Node) bool { return len(n.PodCIDRs) > 0 }
	return len(o.nodes) < 2 || slices.ContainsFunc(slices.Collect(maps.Values(o.nodes)), written)
}

// takeHelloKey moves the key of the hellos into the snapshot. Without a key there is a problem, and the
// former key stays: nodes without one answer for nothing on layer 2.
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

// triggersKept is how long a trigger is in the snapshots: longer than any pass that
// brings its change into the kernel, and any latency worth telling apart.
const triggersKept = 10 * time.Minute

// triggers remembers what caused the newest changes of endpoints, and when.
type triggers struct {
	since time.Time // what happened before is not ours to measure
	times map[view.EndpointsOf]time.Time
	// shared: a snapshot has the map, which must not be written to any more.
	shared bool
}

func newTriggers() triggers {
	return triggers{since: time.Now(), times: map[view.EndpointsOf]time.Time{}}
}

func (t *triggers) note(of view.EndpointsOf, at time.Time) {
	if at.Before(t.since) || !at.After(t.times[of]) {
		return
	}
	if t.shared {
		kept := make(map[view.EndpointsOf]time.Time, len(t.times)+1)
		for key, old := range t.times {
			if time.Since(old) < triggersKept {
				kept[key] = old
			}
		}
		t.times, t.shared = kept, false
	}
	t.times[of] = at
}

func (t *triggers) share() map[view.EndpointsOf]time.Time {
	t.shared = true
	return t.times
}

// located reports whether this node's Node is complete, or has been waited for long enough. A
// Node exists before the kubelet or a cloud's controller has written all of it.
func (w *Watch) located() bool {
	_, lacks := w.unknown()
	return w.config.Node == "" || w.without || !lacks
}

// lack is what is not known of this node's Node, what that means, and the remedy.
type lack struct{ what, without, hint string }

// unknown is the first thing that this node's Node lacks; false if it is complete.
func (w *Watch) unknown() (lack, bool) {
	switch own := w.objects.lastOwn; {
	case own == nil:
		return lack{
			"the cluster has no Node of our name", "going on without our own Node: NodePorts answer nowhere on this node",
			"the kubelet registers it; it has the name that kubectl get nodes shows",
		}, true
	case len(own.Addresses) == 0:
		return lack{
			"our own Node has no addresses", "going on without addresses of our own Node: NodePorts answer nowhere on this node",
			"the kubelet or the cloud's controller writes status.addresses",
		}, true
	case w.config.OwnPods && len(own.PodCIDRs) == 0 && w.objects.podCIDRsWritten():
		return lack{
			"our own Node has no podCIDRs", "going on without podCIDRs of our own Node: nothing for ClusterIPs is masqueraded",
			"the controller manager writes spec.podCIDRs; if none does, choose another forwarding.detectLocalMode",
		}, true
	}
	return lack{}, false
}

// awaitOwn begins to wait for this node's Node, unless it is complete.
func (w *Watch) awaitOwn() {
	if w.located() {
		return
	}
	lacks, _ := w.unknown()
	w.config.Log.Warn("our own Node is waited for: what the kernel has stays as it is meanwhile",
		"node", w.config.Node, "lacking", lacks.what, "waiting", w.config.OwnIn.String(), "hint", lacks.hint)
	w.waiting = time.AfterFunc(w.config.OwnIn, func() {
		w.update(func() bool {
			if w.newest != nil || w.located() {
				return false
			}
			lacks, _ := w.unknown()
			w.config.Log.Error("our own Node was waited for in vain", "node", w.config.Node, "now", lacks.without, "hint", lacks.hint)
			w.without = true
			return true
		})
	})
}

func (w *Watch) waitNoMore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting != nil {
		w.waiting.Stop()
	}
}
