package desired

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonRangeShared is of ServiceCIDRs in which nodes, pods, or what a cluster lives by have addresses, too.
const ReasonRangeShared = "RangeShared"

// serviceRanges are the ranges in which nothing but a ClusterIP can be: those of the
// ServiceCIDRs, but for the ClusterIPs of foreign Services, which another proxy forwards. A range in
// which a node or its pods have addresses is left out as a whole, with a problem: packets to the node's
// own networks must not be dropped. Of what else a cluster lives by, such as its API servers, the address alone is left
// out, with a problem, too: there may be more like it.
func serviceRanges(c *view.Cluster, o Options, foreign map[view.Ref][]netip.Addr, lines lifelines) ([]netip.Prefix, []problem.Problem) {
	var b netipx.IPSetBuilder
	var problems []problem.Problem
	var spared []netip.Addr
	for _, r := range c.ServiceRanges {
		if what := overlap(c, o, r); what != "" {
			problems = append(problems, problem.New(problem.Object{Kind: "Node", Name: o.Node}, ReasonRangeShared,
				"the range %s of a ServiceCIDR has %s in it, so that packets to addresses of it that no Service has are forwarded and not dropped: "+
					"give the ServiceCIDR a range of its own", r, what))
			continue
		}
		b.AddPrefix(r)
		for _, a := range strangers(c, o, r, lines) {
			spared = append(spared, a)
			problems = append(problems, problem.New(problem.Object{Kind: "Node", Name: o.Node}, ReasonRangeShared,
				"the range %s of a ServiceCIDR has the address %s of %s in it, which no Service has: packets to it are forwarded and not dropped, "+
					"and those to other addresses of your network in that range are dropped on every node: give the ServiceCIDR a range of its own", r, a, cmp.Or(lines[a].of, "a DNS server of this node")))
		}
	}
	for _, a := range spared {
		b.Remove(a)
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

// strangers are the addresses in a range by which this node reaches what it lives by, and that are no ClusterIPs, sorted.
func strangers(c *view.Cluster, o Options, r netip.Prefix, lines lifelines) []netip.Addr {
	var found []netip.Addr
	for _, a := range slices.AppendSeq(slices.Clone(o.Resolvers), maps.Keys(lines)) {
		if r.Contains(a) {
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return nil
	}
	for _, s := range c.Services {
		found = slices.DeleteFunc(found, func(a netip.Addr) bool { return slices.Contains(s.ClusterIPs, a) })
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found)
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
