package reconcile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonClassNotServed is on a Service that has addresses of Fairlead, and is not of the classes any more that it serves.
const ReasonClassNotServed = "ClassNotServed"

// unserved is the status of a Service that others serve by now: where it still has addresses of our pools, which no node
// announces, it says so; where it has none, it has nothing of ours. nil: nothing to change.
func (w *statusPlanner) unserved(s *corev1.Service, v *view.Service) *corev1.ServiceStatus {
	if !slices.ContainsFunc(v.Ingress, func(a netip.Addr) bool { return view.PoolOf(w.advertising.pools, a) != nil }) {
		return status.Released(s)
	}
	class := "of the class " + v.Class
	if v.Class == "" {
		class = "without spec.loadBalancerClass"
	}
	return status.Unserved(s, ReasonClassNotServed, "Fairlead does not serve Services "+class+" any more (the chart's loadBalancerClass and serveUnclassed), and no node announces "+
		"its addresses, which it keeps: have the chart serve it, or make it anew with the class that is served", w.now)
}
