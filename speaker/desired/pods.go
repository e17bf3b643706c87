package desired

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// PodDetection is how a node tells pods from other senders: kube-proxy's detectLocalMode. The
// zero value goes by the podCIDRs of all nodes.
type PodDetection struct {
	// ClusterCIDRs are the addresses of pods. They replace the podCIDRs of the families that they have.
	ClusterCIDRs []netip.Prefix
	// OwnNode: pods are those of this node alone, by its podCIDRs as they are at the time.
	OwnNode bool
	// Links are the interfaces that pods send by, in place of all addresses.
	Links Links
}

// Links are network interfaces by their names. The zero value has none. It is comparable.
type Links struct {
	Name   string
	Prefix bool // Name is how the names of all of them begin
}

// podPrefixes are the prefixes that pods send from; none where interfaces tell pods.
func (o Options) podPrefixes(c *view.Cluster) []netip.Prefix {
	if o.Pods.Links != (Links{}) {
		return nil
	}
	all, told := slices.Clone(o.Pods.ClusterCIDRs), map[addr.Family]bool{}
	for _, p := range all {
		told[addr.FamilyOf(p.Addr())] = true
	}
	for name, node := range nodes(c, o) {
		for _, p := range node.PodCIDRs {
			if (name == o.Node || !o.Pods.OwnNode) && !told[addr.FamilyOf(p.Addr())] {
				all = append(all, p)
			}
		}
	}
	return addr.WithoutLoopback(all)
}

// podsUnknown is the problem of a node that cannot tell pods from other senders in a family
// of the Services that it forwards: it masquerades no packets to ClusterIPs, and refuses pods the short
// circuit.
func podsUnknown(f Forwarding, o Options) []problem.Problem {
	if o.Pods.Links != (Links{}) {
		return nil
	}
	lacking, remedy := "no node says", "set the Helm value forwarding.clusterCIDRs"
	if o.Pods.OwnNode {
		lacking, remedy = "this node does not say", "give it one of the family, or set the Helm value forwarding.detectLocalMode to another mode"
	}
	var problems []problem.Problem
	for _, family := range addr.Families() {
		if f.Count[family] > 0 && !f.PodsKnown(family) {
			problems = append(problems, problem.New(problem.Object{Kind: "Node", Name: o.Node}, ReasonPodsUnknown,
				"%s in spec.podCIDRs where its %s pods send from, so that nothing for ClusterIPs is masqueraded, and pods are taken for strangers under externalTrafficPolicy Local: %s", lacking, family, remedy))
		}
	}
	return problems
}

// outsiders are the endpoints of a Service that are pods of this node, not on its own network, and send from elsewhere than
// pods are known to in their family.
func (e *Engine) outsiders(c *view.Cluster, ref view.Ref) []netip.Addr {
	f := &e.node.Forwarding
	if s := c.Services[ref]; s == nil || s.ProxiedElsewhere || e.options.Pods.Links != (Links{}) {
		return nil
	}
	var found []netip.Addr
	for _, p := range c.Endpoints.Of(ref) {
		if !p.Pod || p.Node != e.options.Node || e.claims.lifelines[p.Addr].node || !f.PodsKnown(addr.FamilyOf(p.Addr)) {
			continue
		}
		if !slices.ContainsFunc(f.Pods, func(known netip.Prefix) bool { return known.Contains(p.Addr) }) {
			found = append(found, p.Addr)
		}
	}
	return found
}

// lookForOutsiders goes through all Services, since where pods are known to send from has changed.
func (e *Engine) lookForOutsiders(c *view.Cluster) {
	e.outside = map[view.Ref][]netip.Addr{}
	for ref := range c.Services {
		replace(e.outside, ref, e.outsiders(c, ref))
	}
}

// podsOutside are the problems of pods that are taken for strangers: the addresses that are known do not have theirs.
func (e *Engine) podsOutside() []problem.Problem {
	first := map[addr.Family]netip.Addr{}
	for _, found := range e.outside {
		for _, a := range found {
			if known := first[addr.FamilyOf(a)]; !known.IsValid() || a.Less(known) {
				first[addr.FamilyOf(a)] = a
			}
		}
	}
	var problems []problem.Problem
	for family, a := range first {
		problems = append(problems, problem.New(problem.Object{Kind: "Node", Name: e.options.Node}, ReasonPodsOutside,
			"pods of this node have %s addresses outside of where pods are known to send from, such as %s: what they send to ClusterIPs is masqueraded, and under "+
				"externalTrafficPolicy Local they are taken for strangers: list where all pods send from in the Helm value forwarding.clusterCIDRs, "+
				"which replaces the podCIDRs of nodes in its family, or set forwarding.detectLocalMode to tell pods by their interfaces", family, a))
	}
	return problems
}
