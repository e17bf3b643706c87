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
