package main

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// TestObjectsComeBack has objects restored as Velero and GitOps do: none has an address that another one has in the end, and
// each that cannot keep its own is told. Velero writes an object, and then its status; what that shows meanwhile, no controller
// can prevent.
func TestObjectsComeBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"without status", testStatusless},
		{"with the status of an older time", testOlderStatus},
		{"with the status of another cluster", testForeignStatus},
		{"Services first, then pools and reservations", testWrongOrder},
		{"in another namespace, beside what they are copies of", testMapped},
		{"and are stripped of status and annotations again and again", testStripped},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, c)
			c.auditor.stop() // for good: backups show what they show
			c.alone(t)
		})
	}
}

// restore makes the objects of a backup anew as Velero does, in this namespace. With status, that follows, which Velero's
// --status-restore-resources asks for.
func restore[T client.Object](t *testing.T, c *cluster, namespace string, status bool, backup T) T {
	t.Helper()
	object := backup.DeepCopyObject().(T)
	object.SetNamespace(namespace)
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	object.SetLabels(map[string]string{"velero.io/backup-name": "nightly", "velero.io/restore-name": "nightly-1"})
	if s, is := client.Object(object).(*corev1.Service); is {
		s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.HealthCheckNodePort = "", nil, 0
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
	}
	c.temporary(t, object)
	if status {
		again := backup.DeepCopyObject().(T)
		again.SetNamespace(namespace)
		again.SetUID(object.GetUID())
		again.SetResourceVersion("") // the controller may have been faster
		if err := c.Status().Patch(t.Context(), again, client.Merge); err != nil {
			t.Fatal(err)
		}
	}
	return object
}

// alone fails the test if two Services show one address.
func (c *cluster) alone(t *testing.T) {
	t.Helper()
	var all corev1.ServiceList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		for j := range i {
			a, b := &all.Items[i], &all.Items[j]
			if slices.ContainsFunc(ips(a), func(ip string) bool { return slices.Contains(ips(b), ip) }) && !mayShare(a, b) {
				t.Errorf("%s/%s has %v, and %s/%s %v", a.Namespace, a.Name, ips(a), b.Namespace, b.Name, ips(b))
			}
		}
	}
}

func (c *cluster) remove(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// has waits until a Service has just this address, for this reason.
func (c *cluster) has(t *testing.T, s *corev1.Service, address, reason string) {
	t.Helper()
	until(t, c, s, "at "+address+" with "+reason, func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return slices.Equal(ips(s), []string{address}) && condition != nil && condition.Reason == reason && condition.ObservedGeneration == s.Generation
	})
}

// What nothing else has got meanwhile is kept; what another one has is replaced, and told.
func testOlderStatus(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.0/29")
	free, taken := c.service(t, "free"), c.service(t, "taken")
	c.holds(t, free, "192.0.2.0")
	c.holds(t, taken, "192.0.2.1")
	c.remove(t, free, taken)
	since := []*corev1.Service{c.service(t, "first"), c.service(t, "second")}
	c.holds(t, since[0], "192.0.2.0")
	c.holds(t, since[1], "192.0.2.1")
	c.remove(t, since[0])
	free, taken = restore(t, c, "default", true, free), restore(t, c, "default", true, taken)
	c.told(t, taken, "AddressDuplicate")
	c.holds(t, since[1], "192.0.2.1")
	c.has(t, free, "192.0.2.0", v1beta1.ReasonAllocated)
	until(t, c, taken, "at another address", func(s *corev1.Service) bool {
		return len(ips(s)) == 1 && ips(s)[0] != "192.0.2.1" && meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionAllocated)
	})
}

// An address that no pool has is told, and replaced once it is taken out of the status; so is one that a Service has here,
// or of a family that the Service lacks, or a name.
func testForeignStatus(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.0/29")
	here := c.service(t, "here")
	c.holds(t, here, "192.0.2.0")
	foreign := func(name string, ingress corev1.LoadBalancerIngress) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{ingress}
		s.Status.Conditions = []metav1.Condition{{
			Type: v1beta1.ConditionAllocated, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonAllocated, LastTransitionTime: metav1.Now(), ObservedGeneration: 7,
		}}
		return restore(t, c, "default", true, s)
	}
	for name, ingress := range map[string]corev1.LoadBalancerIngress{ // made in the second of the one that is here, maybe: then the first by name keeps
		"taken": {IP: "192.0.2.0"}, "family": {IP: "2001:db8::1"}, "host": {Hostname: "lb.example.com"}, "loopback": {IP: "127.0.0.1"},
	} {
		s := foreign(name, ingress)
		until(t, c, s, "at an address of here", func(s *corev1.Service) bool {
			return len(ips(s)) == 1 && ips(s)[0] > "192.0.2.0" && ips(s)[0] < "192.0.2.8" && meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionAllocated)
		})
	}
	c.holds(t, here, "192.0.2.0")
	outside := foreign("outside", corev1.LoadBalancerIngress{IP: "203.0.113.9"})
	c.has(t, outside, "203.0.113.9", "OutsidePools")
	c.told(t, outside, "OutsidePools")
	if err := c.Status().Patch(t.Context(), outside, client.RawPatch(types.MergePatchType, []byte(`{"status":{"loadBalancer":null}}`))); err != nil {
		t.Fatal(err)
	}
	c.has(t, outside, "192.0.2.5", v1beta1.ReasonAllocated)
}

