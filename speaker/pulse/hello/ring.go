package hello

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"
)

const (
	// rings are so many orders of all nodes. A node watches the next one in each direction of
	// each: eight of them, or fewer where rings agree, and all where there are no more.
	rings = 4
	// maxWalk bounds how many nodes are watched in one direction when the nearest are dead.
	maxWalk = 3
)

// ring is all nodes in an order that every node knows by their names alone: it does not
// depend on the order in which nodes learn of each other, and a node that comes or goes changes the neighbours
// of two others. The union of some such rings is, as random graphs are, within a few hops from
// anywhere to anywhere.
type ring struct {
	order []*peer // with this node itself
	self  int     // where it is
}

// ringsOf puts the nodes in order.
func ringsOf(self *peer, peers map[string]*peer) (all [rings]ring) {
	for i := range all {
		at := make(map[*peer]uint64, len(peers)+1)
		order := append(make([]*peer, 0, len(peers)+1), self)
		for _, p := range peers {
			order = append(order, p)
		}
		for _, p := range order {
			digest := sha256.Sum256(append([]byte{byte(i)}, p.node...))
			at[p] = binary.BigEndian.Uint64(digest[:])
		}
		slices.SortFunc(order, func(a, b *peer) int {
			return cmp.Or(cmp.Compare(at[a], at[b]), cmp.Compare(a.node, b.node))
		})
		all[i] = ring{order: order, self: slices.Index(order, self)}
	}
	return all
}

// walk gives the nodes to watch in one direction: the first that is known to live and to watch
// as well, and of those before it, which are dead or unknown, the nearest. A dead one stays
// watched, so that what is said of it lasts; but without one that lives, the death of all
// that watch a node would leave no watcher.
func (r ring) walk(step int, isEnough func(*peer) bool) []*peer {
	var found []*peer
	for i := 1; i < len(r.order); i++ {
		p := r.order[(r.self+i*step+i*len(r.order))%len(r.order)]
		switch {
		case isEnough(p):
			return append(found, p)
		case len(found) < maxWalk-1:
			found = append(found, p)
		}
	}
	return found
}

// choose finds the nodes that this one watches.
func (m *machine) choose(now time.Time) {
	isEnough := func(p *peer) bool {
		if !p.heard && p.record == nil { // it may be about to answer
			until := p.since.Add(2 * m.detect)
			if now.Before(until) {
				m.judgeBy(until)
			}
			return now.Before(until)
		}
		return p.alive
	}
	chosen := map[*peer]bool{}
	if len(m.peers) <= 2*rings {
		for _, p := range m.peers {
			chosen[p] = true
		}
	}
	for _, r := range m.mesh.rings {
		for _, step := range []int{1, -1} {
			for _, p := range r.walk(step, isEnough) {
				chosen[p] = true
			}
		}
	}
	for _, p := range m.active {
		if p.watched && !chosen[p] {
			p.watched, p.refutation, m.mesh.changed = false, nil, true
			m.touch()
		}
	}
	for p := range chosen {
		if !p.watched {
			p.watched, p.link, p.refutation, p.began = true, linkPending, nil, now
			m.activate(p)
			m.mesh.changed = true
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
