package desired

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonRangeShared is of ServiceCIDRs in which nodes or pods have addresses, too.
const ReasonRangeShared = "RangeShared"

// serviceRanges are the ranges in which nothing but a ClusterIP can be: those of the
// ServiceCIDRs, but for the ClusterIPs of foreign Services, which another proxy forwards. A range in
// which a node or its pods have addresses is left out as a whole, with a problem: packets to the node's
// own networks must not be dropped.
func serviceRanges(c *view.Cluster, o Options, foreign map[view.Ref][]netip.Addr) ([]netip.Prefix, []problem.Problem) {
	var b netipx.IPSetBuilder
	var problems []problem.Problem
	for _, r := range c.ServiceRanges {
		if what := overlap(c, o, r); what != "" {
			problems = append(problems, problem.New(problem.Object{Kind: "Node", Name: o.Node}, ReasonRangeShared,
				"the range %s of a ServiceCIDR has %s in it, so that packets to addresses of it that no Service has are forwarded and not dropped: "+
					"give the ServiceCIDR a range of its own", r, what))
			continue
		}
		b.AddPrefix(r)
	}
	for _, addresses := range foreign {
		for _, a := range addresses {
			b.Remove(a)
		}
	}
	set, err := b.IPSet()
	if err != nil { // of an invalid prefix, which the view never has
		return nil, problems
	}
	return set.Prefixes(), problems
}

// overlap says what else a ServiceCIDR has in it, of several nodes the first by name; "" for nothing. The
// setting of pods' addresses often lists all private ones: only prefixes within the range count.
func overlap(c *view.Cluster, o Options, r netip.Prefix) string {
	for _, p := range o.Pods.ClusterCIDRs {
		if r.Contains(p.Addr()) && p.Bits() >= r.Bits() {
			return "addresses of pods (" + p.String() + ")"
		}
	}
	first := ""
	for name, node := range nodes(c, o) {
		if first != "" && name > first {
			continue
		}
		if slices.ContainsFunc(node.Addresses, r.Contains) || slices.ContainsFunc(node.PodCIDRs, r.Overlaps) {
			first = name
		}
	}
	if first == "" {
		return ""
	}
	return "addresses of node " + first + " or of its pods"
}

// updateForeign takes over whether another proxy forwards a Service, and reports whether that changed.
func (e *Engine) updateForeign(ref view.Ref, s *view.Service) bool {
	var now, vips []netip.Addr
	if s != nil && s.ProxiedElsewhere {
		now = s.ClusterIPs
		if announceable(s, e.options) {
			vips = s.VIPs
		}
	}
	replaced := replace(e.node.Forwarding.Foreign, ref, now)
	return replace(e.proxied, ref, vips) || replaced
}

// replace sets the addresses of a Service, and reports whether they were others.
func replace(of map[view.Ref][]netip.Addr, ref view.Ref, now []netip.Addr) bool {
	if slices.Equal(of[ref], now) {
		return false
	}
	if of[ref] = now; len(now) == 0 {
		delete(of, ref)
	}
	return true
}
