package hello

import (
	"slices"
	"time"
)

const (
	// confirmations is how many nodes must say that they do not hear one before all believe it dead.
	confirmations = 2
	// maxPasses bounds for how long judge looks what follows from a death. Each pass that finds
	// something finds a further ring of nodes that no living node watches.
	maxPasses = 32
)

// vertex is a node as the records of all nodes have it.
type vertex struct {
	record      *hello      // what it says to all, its sequence is the version; nil: not known
	adjacencies []adjacency // of the nodes that it watches, those that we know
	reports     []adjacency // what its watchers say that are reached; from the other side
	there       path        // from here to it: it is reached
	back        path        // from it to us: it hears us, or one that does
	// known: it was reached, or called dead by its watchers, since we know of it.
	known     bool
	dead      bool      // its watchers have confirmed that it is dead
	suspected time.Time // since when they say so, confirmed or not; zero: they do not
	// resyncing: it was dead, and its record may be of before. What it says of others counts
	// again when it is known to be its newest word.
	resyncing      bool
	resyncSince    time.Time // since when it is reached again; zero: it is not
	unwatchedSince time.Time // since when no node that is reached watches it; zero: one does
	// deafTo are the nodes that it takes for dead, ourselves among them; nil: it can hear us.
	deafTo    map[string]bool
	deafSince time.Time // since when there are any
	deaf      bool      // as in the view
}

// adjacency is what a node says of another one.
type adjacency struct {
	link
	other *peer // that it is about; in reports, that says it
}

// carries tells whether an adjacency makes the node at its end alive. A node of which nothing is known yet, and that was not heard by
// one that has just begun to watch it, is alive while Kubernetes says so. Of one that is known, others say whether they hear it.
func (e adjacency) carries(to *peer) bool {
	return e.State != linkSilent && (e.State != linkPending || to.ready && to.record == nil)
}

// suspicionTimeout is for how long a death that watchers report is held back: those that have
// heard the node since need a hop or two to say so.
func (m *machine) suspicionTimeout() time.Duration { return m.interval / 4 }

