package view

// RollCall is what the hellos of the nodes tell this one, long before Kubernetes knows:
// the zero value tells nothing.
type RollCall struct {
	Alive []string // this node included
	// Silent were heard once and are no more, without having said that they leave, or were never heard
	// and do not answer for their own addresses.
	Silent []string
}

// fallen are the silent nodes that are believed to be dead. Whoever hears fewer nodes
// than fell silent is the one that is cut off, and believes nothing; half of them are
// enough, so that one of two nodes notices that it is alone. Nodes that Kubernetes calls
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

// Fall puts down which nodes are believed to be dead, and returns those for which that is
// another than before. The snapshot must not have been handed out yet.
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
