package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// simulation is the API server's rules about versions, an informer that lags
// behind it, writes that are under way for any time, and leaders that die. What
// decides is the real thing.
type simulation struct {
	t        *rapid.T
	version  int
	services map[client.ObjectKey]*corev1.Service // what the API server has
	booked   map[client.ObjectKey]*v1beta1.IPReservation
	pool     *v1beta1.IPAddressPool
	lag      []change // what the informer has not seen yet
	// scribbled are the Services and reservations whose status somebody else has written:
	// for what they show, nobody here answers until all is quiet.
	scribbled map[problem.Object]bool

	mirror *objects
	last   *decision
	wanted map[problem.Object]write
	flying []write // sent, and not yet arrived

	now    time.Time
	cooled *cooledSimulation // nil: no pool has a cool-down
}

// change is one event of a watch.
type change struct {
	key     client.ObjectKey
	service *corev1.Service // nil: deleted, or none of it
	pool    *v1beta1.IPAddressPool
	// reservation changed, nil if it was deleted. booking: this is one of a reservation.
	reservation *v1beta1.IPReservation
	booking     bool
}

// TestNoAddressTwice: whatever the order in which users, writes, events and
// leaders act, and at whichever write a leader dies, before or after it has landed, at
// no moment two Services show one address unless they share it, nor two reservations, nor
// a reservation and a Service of another namespace; and once all is quiet, nothing is left
// undone.
func TestNoAddressTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { simulate(t, modes{}) })
}

// TestScribbledStatus: the same with somebody else who writes statuses. What they make
// two of them show is taken apart: once all is quiet, no two show one address.
func TestScribbledStatus(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { simulate(t, modes{scribbling: true}) })
}

// modes are what may happen beside all that always may.
type modes struct {
	scribbling bool // somebody else writes statuses
	cooling    bool // the pool has a cool-down, and users go on while nobody leads
}

func simulate(t *rapid.T, m modes) {
	s := &simulation{
		t: t, now: time.Unix(0, 0), services: map[client.ObjectKey]*corev1.Service{}, booked: map[client.ObjectKey]*v1beta1.IPReservation{},
		scribbled: map[problem.Object]bool{},
		mirror:    newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{}), last: &decision{},
	}
	if m.cooling {
		s.cooled = newCooledSimulation()
	}
	s.editPool()
	// What follows a user's doing is tried more often than it itself, so
	// that writes and events overtake each other instead of only piling up.
	actions := []func(){
		s.user, s.user, s.see, s.see, s.see, s.pass, s.pass, s.pass, s.send, s.send, s.arrive, s.arrive, s.arrive,
	}
	if m.scribbling {
		actions = append(actions, s.scribble, s.scribbleReservation)
	}
	if m.cooling {
		actions = append(actions, s.wait, s.note, s.note, s.note, s.noted, s.noted, s.noted)
	}
	for range 200 {
		rapid.SampledFrom(actions).Draw(t, "action")()
		if rapid.IntRange(0, 99).Draw(t, "fate") == 42 {
			s.die()
		}
		s.check()
	}
	s.rest()
}

// user does what users do; a Service comes more often than anything else.
func (s *simulation) user() {
	rapid.SampledFrom([]func(){
		s.create, s.create, s.create, s.remove, s.request, s.request, s.retype, s.editPool,
		s.reserve, s.reserve, s.reserve, s.unreserve, s.claim, s.claim,
	}).Draw(s.t, "user")()
}

// key is one of four Services of one namespace, and two of another.
func (s *simulation) key() client.ObjectKey {
	n := rapid.IntRange(0, 5).Draw(s.t, "service")
	return client.ObjectKey{Namespace: []string{"default", "shop"}[n/4], Name: fmt.Sprintf("s%d", n)}
}

func object(kind string, key client.ObjectKey) problem.Object {
	return problem.Object{Kind: kind, Namespace: key.Namespace, Name: key.Name}
}

// store is a successful write to a Service.
func (s *simulation) store(key client.ObjectKey, service *corev1.Service) {
	s.version++
	service.ResourceVersion = strconv.Itoa(s.version)
	s.services[key] = service
	s.lag = append(s.lag, change{key: key, service: service})
}

func (s *simulation) create() {
	key := s.key()
	if s.services[key] != nil {
		return
	}
	delete(s.scribbled, object("Service", key))
	shareKeys := []string{"", "k", "k", "l"}
	if s.cooled != nil { // who joins another one may come too late to meet it
		shareKeys = []string{""}
	}
	s.store(key, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			CreationTimestamp: metav1.Unix(int64(s.version/10), 0),
			Annotations: map[string]string{
				v1beta1.AnnotationShareKey: rapid.SampledFrom(shareKeys).Draw(s.t, "share key"),
			},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1",
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Port: rapid.Int32Range(1, 3).Draw(s.t, "port")}},
		},
	})
}

