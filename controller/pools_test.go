package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

func testExhausted(t *testing.T, c *cluster) {
	c.start(t)
	pool := c.pool(t, "p", "192.0.2.1/32")
	first := c.service(t, "first")
	c.holds(t, first, "192.0.2.1")
	second := c.service(t, "second")
	c.refused(t, second, "PoolExhausted")
	c.told(t, second, "PoolExhausted")
	until(t, c, pool, "without capacity", func(p *v1beta1.IPAddressPool) bool {
		return meta.IsStatusConditionFalse(p.Status.Conditions, v1beta1.ConditionHasCapacity)
	})
	c.told(t, pool, "PoolExhausted")
	update(t, c, pool, func(p *v1beta1.IPAddressPool) { p.Spec.Addresses = []string{"192.0.2.1-192.0.2.2"} })
	c.holds(t, second, "192.0.2.2")
	c.told(t, second, v1beta1.ReasonAllocated)

	// An edit moves nobody, unless it is to.
	update(t, c, pool, func(p *v1beta1.IPAddressPool) { p.Spec.Addresses = []string{"198.51.100.0/24"} })
	until(t, c, second, "told that its pool has dropped its address", func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return condition.Reason == "AddressDropped" && condition.Status == metav1.ConditionTrue
	})
	until(t, c, pool, "naming those who keep what it has dropped", func(p *v1beta1.IPAddressPool) bool {
		condition := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
		return condition.Reason == "UsedAddressesDropped" && condition.Status == metav1.ConditionTrue &&
			strings.Contains(condition.Message, "192.0.2.2 of Service default/second") &&
			slices.Equal(p.Status.Addresses, []string{"192.0.2.1-192.0.2.2", "198.51.100.0/24"})
	})
	third := c.service(t, "third")
	c.holds(t, third, "198.51.100.0")
	c.holds(t, second, "192.0.2.2")
	c.holds(t, first, "192.0.2.1")
	update(t, c, pool, func(p *v1beta1.IPAddressPool) { p.Spec.OnPoolChange = v1beta1.PoolChangeRenumber })
	c.holds(t, first, "198.51.100.1")
	c.holds(t, second, "198.51.100.2")
	until(t, c, pool, "done with what it has dropped", func(p *v1beta1.IPAddressPool) bool {
		return slices.Equal(p.Status.Addresses, []string{"198.51.100.0/24"})
	})
}

func testDeletedPool(t *testing.T, c *cluster) {
	c.start(t)
	pool := c.pool(t, "deleted", "192.0.2.1/32")
	s := c.service(t, "first")
	c.holds(t, s, "192.0.2.1")
	if err := c.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	until(t, c, s, "told that no pool has its address", func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return condition.Reason == "OutsidePools" && condition.Status == metav1.ConditionTrue
	})
	c.told(t, s, "OutsidePools")
	c.pool(t, "other", "198.51.100.0/24")
	c.holds(t, c.service(t, "second"), "198.51.100.0")
	c.holds(t, s, "192.0.2.1")
	update(t, c, s, asking("metallb.io/address-pool", "other"))
	c.holds(t, s, "198.51.100.1")
	c.told(t, s, v1beta1.ReasonReleased)
}

func testFamilies(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "four", "192.0.2.0/24")
	c.pool(t, "six", "2001:db8::/64")
	first := c.service(t, "first")
	c.holds(t, first, "192.0.2.0")
	s := c.service(t, "second")
	c.holds(t, s, "192.0.2.1")
	for _, step := range []struct {
		policy   corev1.IPFamilyPolicy
		families []corev1.IPFamily
		want     []string
	}{
		{corev1.IPFamilyPolicyPreferDualStack, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, []string{"192.0.2.1", "2001:db8::"}},
		{corev1.IPFamilyPolicyRequireDualStack, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, []string{"192.0.2.1", "2001:db8::"}},
		{corev1.IPFamilyPolicySingleStack, []corev1.IPFamily{corev1.IPv4Protocol}, []string{"192.0.2.1"}},
		{corev1.IPFamilyPolicyRequireDualStack, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, []string{"192.0.2.1", "2001:db8::"}},
	} {
		update(t, c, s, func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &step.policy, step.families
			s.Spec.ClusterIPs = s.Spec.ClusterIPs[:min(len(step.families), len(s.Spec.ClusterIPs))]
		})
		c.holds(t, s, step.want...)
	}
}

