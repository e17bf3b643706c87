package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testTenants has a tenant try to come by another one's address: by asking for it, by its key, and by being the older one
// once both share it.
func testTenants(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.0/24")
	const key, evils = "s3cret-of-the-victim-8f1c", "kube-public"
	shared := func(namespace string, port int32, annotations ...string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Namespace, s.Annotations, s.Spec.Ports[0].Port = namespace, map[string]string{}, port
			for i := 0; i < len(annotations); i += 2 {
				s.Annotations["fairlead.dev/"+annotations[i]] = annotations[i+1]
			}
		}
	}
	older := c.service(t, "older", shared(evils, 82)) // than the victim, of which it becomes a guest
	c.holds(t, older, "192.0.2.0")
	victim := c.service(t, "victim", shared("default", 80, "share-key", key))
	c.holds(t, victim, "192.0.2.1")
	evil := c.service(t, "evil", shared(evils, 81, "share-key", "x", "addresses", "192.0.2.1"))
	c.refused(t, evil, "RequestTaken")
	update(t, c, evil, func(s *corev1.Service) { s.Annotations["fairlead.dev/share-key"] = key })
	until(t, c, evil, "told of what its newest version lacks", func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return condition.ObservedGeneration == s.Generation && condition.Reason == "RequestTaken" && strings.Contains(condition.Message, "fairlead.dev/share-with") && len(ips(s)) == 0
	})
	var events eventsv1.EventList
	if err := c.List(t.Context(), &events, client.InNamespace(evils)); err != nil || strings.Contains(fmt.Sprint(events.Items, evil.Status), key) {
		t.Errorf("the tenant is told the key: %v %v (%v)", evil.Status, events.Items, err)
	}

	update(t, c, victim, func(s *corev1.Service) { s.Annotations["fairlead.dev/share-with"] = evils })
	guest := func(s *corev1.Service) bool {
		return slices.Equal(ips(s), []string{"192.0.2.1"}) && meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionGuest)
	}
	update(t, c, older, func(s *corev1.Service) {
		s.Annotations = map[string]string{"fairlead.dev/share-key": key, "fairlead.dev/addresses": "192.0.2.1", "fairlead.dev/share-with": "default"}
	})
	until(t, c, older, "a guest", guest)
	update(t, c, victim, func(s *corev1.Service) { delete(s.Annotations, "fairlead.dev/share-with") })
	until(t, c, older, "without the address, which it was let on for a while", func(s *corev1.Service) bool { return len(ips(s)) == 0 })
	c.holds(t, victim, "192.0.2.1")
	if meta.FindStatusCondition(older.Status.Conditions, v1beta1.ConditionGuest) != nil {
		t.Errorf("a guest on nothing: %v", older.Status.Conditions)
	}
}

// testLongTexts has users write into annotations what no condition can hold: they are told, and others are served.
func testLongTexts(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.0/24")
	long := strings.Repeat("x", 100<<10)
	for annotation, reason := range map[string]string{
		v1beta1.AnnotationPool: "InvalidRequest", v1beta1.AnnotationAddresses: "InvalidRequest",
		v1beta1.AnnotationReservation: "InvalidRequest", v1beta1.AnnotationShareWith: "InvalidRequest",
	} {
		c.refused(t, c.service(t, strings.ToLower(annotation[len("fairlead.dev/"):]), asking(annotation, long)), reason)
	}
	s := c.service(t, "key", func(s *corev1.Service) {
		s.Annotations = map[string]string{v1beta1.AnnotationShareKey: long, "metallb.io/" + v1beta1.MetalLBShareKey: long + "y"}
	})
	c.holds(t, s, "192.0.2.0")
	if condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated); condition.Reason != "RequestConflict" || len(condition.Message) > 1000 {
		t.Errorf("told %s in %d bytes", condition.Reason, len(condition.Message))
	}
	c.holds(t, c.service(t, "plain"), "192.0.2.1")
}
