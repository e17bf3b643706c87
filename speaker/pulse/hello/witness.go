package hello

import (
	"slices"
	"time"
)

const (
	// witnesses is how many nodes must say that they do not hear one before all believe it dead.
	witnesses = 2
	// maxPasses bounds for how long judge looks what follows from a death. Each pass that finds
	// something finds a further ring of nodes of which nobody is left who watches them.
	maxPasses = 32
)

// vertex is a node as the records of all nodes have it.
type vertex struct {
	record   *hello // what it says to all, its sequence is the version; nil: not known
	edges    []edge // whom it watches, of those that we know
	opinions []edge // what those say that watch it and are reached; from the other side
	there    path   // from here to it: it is reached
	back     path   // from it to us: it hears us, or one that does
	// known: it was reached, or called dead by witnesses, since we know of it.
	known     bool
	out       bool      // witnesses say that it is dead
	condemned time.Time // since when they say so; zero: they do not
	// returning: it was dead, and its record may be of before. What it says of others counts
	// again when it is known to be its newest word.
	returning bool
	returned  time.Time // since when it is reached again; zero: it is not
	orphaned  time.Time // since when nobody that is reached watches it; zero: somebody does
	// deafTo are the nodes that it takes for dead, ourselves among them; nil: it can hear us.
	deafTo    map[string]bool
	deafSince time.Time // since when there are any
	deaf      bool      // as in the view
}

// edge is what a node says of another one.
type edge struct {
	link
	other *peer // that it is about; in opinions, that says it
}

// carries tells whether an edge makes the node at its end alive. A node that was not heard yet by
// one that has just begun to watch it is alive while Kubernetes says so.
func (e edge) carries(to *peer) bool {
	return e.state != linkSilent && (e.state != linkPending || to.ready)
}

// objection is for how long a death that witnesses tell of is held back: those that have
// heard the node since need a hop or two to say so.
func (m *machine) objection() time.Duration { return m.interval / 4 }

// judge decides from the records who is alive.
//
// A node is alive that is reached from here: over others, each of which hears the next one.
// It is dead, whoever hears it, if two say that they do not, and none of those who hear it has
// done so since; or if all who watch it say so. Nodes that nobody watches who is reached get a
// detection time, in which they and others find new neighbours.
func (m *machine) judge(now time.Time) {
	defer func() { m.mesh.learned = m.mesh.learned[:0] }()
	if !m.mesh.whole {
		for _, p := range m.mesh.learned {
			if p != m.mesh.self && p.record != nil {
				m.conclude(now, p)
			}
		}
		return
	}
	m.mesh.whole = false
	all := m.mesh.order
	for again, passes := true, 0; again && passes < maxPasses; passes++ {
		m.reach()
		again = false
		for _, p := range all {
			out := p.isCondemned()
			switch {
			case !out:
				p.condemned = time.Time{}
			case p.condemned.IsZero():
				p.condemned = now
			}
			if out && !p.out && !p.isSilentToAll() && now.Before(p.condemned.Add(m.objection())) {
				out = false
			}
			again = again || out != p.out
			p.out = out
		}
	}
	for _, p := range all {
		if !p.out && !p.condemned.IsZero() {
			m.judgeBy(p.condemned.Add(m.objection()))
		}
		if p != m.mesh.self && p.record != nil {
			m.conclude(now, p)
		}
	}
	m.findDeaf(now)
}

// judgeBy makes judge run then at the latest.
func (m *machine) judgeBy(t time.Time) {
	if m.mesh.judgeAt.IsZero() || t.Before(m.mesh.judgeAt) {
		m.mesh.judgeAt = t
	}
}

// reach marks who is reached from here past those who are out, and gathers opinions.
func (m *machine) reach() {
	all := m.mesh.order
	for _, p := range all {
		p.there, p.back, p.opinions = path{}, path{}, p.opinions[:0]
	}
	queue := append(m.mesh.queue[:0], m.mesh.self)
	m.mesh.self.there.found = true
	for _, p := range m.attended {
		if p.proven && p.record != nil && !p.out && m.mesh.heard.Before(p.until()) {
			p.there = path{found: true, level: 1} // watched or not, it was heard just now
			queue = append(queue, p)
		}
	}
	for i := 0; i < len(queue); i++ {
		p := queue[i]
		if p.returning {
			continue
		}
		for _, e := range p.edges {
			to := e.other
			back := e
			back.other = p
			to.opinions = append(to.opinions, back)
			if !to.there.found && !to.out && e.carries(to) {
				to.there = path{found: true, level: p.there.level + 1, via: p}
				queue = append(queue, to)
			}
		}
	}
	m.mesh.queue = queue
}

// isCondemned tells whether those who watch a node say that it is dead.
func (v *vertex) isCondemned() bool {
	unrefuted := 0
	for _, e := range v.opinions {
		if e.state == linkSilent && !v.isRefuted(e) {
			unrefuted++
		}
	}
	return v.isSilentToAll() || unrefuted >= witnesses
}

// isSilentToAll: each node that watches it says that it does not hear it, so that none is left to object. One that
// has not heard it yet brings none back that is dead.
func (v *vertex) isSilentToAll() bool {
	silent := false
	for _, e := range v.opinions {
		switch {
		case e.state == linkSilent:
			silent = true
		case e.state != linkPending || !v.out:
			return false
		}
	}
	return silent
}

// isRefuted tells whether somebody has heard the node since another one did last.
func (v *vertex) isRefuted(accusation edge) bool {
	return slices.ContainsFunc(v.opinions, func(e edge) bool {
		return e.state == linkVouched && (e.boot != accusation.boot || int32(e.seq-accusation.seq) > 0)
	})
}