func testPoolRules(t *testing.T, c *cluster) {
	c.start(t)
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
	c.create(t, tenant) // it stays: nobody here removes what is in a namespace
	p := &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1beta1.IPAddressPoolSpec{
			Addresses: []string{"192.0.2.1-192.0.2.2"},
			CoolDown:  &metav1.Duration{Duration: 2 * time.Second},
			ServiceAllocation: &v1beta1.ServiceAllocation{
				NamespaceSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"rent": "paid"}}},
			},
		},
	}
	c.temporary(t, p)
	elsewhere := c.service(t, "elsewhere")
	in := func(s *corev1.Service) { s.Namespace = "tenant" }
	first := c.service(t, "first", in)
	c.refused(t, elsewhere, "NoPool")
	c.refused(t, first, "NoPool")
	update(t, c, tenant, func(n *corev1.Namespace) { n.Labels = map[string]string{"rent": "paid"} })
	c.holds(t, first, "192.0.2.1")

	update(t, c, p, func(p *v1beta1.IPAddressPool) { p.Spec.Disabled = true })
	second := c.service(t, "second", in)
	c.refused(t, second, "NoPool")
	c.holds(t, first, "192.0.2.1")
	update(t, c, p, func(p *v1beta1.IPAddressPool) { p.Spec.Disabled = false })
	c.holds(t, second, "192.0.2.2")

	kept := c.willBe(t, p, func(p *v1beta1.IPAddressPool) bool {
		return len(p.Status.CoolingDown) == 1 && p.Status.CoolingDown[0].Service == "tenant/first" && p.Status.AvailableIPv4 == 0
	})
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	kept("keeping the freed address back")
	third := c.service(t, "third", in)
	c.holds(t, third, "192.0.2.1") // in time, with nothing else to wake the controller
}

// willBe follows the pool from now on. What it returns waits until the pool was as it should
// be, if only for a moment at which this process did not look.
func (c *cluster) willBe(t *testing.T, p *v1beta1.IPAddressPool, good func(*v1beta1.IPAddressPool) bool) (wait func(what string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var now v1beta1.IPAddressPoolList
	named := client.MatchingFields{"metadata.name": p.Name}
	if err := c.List(ctx, &now, named); err != nil {
		t.Fatal(err)
	}
	w := c.follow(ctx, t, &now, named)
	t.Cleanup(func() { cancel(); w.Stop() })
	return func(what string) {
		t.Helper()
		for e := range w.ResultChan() {
			if now, is := e.Object.(*v1beta1.IPAddressPool); is && good(now) {
				return
			}
		}
		t.Fatalf("%s was never %s", p.Name, what)
	}
}

func testSharing(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.0/24")
	for _, name := range []string{"n1", "n2"} {
		c.temporary(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	shared := func(port int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Annotations = map[string]string{v1beta1.AnnotationShareKey: "k"}
			s.Spec.Ports[0].Port, s.Spec.ExternalTrafficPolicy = port, corev1.ServiceExternalTrafficPolicyLocal
		}
	}
	first := c.service(t, "first", shared(80))
	c.holds(t, first, "192.0.2.0")
	second := c.service(t, "second", shared(443))
	c.holds(t, second, "192.0.2.0")
	third := c.service(t, "third", shared(443))
	c.holds(t, third, "192.0.2.1")

	c.endpoint(t, "first", "n1")
	apart := c.endpoint(t, "second", "n2")
	for _, s := range []*corev1.Service{first, second} {
		until(t, c, s, "told that no node serves both", func(s *corev1.Service) bool {
			condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
			return condition.Reason == "NoCommonNode" && condition.Status == metav1.ConditionFalse &&
				strings.Contains(condition.Message, "default/second has them on n2")
		})
	}
	update(t, c, apart, func(e *discoveryv1.EndpointSlice) { node := "n1"; e.Endpoints[0].NodeName = &node })
	for _, s := range []*corev1.Service{first, second} {
		until(t, c, s, "well again", func(s *corev1.Service) bool {
			return meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated).Reason == v1beta1.ReasonAllocated
		})
	}
}

// endpoint gives a Service an endpoint on a node.
func (c *cluster) endpoint(t *testing.T, service, node string) *discoveryv1.EndpointSlice {
	t.Helper()
	port := int32(8080)
	e := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}, NodeName: &node}},
		Ports:       []discoveryv1.EndpointPort{{Port: &port}},
	}
	c.temporary(t, e)
	return e
}

func testOverlap(t *testing.T, c *cluster) {
	c.start(t)
	older := c.pool(t, "a-older", "192.0.2.0/24")
	younger := c.pool(t, "b-younger", "192.0.2.128/25", "198.51.100.0/24")
	ready := func(want metav1.ConditionStatus, reason string) func(*v1beta1.IPAddressPool) bool {
		return func(p *v1beta1.IPAddressPool) bool {
			condition := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
			return condition != nil && condition.Status == want && condition.Reason == reason
		}
	}
	until(t, c, younger, "told of the overlap", ready(metav1.ConditionFalse, "PoolOverlap"))
	until(t, c, older, "ready", ready(metav1.ConditionTrue, v1beta1.ReasonReady))
	c.told(t, younger, "PoolOverlap")
	plain := c.service(t, "plain")
	c.holds(t, plain, "192.0.2.0")
	blocked := c.service(t, "blocked", asking(v1beta1.AnnotationPool, "b-younger"))
	c.refused(t, blocked, "PoolBlocked")

	update(t, c, younger, func(p *v1beta1.IPAddressPool) { p.Spec.Addresses = []string{"198.51.100.0/24"} })
	until(t, c, younger, "ready", ready(metav1.ConditionTrue, v1beta1.ReasonReady))
	c.holds(t, blocked, "198.51.100.0")
}