func (s *simulation) remove() {
	key := s.key()
	if s.services[key] != nil {
		delete(s.services, key)
		s.lag = append(s.lag, change{key: key})
	}
}

func (s *simulation) request() {
	key := s.key()
	if old := s.services[key]; old != nil {
		next := old.DeepCopy()
		ask := rapid.SampledFrom([]string{"", "192.0.2.1", "192.0.2.2", "192.0.2.4", "203.0.113.1", "nonsense"}).Draw(s.t, "request")
		next.Annotations[v1beta1.AnnotationAddresses] = ask
		s.store(key, next)
	}
}

// retype changes the type as the API server does: without one of a load
// balancer there is no address.
func (s *simulation) retype() {
	key := s.key()
	if old := s.services[key]; old != nil {
		next := old.DeepCopy()
		if next.Spec.Type == corev1.ServiceTypeLoadBalancer {
			next.Spec.Type = corev1.ServiceTypeClusterIP
			next.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		} else {
			next.Spec.Type = corev1.ServiceTypeLoadBalancer
		}
		s.store(key, next)
	}
}

// scribble writes a status by hand, as another implementation would.
func (s *simulation) scribble() {
	key := s.key()
	if old := s.services[key]; old != nil && old.Spec.Type == corev1.ServiceTypeLoadBalancer {
		next := old.DeepCopy()
		what := rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "192.0.2.8", "203.0.113.9", "127.0.0.1"}).Draw(s.t, "scribble")
		next.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: what}}
		s.scribbled[object("Service", key)] = true
		s.store(key, next)
	}
}

func (s *simulation) editPool() {
	p := &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if s.pool != nil {
		p = s.pool.DeepCopy()
	}
	p.Spec.Addresses = []string{rapid.SampledFrom([]string{"192.0.2.1-192.0.2.4", "192.0.2.3-192.0.2.9", "192.0.2.1/32"}).Draw(s.t, "pool")}
	if s.cooled != nil {
		p.Spec.Addresses, p.Spec.CoolDown = []string{"192.0.2.1-192.0.2.4"}, &metav1.Duration{Duration: simulatedCoolDown}
	}
	p.Spec.OnPoolChange = rapid.SampledFrom([]v1beta1.PoolChange{v1beta1.PoolChangeKeep, v1beta1.PoolChangeRenumber}).Draw(s.t, "on change")
	s.storePool(p)
}

func (s *simulation) storePool(p *v1beta1.IPAddressPool) {
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.pool = p
	s.lag = append(s.lag, change{key: client.ObjectKeyFromObject(p), pool: p})
}

// see lets the informer see some of the events that it is behind.
func (s *simulation) see() {
	s.deliver(rapid.SampledFrom([]int{min(1, len(s.lag)), len(s.lag)}).Draw(s.t, "events"))
}

func (s *simulation) deliver(events int) {
	for _, next := range s.lag[:events] {
		switch {
		case next.pool != nil:
			named(s.mirror, &s.mirror.Pools)(next.key, next.pool)
		case next.booking:
			s.mirror.setReservation(next.key, next.reservation)
		default:
			s.mirror.setService(next.key, next.service)
		}
	}
	s.lag = s.lag[events:]
}

func (s *simulation) pass() {
	snapshot, forgetful := s.mirror.snapshot(), *s.last
	forgetful.engine, forgetful.roll = nil, nil
	anew := decide(snapshot, &forgetful, s, view.Classes{}, s.now)
	d := decide(snapshot, s.last, s, view.Classes{}, s.now)
	s.last, s.wanted = d, d.writes
	if s.cooled != nil {
		s.cooled.promise(d.outcome.Assigned.Reservations)
	}
	if !maps.EqualFunc(anew.writes, d.writes, sameWrite) || !maps.EqualFunc(anew.unseen, d.unseen, sameUnseen) || !slices.Equal(anew.problems, d.problems) ||
		!maps.Equal(maps.Collect(anew.book.All()), maps.Collect(d.book.All())) {
		s.t.Fatalf("what is decided depends on the past: %+v, and from nothing %+v", d, anew)
	}
}

func sameWrite(a, b write) bool {
	return a.base == b.base && reflect.DeepEqual(timeless(a.next), timeless(b.next)) && slices.Equal(a.events, b.events)
}

