package hello

import (
	"slices"
	"strings"
	"time"
)

// activate puts a peer into the active set, which has the peers about which time alone may change something. In a
// large cluster these are few, and what a node does many times a second must not cost more because the cluster
// has more nodes. isIdle tells which peers are not in it.
func (m *machine) activate(p *peer) {
	if p.active {
		return
	}
	p.active = true
	i, _ := m.findActive(p)
	m.active = slices.Insert(m.active, i, p)
}

// deactivate is for one that is wanted no more.
func (m *machine) deactivate(p *peer) {
	if i, found := m.findActive(p); found {
		m.active = slices.Delete(m.active, i, i+1)
	}
	p.active = false
}

func (m *machine) findActive(p *peer) (int, bool) {
	return slices.BinarySearchFunc(m.active, p.node, func(q *peer, node string) int { return strings.Compare(q.node, node) })
}

// pruneActive takes peers that have become idle out of the active set.
func (m *machine) pruneActive(now time.Time) {
	m.active = slices.DeleteFunc(m.active, func(p *peer) bool {
		p.active = !p.isIdle(now)
		return !p.active
	})
}

// isIdle tells whether the records alone say if a peer is alive, and nothing that is known from the peer itself
// may become untrue with time.
func (p *peer) isIdle(now time.Time) bool {
	return p.record != nil && !p.isNear(now) && !p.proven && len(p.claims) == 0 && !now.Before(p.held)
}
