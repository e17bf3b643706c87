package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
)

// reservation makes an IPReservation of the namespace default that goes when the test ends.
func (c *cluster) reservation(t *testing.T, name string, spec v1beta1.IPReservationSpec) *v1beta1.IPReservation {
	t.Helper()
	r := &v1beta1.IPReservation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
	c.temporary(t, r)
	return r
}

// reserves waits until the reservation is allocated or not, and holds exactly these
// addresses.
func (c *cluster) reserves(t *testing.T, r *v1beta1.IPReservation, reason string, want ...string) {
	t.Helper()
	until(t, c, r, "holding "+strings.Join(want, " ")+" with "+reason, func(r *v1beta1.IPReservation) bool {
		condition := meta.FindStatusCondition(r.Status.Conditions, v1beta1.ConditionReserved)
		return slices.Equal(r.Status.Addresses, want) && condition != nil && condition.Reason == reason &&
			(condition.Status == metav1.ConditionTrue) == (reason == v1beta1.ReasonAllocated) &&
			meta.IsStatusConditionTrue(r.Status.Conditions, v1beta1.ConditionReady)
	})
}

// used waits until the reservation says which Services are on its addresses.
func (c *cluster) used(t *testing.T, r *v1beta1.IPReservation, want ...v1beta1.AddressInUse) {
	t.Helper()
	until(t, c, r, "used as it should be", func(r *v1beta1.IPReservation) bool {
		return int(r.Status.Used) == len(want) && slices.EqualFunc(r.Status.InUse, want, func(a, b v1beta1.AddressInUse) bool {
			return a.Address == b.Address && slices.Equal(a.Services, b.Services)
		})
	})
}

func testReservations(t *testing.T, c *cluster) {
	stop := c.start(t)
	pool := c.pool(t, "p", "192.0.2.1-192.0.2.3")
	live := c.service(t, "live")
	c.holds(t, live, "192.0.2.1")

	// The address of a live Service is reserved, and outlives it.
	kept := c.reservation(t, "kept", v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.1"}})
	c.reserves(t, kept, v1beta1.ReasonAllocated, "192.0.2.1")
	c.told(t, kept, v1beta1.ReasonAllocated)
	c.used(t, kept, v1beta1.AddressInUse{Address: "192.0.2.1", Services: []string{"live"}})
	if err := c.Delete(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	c.used(t, kept)
	other := c.service(t, "other")
	c.holds(t, other, "192.0.2.2")
	until(t, c, pool, "counting what is reserved", func(p *v1beta1.IPAddressPool) bool {
		return p.Status.AssignedIPv4 == 2 && p.Status.ReservedIPv4 == 1 && p.Status.AvailableIPv4 == 1
	})

	// Another controller knows it as well. Who asks for it has it; others do not.
	stop()
	c.start(t)
	stranger := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: "stranger", Annotations: map[string]string{v1beta1.AnnotationAddresses: "192.0.2.1"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	c.temporary(t, stranger)
	c.refused(t, stranger, "RequestTaken")
	again := c.service(t, "again", asking(v1beta1.AnnotationReservation, "kept"))
	c.holds(t, again, "192.0.2.1")
	c.used(t, kept, v1beta1.AddressInUse{Address: "192.0.2.1", Services: []string{"again"}})

	// What it cannot have, it is told, and gets it once it can.
	many := c.reservation(t, "many", v1beta1.IPReservationSpec{Count: new(int32(2))})
	c.reserves(t, many, "PoolExhausted", "192.0.2.3")
	c.told(t, many, "PoolExhausted")
	second := c.service(t, "second", asking(v1beta1.AnnotationReservation, "many"))
	c.holds(t, second, "192.0.2.3")
	third := c.service(t, "third", asking(v1beta1.AnnotationReservation, "many"))
	c.refused(t, third, "ReservationExhausted")
	update(t, c, pool, func(p *v1beta1.IPAddressPool) { p.Spec.Addresses = []string{"192.0.2.1-192.0.2.4"} })
	c.reserves(t, many, v1beta1.ReasonAllocated, "192.0.2.3", "192.0.2.4")
	c.holds(t, third, "192.0.2.4")

	// A Service keeps its address when the reservation goes.
	if err := c.Delete(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	until(t, c, again, "keeping its address", func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return slices.Equal(ips(s), []string{"192.0.2.1"}) && condition.Reason == "ReservationNotFound"
	})
}