// conclude makes a node alive or dead by what was found.
func (m *machine) conclude(now time.Time, p *peer) {
	alive := p.there.found && !p.out
	switch {
	case p.there.found || p.out:
		if !p.known {
			m.touch() // it may be silent now
		}
		p.known, p.orphaned = true, time.Time{}
	case !p.known:
		alive = p.ready
	case p.alive: // nobody watches it who is reached
		if p.orphaned.IsZero() {
			p.orphaned = now
		}
		due := p.orphaned.Add(m.detect)
		if alive = now.Before(due); alive {
			m.judgeBy(due)
		}
	}
	m.welcome(now, p)
	if alive == p.alive {
		return
	}
	p.returning = p.returning || !alive
	m.mesh.returns = m.mesh.returns || p.returning
	p.alive, m.hurry = alive, true
	m.touch()
	switch {
	case alive && p.known:
		m.log.Info("node is heard again", "node", p.node)
	case alive:
	case p.said.leaving:
		m.log.Info("node has left", "node", p.node)
	default:
		m.stats.Deaths++
		told := []any{"node", p.node, "unheardBy", p.accusers()}
		if p.watched && p.heard {
			told = append(told, "silence", now.Sub(p.at).Round(time.Millisecond).String())
		}
		m.log.Warn("node fell silent and counts as dead", told...)
	}
}

// welcome ends that a node is returning after a while at the latest.
func (m *machine) welcome(now time.Time, p *peer) {
	switch {
	case !p.returning || !p.there.found:
		p.returned = time.Time{}
	case p.returned.IsZero():
		p.returned = now
		m.judgeBy(now.Add(postponements * m.interval))
	case !now.Before(p.returned.Add(postponements * m.interval)):
		p.returning = false
		m.reconsider()
	default:
		m.judgeBy(p.returned.Add(postponements * m.interval))
	}
}

// settleReturns counts what those say again who are returning: our records are those of a
// peer, and no other has come for some intervals.
func (m *machine) settleReturns(now time.Time) {
	if !m.mesh.returns || now.Sub(m.mesh.learnedAt) < 2*m.interval {
		return
	}
	m.mesh.returns = false
	for _, p := range m.mesh.order {
		switch {
		case !p.returning:
		case p.there.found:
			p.returning = false
			m.reconsider()
		default:
			m.mesh.returns = true
		}
	}
}

// accusers are some of those that call a node silent; none: nobody is left who watches it.
func (v *vertex) accusers() []string {
	var names []string
	for _, e := range v.opinions {
		if e.state == linkSilent {
			names = append(names, e.other.node)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxLinks)]
}

// findDeaf finds the nodes that are alive and take this one for dead, and whom those take for
// dead. Mostly there are none. One counts as deaf once it was so for an interval: when nodes meet again that were
// parted, what the one knows of the other is of before.
func (m *machine) findDeaf(now time.Time) {
	self := m.mesh.self
	if !self.out {
		queue := append(m.mesh.queue[:0], self)
		self.back.found = true
		for i := 0; i < len(queue); i++ {
			to := queue[i]
			for _, e := range to.opinions {
				if p := e.other; !p.back.found && !p.out && e.carries(to) {
					p.back = path{found: true, level: to.back.level + 1, via: to}
					queue = append(queue, p)
				}
			}
		}
		m.mesh.queue = queue
	}
	var found []*peer // of whom those are deaf who are reached from each other
	for _, p := range m.mesh.order {
		before := p.deafTo != nil
		p.deafTo = nil
		if p != self && p.there.found && !p.out && p.record != nil && !p.back.found {
			p.deafTo = m.deafTo(p, found)
			found = append(found, p)
		}
		if p.deafTo != nil && !before {
			p.deafSince = now
		}
		m.judgeEar(now, p)
	}
	if deaf := len(found) > 0; deaf != m.mesh.unheard {
		m.mesh.unheard = deaf
		if deaf {
			m.log.Warn("nodes do not hear this one; they take over what would be theirs without this one", "nodes", len(found), "first", found[0].node)
		} else {
			m.log.Info("all nodes that are alive hear this one again")
		}
	}
}

// judgeEar tells in the view whether a node does not hear this one.
func (m *machine) judgeEar(now time.Time, p *peer) {
	due := p.deafSince.Add(m.interval)
	deaf := p.deafTo != nil && !now.Before(due)
	if p.deafTo != nil && !deaf {
		m.judgeBy(due)
	}
	if deaf != p.deaf {
		p.deaf = deaf
		m.touch()
	}
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

// deafTo are the nodes that one takes for dead which takes us for dead; nil if it hears nobody,
// so that it is the fault of its ears. found are those for which it was answered before.
func (m *machine) deafTo(p *peer, found []*peer) map[string]bool {
	hears := map[*peer]bool{p: true}
	queue := []*peer{p}
	for i := 0; i < len(queue); i++ {
		for _, e := range queue[i].edges {
			to := e.other
			if hears[to] || to.out || to == m.mesh.self || !e.carries(to) {
				continue
			}
			if slices.Contains(found, to) && to.deafTo != nil && !to.deafTo[p.node] {
				return to.deafTo // each hears the other
			}
			hears[to] = true
			queue = append(queue, to)
		}
	}
	if len(queue) < 2 && !p.record.sound {
		return nil
	}
	dead := map[string]bool{m.node: true}
	for _, o := range m.mesh.order {
		if o.record != nil && !hears[o] {
			dead[o.node] = true
		}
	}
	return dead
}