// Services wait for pools, and say so, and what a status shows is theirs all the same. A reservation that comes after another
// namespace's Service has its address is told.
func testWrongOrder(t *testing.T, c *cluster) {
	c.start(t)
	pool := c.pool(t, "p", "192.0.2.0/29")
	shown, plain := c.service(t, "shown", asking(v1beta1.AnnotationAddresses, "192.0.2.4")), c.service(t, "plain")
	named := c.service(t, "named", asking(v1beta1.AnnotationAddresses, "192.0.2.6"))
	reserving := c.service(t, "reserving", asking(v1beta1.AnnotationReservation, "r"))
	reservation := c.reservation(t, "r", v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.5"}})
	c.holds(t, shown, "192.0.2.4")
	c.holds(t, plain, "192.0.2.0")
	c.holds(t, named, "192.0.2.6")
	c.holds(t, reserving, "192.0.2.5")
	c.remove(t, shown, plain, named, reserving, reservation, pool)
	delete(shown.Annotations, v1beta1.AnnotationAddresses)

	shown, plain = restore(t, c, "default", true, shown), restore(t, c, "default", false, plain)
	named, reserving = restore(t, c, "default", false, named), restore(t, c, "default", false, reserving)
	c.has(t, shown, "192.0.2.4", "OutsidePools")
	c.refused(t, plain, "NoPool")
	c.refused(t, named, "RequestOutsidePools")
	c.refused(t, reserving, "ReservationNotFound")
	restore(t, c, "", true, pool)
	c.has(t, shown, "192.0.2.4", v1beta1.ReasonAllocated)
	c.has(t, named, "192.0.2.6", v1beta1.ReasonAllocated)
	c.has(t, plain, "192.0.2.0", v1beta1.ReasonAllocated)
	c.reserves(t, restore(t, c, "default", true, reservation), v1beta1.ReasonAllocated, "192.0.2.5")
	c.has(t, reserving, "192.0.2.5", v1beta1.ReasonAllocated)

	other := &v1beta1.IPReservation{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.0"}}}
	other.Status.Addresses = []string{"192.0.2.0"}
	late := restore(t, c, "kube-public", true, other)
	c.reserves(t, late, "RequestTaken")
	c.told(t, late, "RequestTaken")
	c.has(t, plain, "192.0.2.0", v1beta1.ReasonAllocated)
}

// What is there keeps its address. A copy that names this address waits for it, and others get another one.
func testMapped(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.0/29")
	named := c.service(t, "named", func(s *corev1.Service) {
		s.Annotations = map[string]string{v1beta1.AnnotationAddresses: "192.0.2.3", v1beta1.AnnotationShareKey: "k"}
	})
	plain := c.service(t, "plain")
	reserving := c.service(t, "reserving", asking(v1beta1.AnnotationReservation, "r"))
	reservation := c.reservation(t, "r", v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.5"}})
	kept := func() {
		t.Helper()
		c.has(t, named, "192.0.2.3", v1beta1.ReasonAllocated)
		c.has(t, plain, "192.0.2.0", v1beta1.ReasonAllocated)
		c.reserves(t, reservation, v1beta1.ReasonAllocated, "192.0.2.5")
		c.has(t, reserving, "192.0.2.5", v1beta1.ReasonAllocated)
	}
	kept()
	copied := []*corev1.Service{restore(t, c, "kube-public", true, named), restore(t, c, "kube-public", true, plain), restore(t, c, "kube-public", true, reserving)}
	mapped := restore(t, c, "kube-public", true, reservation)
	c.reserves(t, mapped, "RequestTaken")
	c.refused(t, copied[0], "RequestTaken")
	c.refused(t, copied[2], "ReservationExhausted")
	for i, reason := range []string{"RequestTaken", "AddressDuplicate", "ReservationExhausted"} {
		c.told(t, copied[i], reason)
	}
	until(t, c, copied[1], "at another address", func(s *corev1.Service) bool { return len(ips(s)) == 1 && ips(s)[0] != "192.0.2.0" })
	c.holds(t, copied[1], ips(copied[1])...)
	kept()
	c.alone(t)
	c.remove(t, named, reserving, reservation) // the namespace was to be moved
	c.has(t, copied[0], "192.0.2.3", v1beta1.ReasonAllocated)
	c.reserves(t, mapped, v1beta1.ReasonAllocated, "192.0.2.5")
	c.has(t, copied[2], "192.0.2.5", v1beta1.ReasonAllocated)
}

// A Service keeps its address through both, and no other gets it meanwhile.
func testStripped(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.0/29")
	annotations := map[string]string{v1beta1.AnnotationAddresses: "192.0.2.3"}
	stripped, bare := c.service(t, "stripped", func(s *corev1.Service) { s.Annotations = annotations }), c.service(t, "bare")
	c.holds(t, stripped, "192.0.2.3")
	c.holds(t, bare, "192.0.2.0")
	for i := range 6 {
		update(t, c, stripped, func(s *corev1.Service) { s.Annotations = nil })
		c.has(t, stripped, "192.0.2.3", v1beta1.ReasonAllocated)
		update(t, c, stripped, func(s *corev1.Service) { s.Annotations = annotations })
		c.has(t, stripped, "192.0.2.3", v1beta1.ReasonAllocated)
		if i%2 == 0 {
			s := c.service(t, "more-"+string(rune('a'+i)))
			until(t, c, s, "served", func(s *corev1.Service) bool { return len(ips(s)) == 1 && ips(s)[0] != "192.0.2.3" })
		}
	}
	var last *corev1.Service
	for begun := time.Now(); time.Since(begun) < 4*time.Second; time.Sleep(20 * time.Millisecond) {
		if err := c.Status().Patch(t.Context(), bare.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"loadBalancer":null}}`))); err != nil {
			t.Fatal(err)
		}
		if last == nil && time.Since(begun) > 2*time.Second { // no status shows the address, which waits to be written
			last = c.service(t, "last")
		}
	}
	c.holds(t, last, "192.0.2.5")
	c.told(t, bare, "StatusContested")
	c.has(t, bare, "192.0.2.0", "StatusContested")
}
