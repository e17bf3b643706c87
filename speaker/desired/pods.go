package desired

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// PodDetection is how a node tells pods from strangers: kube-proxy's detectLocalMode. The
// zero value has the podCIDRs of all nodes.
type PodDetection struct {
	// ClusterCIDRs are where pods send from, in place of the podCIDRs of a family of which there is one.
	ClusterCIDRs []netip.Prefix
	// OwnNode: pods are those of this node alone, by its podCIDRs as they are at the time.
	OwnNode bool
	// Links are what pods send by, in place of all addresses.
	Links Links
}

// Links are network interfaces by their names. The zero value has none. It is comparable.
type Links struct {
	Name   string
	Prefix bool // Name is how the names of all of them begin
}

// podPrefixes are the prefixes that pods send from; none where interfaces tell.
func (o Options) podPrefixes(c *view.Cluster) []netip.Prefix {
	if o.Pods.Links != (Links{}) {
		return nil
	}
	all, told := slices.Clone(o.Pods.ClusterCIDRs), map[addr.Family]bool{}
	for _, p := range all {
		told[addr.FamilyOf(p.Addr())] = true
	}
	for name, node := range nodes(c, o) {
		if name != o.Node && o.Pods.OwnNode {
			continue
		}
		for _, p := range node.PodCIDRs {
			if !told[addr.FamilyOf(p.Addr())] {
				all = append(all, p)
			}
		}
	}
	return addr.WithoutLoopback(all)
}

// strangePods is the problem of a node that cannot tell pods from strangers in a family
// whose Services it forwards: it masquerades no stranger's packets for ClusterIPs, and refuses
// pods the short circuit.
func strangePods(f Forwarding, o Options) []problem.Problem {
	if o.Pods.Links != (Links{}) {
		return nil
	}
	who, remedy := "no node says", "set the Helm value forwarding.clusterCIDRs"
	if o.Pods.OwnNode {
		who, remedy = "this node does not say", "give it one of the family, or set the Helm value forwarding.detectLocalMode to another mode"
	}
	var problems []problem.Problem
	for _, family := range addr.Families() {
		if f.Count[family] > 0 && !f.PodsKnown(family) {
			problems = append(problems, problem.New(problem.Object{Kind: "Node", Name: o.Node}, ReasonPodsUnknown,
				"%s in spec.podCIDRs where its %s pods send from, so that nothing for ClusterIPs is masqueraded, and pods are taken for strangers under externalTrafficPolicy Local: %s", who, family, remedy))
		}
	}
	return problems
}
