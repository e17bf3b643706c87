package hello

import (
	"slices"
	"strings"
	"time"
)

// attend puts a peer among those that are looked at whenever the clock is: time alone may change
// something about it. In a large mesh these are few, and what a node does many times a second must not
// cost more because the cluster has more nodes. See isIdle for who is left out.
func (m *machine) attend(p *peer) {
	if p.attended {
		return
	}
	p.attended = true
	i, _ := m.findAttended(p)
	m.attended = slices.Insert(m.attended, i, p)
}

// dismiss is for one that is wanted no more.
func (m *machine) dismiss(p *peer) {
	if i, found := m.findAttended(p); found {
		m.attended = slices.Delete(m.attended, i, i+1)
	}
	p.attended = false
}

func (m *machine) findAttended(p *peer) (int, bool) {
	return slices.BinarySearchFunc(m.attended, p.node, func(q *peer, node string) int { return strings.Compare(q.node, node) })
}

// overlook leaves out those that have become idle.
func (m *machine) overlook(now time.Time) {
	m.attended = slices.DeleteFunc(m.attended, func(p *peer) bool {
		p.attended = !p.isIdle(now)
		return !p.attended
	})
}

// isIdle: whether a peer is alive is found from the records of all, and nothing that is known from
// itself, and may become untrue, is left.
func (p *peer) isIdle(now time.Time) bool {
	return p.record != nil && !p.isNear(now) && !p.proven && len(p.claims) == 0 && !now.Before(p.held)
}
