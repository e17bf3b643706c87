package view

import "net/netip"

// RollCall is the state of the nodes by their hellos, long before Kubernetes knows:
// the zero value says nothing.
type RollCall struct {
	Alive []string // this node included
	// Silent nodes sent hellos once and have stopped without saying that they leave, or were never heard
	// and do not answer ARP for their own addresses.
	Silent []string
}

// fallen are the silent nodes that are believed to be dead. A node that hears fewer nodes
// than fell silent is cut off itself, and believes none to be dead; half of them are
// enough, so that one of two nodes goes on alone. Nodes that Kubernetes calls
// not ready have no vote: they may have been switched off for weeks.
func (r RollCall) fallen(nodes map[string]*Node) map[string]struct{} {
	fallen := map[string]struct{}{}
	votes := 0
	for _, name := range r.Silent {
		node := nodes[name]
		if node == nil {
			continue
		}
		fallen[name] = struct{}{}
		if node.Ready {
			votes++
		}
	}
	if votes > len(r.Alive) {
		return nil
	}
	return fallen
}

// Fall sets which nodes are believed to be dead, and returns those for which that
// changed. The snapshot must not have been handed out yet.
func (c *Cluster) Fall(r RollCall) map[string]struct{} {
	next := r.fallen(c.Nodes)
	differ := map[string]struct{}{}
	for name := range next {
		if _, before := c.Fallen[name]; !before {
			differ[name] = struct{}{}
		}
	}
	for name := range c.Fallen {
		if _, still := next[name]; !still {
			differ[name] = struct{}{}
		}
	}
	if len(differ) > 0 {
		c.Fallen = next
	}
	return differ
}

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

// Adjacency is the router at the other end of one of this node's interfaces. Addresses are
// link-local ones with the interface as zone. It is comparable.
type Adjacency struct {
	Local  netip.Addr // this node's; invalid: the interface is of no use now
	Router netip.Addr // invalid: none has been heard
	// Trouble says why the interface is of no use; empty where Local is valid.
	Trouble string
}

// After returns the adjacency that a newer report makes of this one. A listener that has just started has
// heard no router yet: the router stays as long as the interface does.
func (a Adjacency) After(report Adjacency) Adjacency {
	if !report.Router.IsValid() && report.Local.IsValid() && report.Local == a.Local {
		report.Router = a.Router
	}
	return report
}
