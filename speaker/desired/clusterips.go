package desired

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonClusterIPTaken is on a Service of which an external address is the ClusterIP of another one.
const ReasonClusterIPTaken = "ClusterIPTaken"

// clusterIPs indexes Services by their addresses. Packets to a
// ClusterIP are for its Service alone, even if others list it among their external addresses: else
// a user with the right to create Services could take over the DNS of the whole cluster (CVE-2020-8554).
type clusterIPs struct {
	services map[view.Ref]*view.Service   // as of the last decision
	internal view.Index                   // by ClusterIP: one, or more while one replaces another
	external view.Index                   // by ExternalIP and VIP
	lost     map[view.Ref]problem.Problem // of the Services that list the ClusterIP of another
}

// update takes over a Service; nil: it is gone. It adds to again the Services that may get
// other addresses by that.
func (c *clusterIPs) update(ref view.Ref, now *view.Service, again map[view.Ref]struct{}) {
	before := c.services[ref]
	if before == now {
		return
	}
	if c.services[ref] = now; now == nil {
		delete(c.services, ref)
	}
	none := &view.Service{}
	had, has := cmp.Or(before, none), cmp.Or(now, none)
	if !slices.Equal(had.ClusterIPs, has.ClusterIPs) {
		exchange(c.internal, ref, had.ClusterIPs, has.ClusterIPs)
		for _, a := range slices.Concat(had.ClusterIPs, has.ClusterIPs) {
			for _, other := range c.external[a] {
				again[other] = struct{}{}
			}
		}
	}
	exchange(c.external, ref, slices.Concat(had.ExternalIPs, had.VIPs), slices.Concat(has.ExternalIPs, has.VIPs))
}

func exchange(by view.Index, ref view.Ref, had, has []netip.Addr) {
	for _, a := range had {
		by.Remove(a, ref)
	}
	for _, a := range has {
		by.Add(a, ref)
	}
}

// cleared is a Service without those external addresses that are ClusterIPs: its own, or
// those of others, which is noted as a problem.
func (c *clusterIPs) cleared(s *view.Service) *view.Service {
	isClusterIP := func(a netip.Addr) bool { return len(c.internal[a]) > 0 }
	if !slices.ContainsFunc(s.ExternalIPs, isClusterIP) && !slices.ContainsFunc(s.VIPs, isClusterIP) {
		return s
	}
	without := *s
	without.ExternalIPs = slices.DeleteFunc(slices.Clone(s.ExternalIPs), isClusterIP)
	without.VIPs = slices.DeleteFunc(slices.Clone(s.VIPs), isClusterIP)
	for i, a := range slices.Concat(s.ExternalIPs, s.VIPs) {
		if of := c.internal[a]; len(of) > 0 && !slices.Contains(of, s.Ref) {
			field := "spec.externalIPs"
			if i >= len(s.ExternalIPs) {
				field = "status.loadBalancer.ingress"
			}
			c.lost[s.Ref] = problem.New(s.Object(), ReasonClusterIPTaken,
				"%s is the ClusterIP of Service %s, which gets what is sent there; take it out of %s", a, of[0], field)
			break
		}
	}
	return &without
}
