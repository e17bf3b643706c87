package view

// Remember is a node as it is now, nil for one that is not there, completed by what was last
// known of it (nil: nothing). A Node that is deleted takes nothing away from the machine, whose
// pods and clients are where they were; and one that has just been made anew says neither
// where it is nor where its pods are until a kubelet or a cloud controller has told.
func (n *Node) Remember(last *Node) *Node {
	switch {
	case n == nil:
		return last
	case last == nil || len(n.Addresses) > 0 && len(n.PodCIDRs) > 0:
		return n
	}
	whole := *n
	if len(whole.Addresses) == 0 {
		whole.Addresses = last.Addresses
	}
	if len(whole.PodCIDRs) == 0 {
		whole.PodCIDRs = last.PodCIDRs
	}
	return &whole
}

// OwnNode is the node of that name as its own forwarding goes by it, nil if nothing was ever
// known of it.
func (c *Cluster) OwnNode(name string) *Node { return c.Nodes[name].Remember(c.LastOwn) }
