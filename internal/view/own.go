package view

// Remember returns a node as it is now, nil for an absent one, completed by what was last
// known of it (nil: nothing). A deleted Node does not stop the machine, its pods and its clients;
// and one that has just been made anew has no addresses and podCIDRs until a kubelet or a cloud
// controller writes them.
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

// OwnNode returns the node of that name as its own forwarding goes by it, nil if nothing was ever
// known of it.
func (c *Cluster) OwnNode(name string) *Node { return c.Nodes[name].Remember(c.LastOwn) }
