package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testAdvertised: a pool that no advertisement covers says so once somebody has an address of
// it, and so does the Service; each cause heals at once.
func testAdvertised(t *testing.T, c *cluster) {
	c.start(t)
	c.temporary(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: map[string]string{"edge": "yes"}}})
	pool := c.pool(t, "p", "192.0.2.0/24")
	is := func(status metav1.ConditionStatus, part string) func(*v1beta1.IPAddressPool) bool {
		return func(p *v1beta1.IPAddressPool) bool {
			condition := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionAdvertised)
			return condition != nil && condition.Status == status && strings.Contains(condition.Message, part)
		}
	}
	until(t, c, pool, "not used yet", is(metav1.ConditionUnknown, "no L2Advertisement and no BGPAdvertisement covers the pool"))
	s := c.service(t, "web")
	c.holds(t, s, "192.0.2.0")
	c.told(t, s, "NoAdvertisement")
	until(t, c, pool, "unannounced", is(metav1.ConditionFalse, "create one, or name the pool in spec.ipAddressPools"))
	c.told(t, pool, "NoAdvertisement")

	ad := &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "l2"}}
	ad.Spec.NodeSelectors = []metav1.LabelSelector{{MatchLabels: map[string]string{"edge": "no"}}}
	c.temporary(t, ad)
	until(t, c, pool, "announced by no node", is(metav1.ConditionFalse, "L2Advertisement l2 chooses no node by spec.nodeSelectors"))
	update(t, c, ad, func(ad *v1beta1.L2Advertisement) { ad.Spec.NodeSelectors = nil })
	until(t, c, pool, "announced", is(metav1.ConditionTrue, "an advertisement covers the pool"))
	c.told(t, pool, v1beta1.ReasonAdvertised)
	update(t, c, ad, func(ad *v1beta1.L2Advertisement) { ad.Spec.IPAddressPools = []string{"other"} })
	until(t, c, pool, "left out", is(metav1.ConditionFalse, "no L2Advertisement"))
}

// testAnnouncedByNobody: a Service of policy Local whose pods run where nobody announces says so, and
// one that no advertisement chooses, and one of policy Cluster whose nodes are excluded; each cause heals at once.
func testAnnouncedByNobody(t *testing.T, c *cluster) {
	c.start(t)
	edge := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: map[string]string{"edge": "yes"}}}
	c.temporary(t, edge)
	c.temporary(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "inner"}})
	ad := &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "l2"}}
	ad.Spec.NodeSelectors = []metav1.LabelSelector{{MatchLabels: map[string]string{"edge": "yes"}}}
	c.temporary(t, ad)
	c.pool(t, "p", "192.0.2.0/24")
	s := c.service(t, "web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	c.holds(t, s, "192.0.2.0")
	has := func(reason, part string) func(*corev1.Service) bool {
		return func(s *corev1.Service) bool {
			condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
			met := condition.Status == metav1.ConditionTrue
			return condition.Reason == reason && met == (reason == v1beta1.ReasonAllocated) && strings.Contains(condition.Message, part)
		}
	}
	slice := c.endpoint(t, "web", "inner")
	until(t, c, s, "told that its node announces nothing", has("NoServingNode", "are on inner, which no advertisement of the address chooses"))
	c.told(t, s, "NoServingNode")
	update(t, c, slice, func(e *discoveryv1.EndpointSlice) { node := "edge"; e.Endpoints[0].NodeName = &node })
	until(t, c, s, "well again", has(v1beta1.ReasonAllocated, ""))

	cluster := c.service(t, "cluster")
	c.holds(t, cluster, "192.0.2.1")
	until(t, c, cluster, "announced", has(v1beta1.ReasonAllocated, ""))
	update(t, c, edge, func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
	until(t, c, cluster, "told that its only node is excluded", has("NoServingNode", "may announce: edge: excluded from load balancers"))
	c.told(t, cluster, "NoServingNode")
	update(t, c, edge, func(n *corev1.Node) { delete(n.Labels, corev1.LabelNodeExcludeBalancers) })
	until(t, c, cluster, "announced again", has(v1beta1.ReasonAllocated, ""))
	until(t, c, s, "announced again", has(v1beta1.ReasonAllocated, ""))

	c.service(t, "other", func(s *corev1.Service) { s.Labels = map[string]string{"public": "yes"} })
	update(t, c, ad, func(ad *v1beta1.L2Advertisement) {
		ad.Spec.ServiceSelectors = []metav1.LabelSelector{{MatchLabels: map[string]string{"public": "yes"}}}
	})
	until(t, c, s, "told that no advertisement chooses it", has("ServiceNotSelected", "none chooses the Service by spec.serviceSelectors: L2Advertisement l2"))
	update(t, c, s, func(s *corev1.Service) { s.Labels = map[string]string{"public": "yes"} })
	until(t, c, s, "chosen", has(v1beta1.ReasonAllocated, ""))
}
