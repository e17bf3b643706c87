package reconcile

import (
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// bookingKey is one of two reservations of one namespace, or one of another.
func (s *simulation) bookingKey() client.ObjectKey {
	n := rapid.IntRange(0, 2).Draw(s.t, "reservation")
	return client.ObjectKey{Namespace: []string{"default", "shop"}[n/2], Name: fmt.Sprintf("r%d", n)}
}

// storeReservation is a successful write to a reservation.
func (s *simulation) storeReservation(key client.ObjectKey, r *v1beta1.IPReservation) {
	s.version++
	r.ResourceVersion = strconv.Itoa(s.version)
	s.booked[key] = r
	s.lag = append(s.lag, change{key: key, reservation: r, booking: true})
}

// reserve makes a reservation, or has it ask for something else.
func (s *simulation) reserve() {
	key := s.bookingKey()
	r := &v1beta1.IPReservation{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, CreationTimestamp: metav1.Unix(int64(s.version/10), 0),
	}}
	if old := s.booked[key]; old != nil {
		r = old.DeepCopy()
	} else {
		delete(s.scribbled, object("IPReservation", key))
	}
	r.Spec = rapid.SampledFrom([]v1beta1.IPReservationSpec{
		{Count: new(int32(1))},
		{Count: new(int32(2))},
		{Addresses: []string{"192.0.2.1"}},
		{Addresses: []string{"192.0.2.2", "192.0.2.3"}},
		{Addresses: []string{"203.0.113.1"}},
	}).Draw(s.t, "reserves")
	s.storeReservation(key, r)
}

func (s *simulation) unreserve() {
	key := s.bookingKey()
	if s.booked[key] != nil {
		delete(s.booked, key)
		s.lag = append(s.lag, change{key: key, booking: true})
	}
}

// claim has a Service ask for a reservation, or for none any more.
func (s *simulation) claim() {
	key := s.key()
	if old := s.services[key]; old != nil {
		next := old.DeepCopy()
		next.Annotations[v1beta1.AnnotationReservation] = rapid.SampledFrom([]string{"", "r0", "r1", "r2", "r0,r1"}).Draw(s.t, "claim")
		s.store(key, next)
	}
}

// scribbleReservation writes the status of a reservation by hand.
func (s *simulation) scribbleReservation() {
	key := s.bookingKey()
	if old := s.booked[key]; old != nil {
		next := old.DeepCopy()
		next.Status.Addresses = []string{rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "192.0.2.8", "127.0.0.1", "nonsense"}).Draw(s.t, "scribble")}
		s.scribbled[object("IPReservation", key)] = true
		s.storeReservation(key, next)
	}
}

// checkReserved looks for an address that two reservations show, or a reservation and a
// Service of another namespace.
func (s *simulation) checkReserved(shown map[netip.Addr][]*corev1.Service) {
	held := map[netip.Addr]client.ObjectKey{}
	for key, r := range s.booked {
		if s.scribbled[object("IPReservation", key)] {
			continue
		}
		for _, text := range r.Status.Addresses {
			a := netip.MustParseAddr(text)
			if other, twice := held[a]; twice {
				s.t.Fatalf("reservations %s and %s both show %s", key, other, a)
			}
			held[a] = key
			for _, service := range shown[a] {
				if service.Namespace != key.Namespace {
					s.t.Fatalf("%s of reservation %s is shown by Service %s/%s", a, key, service.Namespace, service.Name)
				}
			}
		}
	}
}
