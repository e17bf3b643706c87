package view

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
