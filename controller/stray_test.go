package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testStray: a key that is misspelt, or on another kind of object, is named where it is, until it is corrected.
func testStray(t *testing.T, c *cluster) {
	c.start(t)
	pool := c.pool(t, "public", "192.0.2.0/24")
	says := func(conditions []metav1.Condition, kind, reason, part string) bool {
		condition := meta.FindStatusCondition(conditions, kind)
		return condition != nil && condition.Status == metav1.ConditionTrue && condition.Reason == reason && strings.Contains(condition.Message, part)
	}
	about := func(s *corev1.Service, reason, part string) {
		t.Helper()
		until(t, c, s, "told "+reason+" "+part, func(s *corev1.Service) bool {
			return says(s.Status.Conditions, v1beta1.ConditionAllocated, reason, part)
		})
	}
	for key, meant := range map[string]string{
		"fairlead.dev/pools": "fairlead.dev/pool", "fairlead.dev/address": "fairlead.dev/addresses", "fairlead.DEV/pool": "fairlead.dev/pool",
		"metallb.universe.tf/addr-pool": "metallb.universe.tf/address-pool",
	} {
		s := c.service(t, strings.ToLower(strings.NewReplacer("/", "-", ".", "-").Replace(key)), asking(key, "private"))
		about(s, "UnknownAnnotation", meant)
		c.told(t, s, "UnknownAnnotation")
		update(t, c, s, func(s *corev1.Service) { s.Annotations = nil })
		about(s, v1beta1.ReasonAllocated, "")
		if len(ips(s)) != 1 {
			t.Errorf("%s has %v", s.Name, ips(s))
		}
	}
	s := c.service(t, "label")
	about(s, v1beta1.ReasonAllocated, "")
	update(t, c, s, func(s *corev1.Service) { s.Labels = map[string]string{v1beta1.AnnotationPool: "private"} })
	about(s, "UnknownAnnotation", "write it as the annotation fairlead.dev/pool")

	update(t, c, pool, func(p *v1beta1.IPAddressPool) { p.Annotations = map[string]string{v1beta1.AnnotationShareKey: "k"} })
	until(t, c, pool, "told that it has a Service's annotation", func(p *v1beta1.IPAddressPool) bool {
		return says(p.Status.Conditions, v1beta1.ConditionReady, "UnknownAnnotation", "on a Service")
	})
	reservation := &v1beta1.IPReservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r", Annotations: map[string]string{v1beta1.AnnotationPool: "public"}},
		Spec:       v1beta1.IPReservationSpec{Count: new(int32(1))},
	}
	c.temporary(t, reservation)
	until(t, c, reservation, "told the same", func(r *v1beta1.IPReservation) bool {
		return says(r.Status.Conditions, v1beta1.ConditionReserved, "UnknownAnnotation", "on a Service")
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1beta1.AnnotationPool: "public"}}}
	c.temporary(t, node)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stray", Annotations: map[string]string{v1beta1.AnnotationPool: "public"}}}
	c.create(t, namespace)
	for _, name := range []types.UID{"n", "stray"} { // no object has this UID: kubectl describe looks for the name
		node.UID = name
		c.told(t, node, "UnknownAnnotation")
	}
}

// testUnreadMetalLB: without metallbAnnotations, those of MetalLB are named that would ask for something.
func testUnreadMetalLB(t *testing.T, c *cluster) {
	c.start(t, func(o *options) { o.requests.MetalLB = false })
	c.pool(t, "public", "192.0.2.0/24")
	s := c.service(t, "s", asking("metallb.io/"+v1beta1.MetalLBPool, "private"))
	until(t, c, s, "told that the annotation is not read", func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return condition != nil && condition.Reason == "UnknownAnnotation" && strings.Contains(condition.Message, "write fairlead.dev/pool")
	})
}
