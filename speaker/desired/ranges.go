package desired

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonRangeShared is of ranges of ClusterIPs that nodes or pods have addresses of, too.
const ReasonRangeShared = "RangeShared"

// vacancies are the ranges in which nothing but a ClusterIP can be: those of the
// ServiceCIDRs, but for the addresses of Services that another proxy forwards, by
// Service. A range in which a node or its pods are as well is left out as a whole, and
// told: what is on the node's own networks must not be taken for an address of nobody.
func vacancies(c *view.Cluster, o Options, foreign map[view.Ref][]netip.Addr) ([]netip.Prefix, []problem.Problem) {
	var b netipx.IPSetBuilder
	var problems []problem.Problem
	for _, r := range c.ServiceRanges {
		if what, shared := sharer(c, o, r); shared {
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
	if err != nil { // of a prefix that is none, of which the view has none
		return nil, problems
	}
	return set.Prefixes(), problems
}

// sharer is what else a range of ClusterIPs has in it, the first by name. Settings often say of
// all private addresses that pods have them: only those that are within a range say something.
func sharer(c *view.Cluster, o Options, r netip.Prefix) (what string, shared bool) {
	for _, p := range o.Pods.ClusterCIDRs {
		if r.Contains(p.Addr()) && p.Bits() >= r.Bits() {
			return "addresses of pods (" + p.String() + ")", true
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
	return "addresses of node " + first + " or of its pods", first != ""
}

// foreignIPs are the ClusterIPs of a Service that another proxy forwards.
func foreignIPs(s *view.Service) []netip.Addr {
	if s == nil || !s.ProxiedElsewhere {
		return nil
	}
	return s.ClusterIPs
}

// vacate takes in the ranges of ClusterIPs.
func (e *Engine) vacate(c *view.Cluster) {
	e.node.Forwarding.ServiceRanges, e.shared = vacancies(c, e.options, e.node.Forwarding.Foreign)
}

// estrange takes in whether another proxy forwards a Service, and tells if that is new.
func (e *Engine) estrange(ref view.Ref, s *view.Service) bool {
	now := foreignIPs(s)
	if slices.Equal(e.node.Forwarding.Foreign[ref], now) {
		return false
	}
	if e.node.Forwarding.Foreign[ref] = now; len(now) == 0 {
		delete(e.node.Forwarding.Foreign, ref)
	}
	return true
}
