package hello

import (
	"maps"
	"slices"
	"time"
)

// view gives the nodes that are alive now.
func (m *machine) view(now time.Time) View {
	m.dirty = false
	v := View{Settled: m.settled, Alive: make(map[string]Member, len(m.peers)+1)}
	for node, p := range m.peers {
		switch {
		case p.alive:
			v.Alive[node] = p.member()
			v.Differs |= v.Alive[node].Differs
			if p.isApart() {
				v.Apart = append(v.Apart, node)
			}
		case p.isSilent():
			v.Silent = append(v.Silent, node)
		}
	}
	slices.Sort(v.Silent)
	slices.Sort(v.Apart)
	v.Alive[m.node] = m.current(now).member()
	v.Differs |= m.differs
	m.markDeaf(v)
	m.markDamped(v)
	return v
}

// figures gives the counters and gauges.
func (m *machine) figures() Stats {
	s := m.stats
	s.Rejected = maps.Clone(s.Rejected)
	s.Asked = m.requestedTimeout()
	s.Late, _ = m.own.worst(m.checkedAt)
	for _, p := range m.active {
		s.Waits = max(s.Waits, p.detect)
	}
	for _, p := range m.peers {
		switch {
		case p.isTold() && p.alive && p.isApart():
			s.Apart++
		case p.isTold() && p.alive:
			s.Heard++
		case !p.isTold() && p.ready:
			s.Unheard++
		}
		if p.watched {
			s.Watched++
		}
	}
	return s
}

// markDeaf tells in a view which nodes do not hear this one, and which others those do not hear.
func (m *machine) markDeaf(v View) {
	for node, p := range m.peers {
		if p.deaf && p.alive {
			member := v.Alive[node]
			member.Deaf, member.Silent = true, p.deafTo
			v.Alive[node] = member
		}
	}
}
