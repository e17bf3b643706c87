package hello

import (
	"slices"
	"time"
)

const (
	// mindFor is for how long it is remembered that hellos were late.
	mindFor = 3 * time.Minute
	// stall is within what time hellos were late once: what keeps a process back comes in pieces.
	stall = time.Second
	// safetyFactor is how much more is waited for than what was late more than once, or lost: what
	// comes next may be later still.
	safetyFactor = 4
	// most bounds how many intervals are waited for, where no more were configured. What
	// was later than that teaches nothing: the process was stopped.
	most = 20
)

// lateness is how late the hellos of one node were in the last minutes.
type lateness struct {
	seen []late // one of each stall, the newest first, without those that two later ones outdo
}

// late is the worst of a stall.
type late struct {
	by    time.Duration
	since time.Time // when the stall began
	until time.Time // when it is forgotten
}

func (l *lateness) note(now time.Time, by time.Duration) {
	by = by.Truncate(time.Millisecond)
	if by <= 0 {
		return
	}
	newest := late{by, now, now.Add(mindFor)}
	if len(l.seen) > 0 && now.Before(l.seen[0].since.Add(stall)) {
		if by < l.seen[0].by {
			return
		}
		newest.since = l.seen[0].since
		l.seen = slices.Delete(l.seen, 0, 1)
	}
	once, again := by, time.Duration(0)
	l.seen = slices.DeleteFunc(l.seen, func(o late) bool {
		if o.by <= again || !now.Before(o.until) {
			return true
		}
		once, again = worse(once, again, o.by)
		return false
	})
	l.seen = slices.Insert(l.seen, 0, newest)
}

// worst is by how much the latest hello was late, and by how much one was late again, in another
// stall; 0: all were in time.
func (l *lateness) worst(now time.Time) (once, again time.Duration) {
	for _, o := range l.seen {
		if now.Before(o.until) {
			once, again = worse(once, again, o.by)
		}
	}
	return once, again
}

// worse takes one more in among the two worst.
func worse(once, again, by time.Duration) (time.Duration, time.Duration) {
	return max(once, by), max(again, min(once, by))
}

// intervals says how many intervals of silence are a death of a node whose hellos were that late once,
// where so much more is waited for than for the multiplier anyway.
func intervals(multiplier int, interval, once, more time.Duration) int {
	// The silence that the multiplier is for covers one stall, if a little of it is left.
	more = max(more, once+interval/4-time.Duration(multiplier-1)*interval, 0)
	n := int((more + interval - 1) / interval)
	return min(multiplier+n, max(multiplier, most))
}

// localHealth is what a node knows of its own hellos.
type localHealth struct {
	lateness

	left      time.Time     // when the last round had left; zero: none has
	promised  time.Duration // how long after that the next one is due, at most
	requested int           // so many intervals the others are asked to wait
}

// measure notes how late the round is that leaves now.
func (p *localHealth) measure(now time.Time) {
	if by := now.Sub(p.left) - p.promised; !p.left.IsZero() && by < most*p.promised {
		p.note(now, by)
	}
}

// adaptRequest adjusts what the others are asked for to how late our own hellos leave.
func (m *machine) adaptRequest(now time.Time) {
	once, again := m.own.worst(now)
	// The silence that is waited for anyway covers that much.
	covered := time.Duration(m.multiplier-1) * m.interval
	requested := intervals(m.multiplier, m.interval, once, safetyFactor*again-covered)
	if requested == m.own.requested {
		return
	}
	before := m.own.requested
	m.own.requested = requested
	switch {
	case before == 0: // a start
	case requested > before:
		m.log.Info("hellos of this node leave late; other nodes are asked to wait longer before they take it for dead",
			"late", once.String(), "detectionTime", m.requestedTimeout().String())
	default:
		m.log.Info("hellos of this node leave sooner again", "late", once.String(), "detectionTime", m.requestedTimeout().String())
	}
}

// requestedTimeout is the silence after which others shall take this node for dead.
func (m *machine) requestedTimeout() time.Duration {
	return time.Duration(m.own.requested) * m.interval
}

// adaptTimeout adjusts after what silence a node counts as dead: after what it asks for, or more
// if its hellos were missing, or if ours are late. The last may mean that this machine is
// too busy to hear others in time.
func (m *machine) adaptTimeout(now time.Time, p *peer) {
	interval := m.between(now, p)
	once, again := p.late.worst(now)
	lost, _ := p.lost.worst(now)
	// One lost hello is what the multiplier is for.
	tolerated := interval + interval/4
	missing := intervals(m.multiplier, interval, once, safetyFactor*(max(again, lost)-tolerated))
	p.least = max(min(p.requested, MaxHold), time.Duration(m.own.requested)*interval)
	p.detect = max(p.least, time.Duration(missing)*interval)
	adapted := missing > m.multiplier
	if adapted == p.adapted {
		return
	}
	p.adapted = adapted
	if adapted {
		m.log.Info("hellos of a node are missing; it is waited longer before the node is taken for dead",
			"node", p.node, "missing", max(once, lost).String(), "detectionTime", p.detect.String())
		return
	}
	m.log.Info("hellos of the node come in time again", "node", p.node, "detectionTime", p.detect.String())
}

// between is the time between the hellos of a node.
func (m *machine) between(now time.Time, p *peer) time.Duration {
	if !p.isNear(now) {
		return m.mesh.slow
	}
	return m.interval
}

// observe notes how long nothing was heard of a node from which a hello comes now, and whether others were
// lost before it. A node that was away for much longer than it was waited for was really away.
func (m *machine) observe(now time.Time, p *peer, h hello) {
	silence := now.Sub(p.at)
	if !p.heard || p.incarnation != h.Incarnation || !p.held.IsZero() || silence >= 2*p.detect {
		return
	}
	missing := &p.late
	if h.Seq > p.seq+1 {
		missing = &p.lost
	}
	missing.note(now, silence-m.between(now, p))
}
