package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testContested: somebody else who writes the status of a Service as soon as it is written is
// outlasted, not fought, and the Service says so.
func testContested(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.0/24")
	s := c.service(t, "web")
	c.holds(t, s, "192.0.2.0")
	rounds := 0
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			t.Fatal(err)
		}
		if len(s.Status.LoadBalancer.Ingress) > 1 {
			continue
		}
		before := s.DeepCopy()
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "203.0.113.66"})
		if err := c.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		rounds++
	}
	if rounds > 8 {
		t.Errorf("the two wrote %d times in five seconds", rounds)
	}
	c.told(t, s, "StatusContested")
	until(t, c, s, "told, and left with its address", func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return condition.Reason == "StatusContested" && len(s.Status.LoadBalancer.Ingress) == 1
	})
	var events eventsv1.EventList
	if err := c.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, e := range events.Items {
		if e.Regarding.UID == s.UID {
			told[e.Reason]++
		}
	}
	if told[v1beta1.ReasonReleased] > 1 || told["StatusContested"] != 1 {
		t.Errorf("Events: %v", told)
	}
}
