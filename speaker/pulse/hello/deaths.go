package hello

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// check makes true what the passing of time makes true: deaths and settling.
func (m *machine) check(now time.Time) {
	m.resume(now)
	m.adaptRequest(now)
	m.takeHeldWords(now)
	m.pruneActive(now)

	m.keys.expire(now, m.isBehind())
	m.settle(now)
	var unheard []string
	for _, p := range m.active {
		m.adaptTimeout(now, p)
		m.expireClaims(now, p)
		if p.heard {
			m.listenTo(now, p)
		}
		m.tellApart(now, p)
		switch {
		case p.record == nil && p.heard && p.alive && !p.aliveAt(now):
			m.markDead(now, p)
		case m.settled && !p.isTold() && p.ready && !p.warned && !now.Before(p.since.Add(m.unheardAfter())):
			p.warned = true
			unheard = append(unheard, p.node)
		}
	}
	m.findDifferences(now)
	m.consider(now)
	if len(unheard) > 0 {
		slices.Sort(unheard)
		m.log.Warn("nodes were never heard though Kubernetes says that they are ready; "+
			"they count as alive for as long as it says so: "+
			"allow the hello port (UDP) between all nodes, in both directions", "nodes", unheard)
	}
}

// settle: silence means something once it was listened to for a detection time, and
// what others say was heard, if anything is.
func (m *machine) settle(now time.Time) {
	switch {
	case m.settled || m.settlesAt.IsZero() || now.Before(m.settlesAt):
	case !m.isSynced() && m.mesh.waited < postponements:
		m.mesh.waited++
		m.settlesAt = now.Add(m.interval)
	default:
		m.settled = true
		m.touch()
	}
}

// unheardAfter is for how long a node may be unheard that is ready, before the log has it: meanwhile it may
// be found dead, and not behind a firewall.
func (m *machine) unheardAfter() time.Duration {
	const found = 2 * time.Second
	return max(m.detect, time.Duration(m.multiplier)*m.mesh.slow, found)
}

// tellApart has the log say that frames are lost between this node and another one, which others hear: once that has lasted
// for so long that the other one would count as dead if it were.
func (m *machine) tellApart(now time.Time, p *peer) {
	switch {
	case p.alive && p.isApart() && !p.apartTold && now.Sub(p.at) >= 2*p.detect:
		p.apartTold = true
		m.log.Warn("node is not heard here, and others hear it: it counts as alive; look for what loses frames between the two", "node", p.node)
	case p.apartTold && p.link == linkHeard:
		p.apartTold = false
		m.log.Info("node is heard here again", "node", p.node)
	case !p.alive || !p.watched:
		p.apartTold = false
	}
}

func (m *machine) markDead(now time.Time, p *peer) {
	silence := now.Sub(p.at).Round(time.Millisecond).String()
	if p.said.Leaving {
		m.log.Info("node has left", "node", p.node, "silence", silence)
	} else {
		m.stats.Deaths++
		m.log.Warn("node fell silent and counts as dead", "node", p.node, "silence", silence)
	}
	p.alive, p.proven, p.held = false, false, time.Time{}
	m.hurry = true
	m.touch()
}

// excuse moves all that waits for silence by a pause.
func (m *machine) excuse(now time.Time, pause time.Duration) {
	later := func(t time.Time) time.Time {
		if t = t.Add(pause); t.After(now) {
			return now
		}
		return t
	}
	for _, p := range m.peers {
		p.at = later(p.at)
		if !p.held.IsZero() {
			p.held = p.held.Add(pause)
		}
	}
	if !m.settled && !m.settlesAt.IsZero() {
		m.settlesAt = m.settlesAt.Add(pause)
	}
	level := slog.LevelDebug // on a busy machine nothing to worry about, until others take it for death
	if pause > m.detect/2 {
		level = slog.LevelWarn
	}
	m.log.Log(context.Background(), level, "this process stood still; the silence of other nodes meanwhile does not count",
		"pause", pause.Round(time.Millisecond).String())
}
