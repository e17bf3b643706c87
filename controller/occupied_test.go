package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// node makes a Node with an address that goes when the test ends.
func (c *cluster) node(t *testing.T, name, address string, podCIDRs ...string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: podCIDRs[0], PodCIDRs: podCIDRs}}
	c.temporary(t, n)
	before := n.DeepCopy()
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	if err := c.Status().Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	return n
}

// testOccupied: what pods, networks, API servers, routers and other Services have is not given, and the pool says so.
// One Service each has the next address.
func testOccupied(t *testing.T, c *cluster) {
	c.start(t, func(o *options) {
		o.pods = []netip.Prefix{netip.MustParsePrefix("192.0.2.16/28")}
		o.apiServers = []string{"api.example:6443", "192.0.2.69:6443"}
	})
	c.node(t, "n1", "192.0.2.66", "192.0.2.32/28", "fd00:244::/64")
	forwarding := &v1beta1.NodeForwarding{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1beta1.NodeForwardingSpec{Node: "n1"}}
	c.temporary(t, forwarding)
	before := forwarding.DeepCopy()
	forwarding.Status.Networks = []string{"192.0.2.64/28", "fd00:30::/64"}
	if err := c.Status().Patch(t.Context(), forwarding, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	c.temporary(t, &v1beta1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "tor"}, Spec: v1beta1.BGPPeerSpec{MyASN: 64500, PeerASN: 64501, PeerAddress: "192.0.2.65"}})
	lister := c.service(t, "lister", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, []string{"192.0.2.67"}
	})
	pool := c.pool(t, "p", "192.0.2.16-192.0.2.47", "192.0.2.64-192.0.2.69", "fd00:30::/112")
	c.inUse(t, pool, 1, "32 addresses of 192.0.2.16/28, 192.0.2.32/28", "192.0.2.64, which is the first", "192.0.2.65, which is an address of BGPPeer tor",
		"192.0.2.66, which is the address of node n1", "192.0.2.67, which is in spec.externalIPs of Service default/lister", "192.0.2.69, which is the address of an API server", "fd00:30::, which is the anycast")
	first := c.service(t, "first", dualStack)
	c.holds(t, first, "192.0.2.68", "fd00:30::1")
	c.refused(t, c.service(t, "asking", asking(v1beta1.AnnotationAddresses, "192.0.2.33")), "RequestUnusable")

	sharing := c.service(t, "sharing", asking(v1beta1.AnnotationAddresses, "192.0.2.67"))
	c.holds(t, sharing, "192.0.2.67")
	toldOf := func(s *corev1.Service, what, other string) {
		t.Helper()
		until(t, c, s, what, func(s *corev1.Service) bool {
			condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
			return condition != nil && condition.Status == metav1.ConditionTrue && (other == "") == (condition.Reason == v1beta1.ReasonAllocated) &&
				(other == "" || condition.Reason == "AddressInUse") && strings.Contains(condition.Message, other)
		})
	}
	toldOf(sharing, "told of who lists its address", "default/lister")
	update(t, c, lister, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.68"} })
	toldOf(sharing, "alone on its address", "")
	toldOf(first, "told of who lists its address later", "default/lister")
	c.told(t, first, "AddressInUse")
	c.holds(t, first, "192.0.2.68", "fd00:30::1")
}

// testNodesInAStatus: the addresses of nodes that k3s' ServiceLB leaves in a status, and what else no allocator can have
// given, give way to an address of a pool.
func testNodesInAStatus(t *testing.T, c *cluster) {
	nodes := []string{"172.30.0.11", "172.30.0.12", "172.30.0.13"}
	for i, a := range nodes {
		c.node(t, "n"+string(rune('1'+i)), a, "10.244."+string(rune('1'+i))+".0/24")
	}
	left := map[string][]string{"nodes": nodes, "loopback": {"127.0.0.1"}, "link-local": {"169.254.1.1"}, "cluster-ip": {"10.96.0.77"}, "pod": {"10.244.1.3"}}
	services := map[string]*corev1.Service{}
	for name, addresses := range left {
		s := c.service(t, name)
		before := s.DeepCopy()
		for _, a := range addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a, IPMode: new(corev1.LoadBalancerIPModeVIP)})
		}
		if err := c.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		services[name] = s
	}
	c.pool(t, "p", "172.30.1.0/29")
	c.start(t)
	var given []string
	for name, s := range services {
		until(t, c, s, "given an address of the pool", func(s *corev1.Service) bool {
			all := s.Status.LoadBalancer.Ingress
			return len(all) == 1 && strings.HasPrefix(all[0].IP, "172.30.1.")
		})
		if a := s.Status.LoadBalancer.Ingress[0].IP; slices.Contains(given, a) {
			t.Errorf("%s of %s is given twice", a, name)
		} else {
			given = append(given, a)
		}
	}
}
