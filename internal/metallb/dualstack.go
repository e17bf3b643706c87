package metallb

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
)

// secondFamily tells of a Service that would get an address of its second family from
// another pool than that of its first. MetalLB gives both from one pool only, and its speakers
// announce nothing of a Service whose addresses are not all in one of its pools: while
// they run, such a Service would lose what it has.
func (t *translator) secondFamily(s *subject, u unstructured.Unstructured) {
	const path = "spec.ipFamilyPolicy"
	policy, _, _ := unstructured.NestedString(u.Object, "spec", "ipFamilyPolicy")
	families, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "ipFamilies")
	held, ok := onlyAddress(u)
	if policy != string(corev1.IPFamilyPolicyPreferDualStack) || len(families) < 2 || !ok || asksForPool(u) {
		return
	}
	var theirs, others []string
	for _, p := range t.Pools {
		switch has, hasOther := holds(p, held); {
		case has && hasOther:
			return // it gives both, to us as to MetalLB
		case has:
			theirs = append(theirs, p.Name)
		case hasOther && givesUnasked(p, u):
			others = append(others, p.Name)
		}
	}
	if len(theirs) == 0 || len(others) == 0 {
		return // it is not MetalLB's, or there is nothing for it
	}
	instead := ""
	if families[0] == addr.FamilyOf(held).String() { // otherwise it would lose the one that it has
		instead = ", or have the Service be SingleStack"
	}
	s.find(Step, path, policy, "its %s would be withdrawn by MetalLB's speakers as soon as it has an address of IPAddressPool %s as well, since no pool holds both: "+
		"set autoAssign of that to false before you apply it, and back when MetalLB's speakers are gone%s", held, problem.List(others, ", "), instead)
}

// onlyAddress is the one address that the status of a Service has.
func onlyAddress(u unstructured.Unstructured) (netip.Addr, bool) {
	ingress, _, _ := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress")
	if len(ingress) != 1 {
		return netip.Addr{}, false
	}
	entry, _ := ingress[0].(map[string]any)
	text, _ := entry["ip"].(string)
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err == nil
}

// asksForPool reports whether the Service names a pool, from which it gets both addresses or one.
func asksForPool(u unstructured.Unstructured) bool {
	annotations := u.GetAnnotations()
	return slices.ContainsFunc(v1beta1.MetalLBPrefixes(), func(prefix string) bool { return annotations[prefix+v1beta1.MetalLBPool] != "" })
}

// holds reports whether the pool has the address, and whether it has any of the other family.
func holds(p v1beta1.IPAddressPool, a netip.Addr) (has, other bool) {
	for _, entry := range p.Spec.Addresses {
		r, err := addr.ParseRange(entry)
		if err != nil {
			continue // none that is printed
		}
		has = has || r.Contains(a)
		other = other || addr.FamilyOf(r.From()) != addr.FamilyOf(a)
	}
	return has, other
}

// givesUnasked reports whether the pool may give the Service an address that does not ask for
// it. The labels of namespaces are not known here: any may have those that are asked for.
func givesUnasked(p v1beta1.IPAddressPool, u unstructured.Unstructured) bool {
	if p.Spec.AutoAssign != nil && !*p.Spec.AutoAssign {
		return false
	}
	to := p.Spec.ServiceAllocation
	if to == nil {
		return true
	}
	inNamespace := len(to.Namespaces) == 0 || slices.Contains(to.Namespaces, u.GetNamespace()) || len(to.NamespaceSelectors) > 0
	return inNamespace && (len(to.ServiceSelectors) == 0 || slices.ContainsFunc(to.ServiceSelectors, func(selector metav1.LabelSelector) bool {
		of, err := metav1.LabelSelectorAsSelector(&selector)
		return err == nil && of.Matches(labels.Set(u.GetLabels()))
	}))
}