// judge decides from the records which nodes are alive.
//
// A node is alive that is reached from here: over others, each of which hears the next one.
// It is dead if two of its watchers say that they do not hear it and none has heard it since, or if all of them say so.
// Nodes that no reached node watches get a
// detection time, in which they and others find new neighbours.
func (m *machine) judge(now time.Time) {
	defer func() { m.mesh.installed = m.mesh.installed[:0] }()
	if !m.mesh.whole {
		for _, p := range m.mesh.installed {
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
			dead := p.isSuspected()
			switch {
			case !dead:
				p.suspected = time.Time{}
			case p.suspected.IsZero():
				p.suspected = now
			}
			if dead && !p.dead && !p.isSilentToAll() && now.Before(p.suspected.Add(m.suspicionTimeout())) {
				dead = false
			}
			again = again || dead != p.dead
			p.dead = dead
		}
	}
	for _, p := range all {
		if !p.dead && !p.suspected.IsZero() {
			m.judgeBy(p.suspected.Add(m.suspicionTimeout()))
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

// reach marks the nodes that are reached from here past the dead ones, and gathers the reports.
func (m *machine) reach() {
	all := m.mesh.order
	for _, p := range all {
		p.there, p.back, p.reports = path{}, path{}, p.reports[:0]
	}
	queue := append(m.mesh.queue[:0], m.mesh.self)
	m.mesh.self.there.found = true
	for _, p := range m.active {
		if p.proven && p.record != nil && !p.dead && m.mesh.heard.Before(p.until()) {
			p.there = path{found: true, level: 1} // watched or not, it was heard just now
			queue = append(queue, p)
		}
	}
	for i := 0; i < len(queue); i++ {
		p := queue[i]
		if p.resyncing {
			continue
		}
		for _, e := range p.adjacencies {
			to := e.other
			back := e
			back.other = p
			to.reports = append(to.reports, back)
			if !to.there.found && !to.dead && e.carries(to) {
				to.there = path{found: true, level: p.there.level + 1, via: p}
				queue = append(queue, to)
			}
		}
	}
	m.mesh.queue = queue
}

// isSuspected tells whether the watchers of a node say that it is dead.
func (v *vertex) isSuspected() bool {
	unrefuted := 0
	for _, e := range v.reports {
		if e.State == linkSilent && !v.isRefuted(e) {
			unrefuted++
		}
	}
	return v.isSilentToAll() || unrefuted >= confirmations
}

// isSilentToAll: each node that watches it says that it does not hear it, so that none is left to object. One that
// has not heard it yet brings none back that is dead.
func (v *vertex) isSilentToAll() bool {
	silent := false
	for _, e := range v.reports {
		switch {
		case e.State == linkSilent:
			silent = true
		case e.State != linkPending || !v.dead:
			return false
		}
	}
	return silent
}

// isRefuted tells whether a watcher has heard the node later than the one that reports it.
func (v *vertex) isRefuted(report adjacency) bool {
	return slices.ContainsFunc(v.reports, func(e adjacency) bool {
		return e.State == linkRefuted && (e.Incarnation != report.Incarnation || int32(e.Seq-report.Seq) > 0)
	})
}

// conclude makes a node alive or dead by what was found.
func (m *machine) conclude(now time.Time, p *peer) {
	alive := p.there.found && !p.dead
	switch {
	case p.there.found || p.dead:
		if !p.known {
			m.touch() // it may be silent now
		}
		p.known, p.unwatchedSince = true, time.Time{}
	case !p.known:
		alive = p.ready
	case p.alive: // no node that is reached watches it
		if p.unwatchedSince.IsZero() {
			p.unwatchedSince = now
		}
		due := p.unwatchedSince.Add(m.detect)
		if alive = now.Before(due); alive {
			m.judgeBy(due)
		}
	}
	m.boundResync(now, p)
	if alive == p.alive {
		return
	}
	p.resyncing = p.resyncing || !alive
	m.mesh.resyncs = m.mesh.resyncs || p.resyncing
	p.alive, m.hurry = alive, true
	m.touch()
	switch {
	case alive && p.known:
		m.log.Info("node is heard again", "node", p.node)
	case alive:
	case p.said.Leaving:
		m.log.Info("node has left", "node", p.node)
	default:
		m.stats.Deaths++
		told := []any{"node", p.node, "unheardBy", p.reporters()}
		if p.watched && p.heard {
			told = append(told, "silence", now.Sub(p.at).Round(time.Millisecond).String())
		}
		m.log.Warn("node fell silent and counts as dead", told...)
	}
}

// boundResync ends the resync of a node after a while at the latest.
func (m *machine) boundResync(now time.Time, p *peer) {
	switch {
	case !p.resyncing || !p.there.found:
		p.resyncSince = time.Time{}
	case p.resyncSince.IsZero():
		p.resyncSince = now
		m.judgeBy(now.Add(postponements * m.interval))
	case !now.Before(p.resyncSince.Add(postponements * m.interval)):
		p.resyncing = false
		m.reconsider()
	default:
		m.judgeBy(p.resyncSince.Add(postponements * m.interval))
	}
}

// endResyncs counts again what nodes say that are resyncing: our records are those of a
// peer, and no other has come for some intervals.
func (m *machine) endResyncs(now time.Time) {
	if !m.mesh.resyncs || now.Sub(m.mesh.installedAt) < 2*m.interval {
		return
	}
	m.mesh.resyncs = false
	for _, p := range m.mesh.order {
		switch {
		case !p.resyncing:
		case p.there.found:
			p.resyncing = false
			m.reconsider()
		default:
			m.mesh.resyncs = true
		}
	}
}

// reporters are some of the watchers that call a node silent; none: no watcher is left.
func (v *vertex) reporters() []string {
	var names []string
	for _, e := range v.reports {
		if e.State == linkSilent {
			names = append(names, e.other.node)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxLinks)]
}

// findDeaf finds the nodes that are alive and take this one for dead, and which others those take for
// dead. Mostly there are none. One counts as deaf once it was so for an interval: when nodes meet again that were
// parted, what the one knows of the other is of before.
func (m *machine) findDeaf(now time.Time) {
	self := m.mesh.self
	if !self.dead {
		queue := append(m.mesh.queue[:0], self)
		self.back.found = true
		for i := 0; i < len(queue); i++ {
			to := queue[i]
			for _, e := range to.reports {
				if p := e.other; !p.back.found && !p.dead && e.carries(to) {
					p.back = path{found: true, level: to.back.level + 1, via: to}
					queue = append(queue, p)
				}
			}
		}
		m.mesh.queue = queue
	}
	var found []*peer // of those that are reached from each other all are deaf
	for _, p := range m.mesh.order {
		before := p.deafTo != nil
		p.deafTo = nil
		if p != self && p.there.found && !p.dead && p.record != nil && !p.back.found {
			p.deafTo = m.deafTo(p, found)
			found = append(found, p)
		}
		if p.deafTo != nil && !before {
			p.deafSince = now
		}
		m.judgeDeaf(now, p)
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

// judgeDeaf tells in the view whether a node does not hear this one.
func (m *machine) judgeDeaf(now time.Time, p *peer) {
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

// deafTo are the nodes that one takes for dead which takes us for dead; nil if it hears no node,
// so that it is the fault of its ears. found are those for which it was answered before.
func (m *machine) deafTo(p *peer, found []*peer) map[string]bool {
	hears := map[*peer]bool{p: true}
	queue := []*peer{p}
	for i := 0; i < len(queue); i++ {
		for _, e := range queue[i].adjacencies {
			to := e.other
			if hears[to] || to.dead || to == m.mesh.self || !e.carries(to) {
				continue
			}
			if slices.Contains(found, to) && to.deafTo != nil && !to.deafTo[p.node] {
				return to.deafTo // each hears the other
			}
			hears[to] = true
			queue = append(queue, to)
		}
	}
	if len(queue) < 2 && !p.record.Sound {
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
