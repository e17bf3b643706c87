package desired

import (
	"iter"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Reasons of the problems of this node's own Node. Forwarding goes on by what was last known of it
// while the Node is absent or incomplete. Announcing goes by the Nodes that exist: all nodes must
// agree on them.
const (
	ReasonNodeMissing    = "NodeMissing"    // the cluster has no such Node
	ReasonAddressUnknown = "AddressUnknown" // the Node does not say at which addresses it is
)

// nodes are those of the cluster, with this one as OwnNode has it.
func nodes(c *view.Cluster, o Options) iter.Seq2[string, *view.Node] {
	return func(yield func(string, *view.Node) bool) {
		for name, node := range c.Nodes {
			if name != o.Node && !yield(name, node) {
				return
			}
		}
		if own := c.OwnNode(o.Node); own != nil {
			yield(o.Node, own)
		}
	}
}

func ownNode(c *view.Cluster, f Forwarding, o Options) []problem.Problem {
	object := problem.Object{Kind: "Node", Name: o.Node}
	node, own := c.Nodes[o.Node], c.OwnNode(o.Node)
	const register = "it is registered when the kubelet starts"
	switch {
	case node == nil && own == nil:
		return []problem.Problem{problem.New(object, ReasonNodeMissing,
			"the cluster has no Node of this name, so that NodePorts answer nowhere on this node and nothing is announced from it: %s", register)}
	case node == nil:
		return []problem.Problem{problem.New(object, ReasonNodeMissing,
			"the cluster has no Node of this name any more: Services are forwarded as long as the speaker runs by what the Node said last, addresses %s and podCIDRs %s, "+
				"and nothing is announced from this node: %s", own.Addresses, own.PodCIDRs, register)}
	}
	const remedy = "have its kubelet (--node-ip) or the cloud's controller say one"
	if len(node.Addresses) == 0 && len(own.Addresses) > 0 {
		return []problem.Problem{problem.New(object, ReasonAddressUnknown,
			"status.addresses has neither an InternalIP nor an ExternalIP any more: NodePorts go on at those of before, %s, "+
				"and other nodes do not know where to find this one: %s", own.Addresses, remedy)}
	}
	if !o.NodePortPrimary && len(o.NodePortCIDRs) > 0 {
		return nil
	}
	var problems []problem.Problem
	for _, family := range addr.Families() {
		of := func(p netip.Prefix) bool { return addr.FamilyOf(p.Addr()) == family }
		if !slices.ContainsFunc(f.NodePorts, of) && f.hasNodePort(family) {
			problems = append(problems, problem.New(object, ReasonAddressUnknown,
				"status.addresses has neither an InternalIP nor an ExternalIP of %s, so that NodePorts of that family answer nowhere on this node: "+
					"%s, or set the Helm value forwarding.nodePortAddresses", family, remedy))
		}
	}
	return problems
}

func (f Forwarding) hasNodePort(family addr.Family) bool {
	if f.Count[family] > 0 {
		for key, port := range f.Ports {
			if key.Family == family && port.NodePort != 0 {
				return true
			}
		}
	}
	return false
}
