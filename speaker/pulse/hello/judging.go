package hello

import "slices"

// What a record says of others mostly changes nothing about who is alive: one more link is heard,
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
func (v *vertex) counts() bool { return v.there.found && !v.returning }

// compares takes over what a record says of others, where former is what the node said of them before.
// If that may change who is alive or hears whom, judge has to look at all.
func (m *machine) compares(p *peer, former []edge) {
	if m.mesh.whole || !p.counts() {
		return
	}
	for _, e := range former {
		e.other.opinions = slices.DeleteFunc(e.other.opinions, func(o edge) bool { return o.other == p })
	}
	for _, e := range p.edges {
		back := e
		back.other = p
		e.other.opinions = append(e.other.opinions, back)
	}
	for _, e := range former {
		if e.carries(e.other) && !p.isCarriedTo(e.other) && m.severs(p, e.other) || e.other.isInDoubt() {
			m.mesh.whole = true
			return
		}
	}
	for _, e := range p.edges {
		if e.carries(e.other) && joins(p, e.other) || e.other.isInDoubt() {
			m.mesh.whole = true
			return
		}
	}
}

func (p *peer) isCarriedTo(to *peer) bool {
	return slices.ContainsFunc(p.edges, func(e edge) bool { return e.other == to && e.carries(to) })
}

// isInDoubt: whether the node is dead may have another answer than before.
func (v *vertex) isInDoubt() bool {
	return v.out || !v.condemned.IsZero() || v.isCondemned()
}

// joins tells whether an edge that is new brings somebody nearer who was not reached, or did not
// reach us.
func joins(p, to *peer) bool {
	return !to.there.found && !to.out || to.back.found && !p.back.found
}

// severs tells whether an edge that is no more was one of those by which its ends are reached,
// or reach us, and there is no other one in its place that comes from nearer.
func (m *machine) severs(p, to *peer) bool {
	if to.there.via == p {
		i := slices.IndexFunc(to.opinions, func(e edge) bool {
			return e.carries(to) && e.other.there.level < to.there.level
		})
		if i < 0 {
			return true
		}
		to.there.via = to.opinions[i].other
	}
	if p.back.via == to {
		i := slices.IndexFunc(p.edges, func(e edge) bool {
			return e.carries(e.other) && e.other.back.found && e.other.back.level < p.back.level
		})
		if i < 0 {
			return true
		}
		p.back.via = p.edges[i].other
	}
	return false
}