// timeless is the object without the times of its conditions: of a Service that is not looked
// at again, they are those of the pass that did.
func timeless(o client.Object) client.Object {
	s, ok := o.(*corev1.Service)
	if !ok {
		return o
	}
	s = s.DeepCopy()
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return s
}

func sameUnseen(a, b unseen) bool {
	return a.version == b.version && slices.Equal(a.assignment.Addresses, b.assignment.Addresses)
}

// send puts wanted writes on their way; one may be sent twice.
func (s *simulation) send() {
	for _, object := range sorted(s.wanted) {
		if rapid.Bool().Draw(s.t, object.Name) {
			s.flying = append(s.flying, s.wanted[object])
		}
	}
}

// arrive lets a write arrive that is on its way: the API server takes it if
// nobody has written since, and nobody learns whether it did. Now and then the leader
// dies with it, before it has landed or after.
func (s *simulation) arrive() {
	if len(s.flying) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.flying)-1).Draw(s.t, "arrival")
	w := s.flying[i]
	s.flying = slices.Delete(s.flying, i, i+1)
	fate := rapid.IntRange(0, 9).Draw(s.t, "fate of the leader")
	if fate == 1 {
		s.die()
		return
	}
	s.land(w)
	if fate == 2 {
		s.die()
	}
}

// land is the API server taking a write, or refusing it.
func (s *simulation) land(w write) {
	switch next := w.next.(type) {
	case *corev1.Service:
		key := client.ObjectKeyFromObject(w.base)
		now := s.services[key]
		if now == nil || now.ResourceVersion != w.base.GetResourceVersion() {
			return
		}
		changed := now.DeepCopy()
		changed.Status = *next.Status.DeepCopy()
		s.store(key, changed)
	case *v1beta1.IPReservation:
		key := client.ObjectKeyFromObject(w.base)
		now := s.booked[key]
		if now == nil || now.ResourceVersion != w.base.GetResourceVersion() {
			return
		}
		changed := now.DeepCopy()
		changed.Status = *next.Status.DeepCopy()
		s.storeReservation(key, changed)
	case *v1beta1.IPAddressPool:
		if s.pool.ResourceVersion != w.base.GetResourceVersion() {
			return
		}
		changed := s.pool.DeepCopy()
		changed.Status = *next.Status.DeepCopy()
		s.storePool(changed)
	default:
		s.t.Fatalf("a status of %T is written", next)
	}
}

// die ends the leader; its writes end before another one leads, and the other
// one waits until it has seen what was written.
func (s *simulation) die() {
	s.flying, s.wanted, s.last = nil, nil, &decision{}
	if s.cooled != nil {
		s.vacancy()
	}
	s.deliver(len(s.lag))
}

// rest lets everything arrive and be seen until nothing moves any more.
func (s *simulation) rest() {
	for range 100 {
		s.deliver(len(s.lag))
		s.pass()
		for _, object := range sorted(s.wanted) {
			s.flying = append(s.flying, s.wanted[object])
		}
		for _, w := range s.flying {
			s.land(w)
			s.check()
		}
		s.flying = nil
		if !s.noteAll() && len(s.lag) == 0 {
			clear(s.scribbled)
			s.check()
			if len(s.last.unseen) > 0 {
				s.t.Fatalf("all is quiet, and yet these are not written: %v", s.last.unseen)
			}
			return
		}
	}
	s.t.Fatal("it does not come to rest")
}

// check looks for an address that two Services show and do not share. Keys and ports
// stay what they are: a user who changes them while an address is shared makes two
// Services show it that may not.
func (s *simulation) check() {
	shown := map[netip.Addr][]*corev1.Service{}
	for key, service := range s.services {
		if s.scribbled[object("Service", key)] {
			continue
		}
		for _, i := range service.Status.LoadBalancer.Ingress {
			a := netip.MustParseAddr(i.IP)
			for _, other := range shown[a] {
				key := service.Annotations[v1beta1.AnnotationShareKey]
				if key == "" || key != other.Annotations[v1beta1.AnnotationShareKey] || service.Spec.Ports[0].Port == other.Spec.Ports[0].Port {
					s.t.Fatalf("%s and %s both show %s", service.Name, other.Name, a)
				}
			}
			shown[a] = append(shown[a], service)
		}
	}
	s.checkReserved(shown)
	if s.cooled != nil {
		s.checkCooled()
	}
}

func sorted(writes map[problem.Object]write) []problem.Object {
	objects := make([]problem.Object, 0, len(writes))
	for o := range writes {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b problem.Object) int { return cmp.Compare(a.String(), b.String()) })
	return objects
}
