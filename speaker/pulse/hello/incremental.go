package hello

import "slices"

// What a record says of others mostly changes nothing about which nodes are alive: one more link is heard,
// or one of several that lead to a node is not any more. Judge looks at all records of the cluster;
// what follows finds at the cost of one record whether it has to.

// path is how a node was found to be reached from here, or this one from there: by way of
// another one that is nearer.
type path struct {
	found bool
	level int
	via   *peer // nil: heard here itself
}

// counts tells whether what a node says of others counts.
func (v *vertex) counts() bool { return v.there.found && !v.resyncing }

// compares takes over what a record says of others, where former is what the node said of them before.
// If that may change which nodes are alive, or hear which, judge has to look at all.
func (m *machine) compares(p *peer, former []adjacency) {
	if m.mesh.whole || !p.counts() {
		return
	}
	for _, e := range former {
		e.other.reports = slices.DeleteFunc(e.other.reports, func(o adjacency) bool { return o.other == p })
	}
	for _, e := range p.adjacencies {
		back := e
		back.other = p
		e.other.reports = append(e.other.reports, back)
	}
	for _, e := range former {
		if e.carries(e.other) && !p.isCarriedTo(e.other) && m.severs(p, e.other) || e.other.isInDoubt() {
			m.mesh.whole = true
			return
		}
	}
	for _, e := range p.adjacencies {
		if e.carries(e.other) && joins(p, e.other) || e.other.isInDoubt() {
			m.mesh.whole = true
			return
		}
	}
}

func (p *peer) isCarriedTo(to *peer) bool {
	return slices.ContainsFunc(p.adjacencies, func(e adjacency) bool { return e.other == to && e.carries(to) })
}

// isInDoubt: whether the node is dead may have another answer than before.
func (v *vertex) isInDoubt() bool {
	return v.dead || !v.suspected.IsZero() || v.isSuspected()
}

// joins tells whether an adjacency that is new brings a node nearer that was not reached, or did not
// reach us.
func joins(p, to *peer) bool {
	return !to.there.found && !to.dead || to.back.found && !p.back.found
}

// severs tells whether an adjacency that is no more was one of those by which its ends are reached,
// or reach us, and there is no other one in its place that comes from nearer.
func (m *machine) severs(p, to *peer) bool {
	if to.there.via == p {
		i := slices.IndexFunc(to.reports, func(e adjacency) bool {
			return e.carries(to) && e.other.there.level < to.there.level
		})
		if i < 0 {
			return true
		}
		to.there.via = to.reports[i].other
	}
	if p.back.via == to {
		i := slices.IndexFunc(p.adjacencies, func(e adjacency) bool {
			return e.carries(e.other) && e.other.back.found && e.other.back.level < p.back.level
		})
		if i < 0 {
			return true
		}
		p.back.via = p.adjacencies[i].other
	}
	return false
}
