package election

// inherit takes over what a group has in common with the one from which most of its addresses
// come: where these were is right still but for what a node moves that came or went. The
// matching is the same as from nothing, since there is only one.
func (g *Group) inherit() {
	former := g.former()
	if former == nil {
		return
	}
	known := make(map[string]*bin, len(former.nodes))
	for _, b := range former.nodes {
		known[b.node] = b
	}
	successors := make(map[*bin]*bin, len(g.nodes))
	var added []*bin
	for _, b := range g.nodes {
		was := known[b.node]
		if was == nil {
			b.vacant = true
			added = append(added, b)
			continue
		}
		successors[was] = b
		b.capacity, b.vacant = was.capacity, was.vacant || len(was.held) == was.capacity
	}
	for m := range g.come {
		at := successors[m.at]
		if m.from != former || at == nil {
			continue
		}
		var first weight
		if m.first = successors[m.first]; m.first == nil {
			m.first, first = m.of.best(g.nodes)
		} else {
			first = m.of.weigh(m.first.node)
		}
		for _, b := range added {
			if w := m.of.weigh(b.node); w.compare(&first) < 0 {
				m.first, first = b, w
			}
		}
		g.settleAt(m, at, m.weight)
	}
}

// former is the group from which most of the addresses come; nil if none do.
func (g *Group) former() (most *Group) {
	from := map[*Group]int{}
	for m := range g.come {
		if m.from == nil {
			continue
		}
		from[m.from]++
		if from[m.from] > from[most] {
			most = m.from
		}
	}
	return most
}

// best is the node that an address would rather have than all others.
func (w *weigher) best(nodes []*bin) (best *bin, least weight) {
	for _, b := range nodes {
		if weight := w.weigh(b.node); best == nil || weight.compare(&least) < 0 {
			best, least = b, weight
		}
	}
	return best, least
}
