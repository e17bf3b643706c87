package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testStatusless: Services that come back without their statuses get what they name, whatever came before them, where no controller ran
// meanwhile; the others get what is left, each another one. Where a controller runs, a name holds an address that nothing else
// may have: of a pool without autoAssign, or of an IPReservation that came first.
func testStatusless(t *testing.T, c *cluster) {
	named := func(address string) func(*corev1.Service) {
		return asking(v1beta1.AnnotationAddresses, address)
	}
	c.pool(t, "p", "192.0.2.0/29")
	unnamed := []*corev1.Service{c.service(t, "a"), c.service(t, "b")}
	annotated := c.service(t, "c", named("192.0.2.0"))
	field := c.service(t, "d", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.1" })
	restored := c.shows(t, c.service(t, "e"), "192.0.2.4") // Velero with restoreStatus
	reserving := c.service(t, "f", asking(v1beta1.AnnotationReservation, "r"))
	c.reservation(t, "r", v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.2"}})

	c.start(t)
	c.holds(t, annotated, "192.0.2.0")
	c.holds(t, field, "192.0.2.1")
	c.holds(t, restored, "192.0.2.4")
	c.holds(t, reserving, "192.0.2.2")
	c.holds(t, unnamed[0], "192.0.2.3")
	c.holds(t, unnamed[1], "192.0.2.5")

	never := false
	own := &v1beta1.IPAddressPool{Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"198.51.100.0/30"}, AutoAssign: &never}}
	own.Name = "named"
	c.temporary(t, own)
	c.reservation(t, "later", v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.6"}})
	c.holds(t, c.service(t, "g"), "192.0.2.7")
	c.refused(t, c.service(t, "h"), "PoolExhausted")
	c.holds(t, c.service(t, "i", named("192.0.2.6")), "192.0.2.6")
	c.holds(t, c.service(t, "j", named("198.51.100.1")), "198.51.100.1")

	// A controller was faster than what restores the status, which shows what another one has got meanwhile.
	c.auditor.stop()
	late := c.shows(t, c.service(t, "k", asking(v1beta1.AnnotationPool, "named")), "192.0.2.3")
	c.holds(t, late, "198.51.100.0")
	c.holds(t, unnamed[0], "192.0.2.3")
}

// shows writes an address into the status of a Service, as a backup has it.
func (c *cluster) shows(t *testing.T, s *corev1.Service, address string) *corev1.Service {
	t.Helper()
	before := s.DeepCopy()
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address, IPMode: new(corev1.LoadBalancerIPModeVIP)}}
	if err := c.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	return s
}
