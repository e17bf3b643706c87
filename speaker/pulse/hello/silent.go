package hello

import (
	"crypto/sha256"
	"slices"
	"time"
)

// hush keeps who counts as silent, whom only others hear, and who was never heard, until the view changes,
// since each hello says so.
type hush struct {
	silent, overheard, unheard []nodeID
	known                      bool
}

// touch notes that the view has changed.
func (m *machine) touch() { m.dirty, m.hush.known = true, false }

// nodeID stands for the name of a node, to be short on the wire.
type nodeID [4]byte

func idOf(node string) nodeID {
	digest := sha256.Sum256([]byte(node))
	return nodeID(digest[:])
}

// hushed are the nodes that count as silent, and in a full mesh those that only others hear and those that were
// never heard, sorted, of which so many as fit are told. A node whose hellos do not get here would else never
// know that another one took over from it, others not of whom they are to testify, and one that begins not
// whose word counts; see overhear and presume.
func (m *machine) hushed() hush {
	if m.hush.known {
		return m.hush
	}
	silent := m.idsOf(maxSilent, func(p *peer) bool { return p.isSilent() && !p.overheard || p.calledSilent })
	overheard := m.idsOf(max(0, maxHushed-len(silent)), func(p *peer) bool { return p.overheard })
	unheard := m.idsOf(max(0, maxHushed-len(silent)-len(overheard)), func(p *peer) bool { return !m.mesh.on && !p.isTold() && !p.calledSilent })
	m.hush = hush{silent, overheard, unheard, true}
	return m.hush
}

// idsOf are those of the nodes that are chosen, sorted, and not more than so many.
func (m *machine) idsOf(most int, chosen func(*peer) bool) []nodeID {
	var ids []nodeID
	for _, p := range m.peers {
		if chosen(p) {
			ids = append(ids, p.id)
		}
	}
	slices.SortFunc(ids, func(a, b nodeID) int { return slices.Compare(a[:], b[:]) })
	return ids[:min(len(ids), most)]
}

// sound tells whether some node is heard, so that the silence of others is theirs.
func (m *machine) sound() bool {
	for _, p := range m.peers {
		if p.isTold() && p.alive {
			return true
		}
	}
	return false
}

// isSilent: it was heard and is not, and it did not say that it leaves.
func (p *peer) isSilent() bool { return p.isTold() && !p.alive && !p.said.leaving }

// presume tells whether a node that was never heard counts as alive: while Kubernetes says that it is
// ready, unless some node calls it silent, and none hears it. It died before this node began then, and
// Kubernetes may say for long that it is ready. Who counts as silent for that reason is called so
// in turn, so that those who begin later know it, also when nobody is left who ever heard it. Where
// nobody can tell, it is as it was. In a sparse mesh records tell.
func (m *machine) presume(p *peer) (alive bool) {
	was := p.calledSilent
	p.calledSilent = !m.mesh.on && !p.isTold() && p.ready && m.isCalledSilent(p)
	if p.calledSilent != was {
		m.hush.known = false
	}
	return p.ready && !p.calledSilent
}

func (m *machine) isCalledSilent(p *peer) bool {
	called := false
	for _, o := range m.peers {
		switch {
		case o == p || !o.heard || !o.alive || !o.said.sound || slices.Contains(o.said.unheard, p.id):
		case slices.Contains(o.said.silent, p.id):
			called = true
		default:
			return false // it is heard there
		}
	}
	return called || p.calledSilent
}

// deafAfter is for how long a node must have called us silent to count as deaf: in less than
// that it may well hear us again, if what it missed was lost by chance. One more interval
// is what its word may take to get here. Where a third node is to tell it that we live, that has
// time to get there; only a node of an older release does not mind.
func (m *machine) deafAfter(p *peer) time.Duration {
	after := m.detect - m.interval
	if m.hasWitness(p) {
		after += m.detect
	}
	return after
}

// listens notes whether a node that is heard now hears us, as it says.
func (m *machine) listens(now time.Time, p *peer) {
	switch {
	case !p.said.sound, !slices.Contains(p.said.silent, m.id):
		p.deafSince = time.Time{}
	case p.deafSince.IsZero():
		p.deafSince = now
	}
	m.judgeEar(now, p)
}

// judgeEar makes true what the passing of time does to a node that may be deaf.
func (m *machine) judgeEar(now time.Time, p *peer) {
	deaf := p.alive && !p.deafSince.IsZero() && !now.Before(p.deafSince.Add(m.deafAfter(p)))
	if deaf == p.deaf {
		return
	}
	p.deaf = deaf
	m.touch()
	if deaf {
		m.log.Warn("a node does not hear this one; it takes over what would be its own without this one", "node", p.node)
		return
	}
	m.log.Info("the node hears this one again, or is silent", "node", p.node)
}

// deaf tells in a view who does not hear this node, and whom those hear.
func (m *machine) deaf(v View) {
	for node, p := range m.peers {
		if p.deafTo != nil && p.alive {
			member := v.Alive[node]
			member.Deaf, member.Silent = true, p.deafTo
			v.Alive[node] = member
		}
		if !p.deaf || !p.alive {
			continue
		}
		member := v.Alive[node]
		member.Deaf, member.Silent = true, map[string]bool{}
		for other, o := range m.peers {
			if slices.Contains(p.said.silent, o.id) {
				member.Silent[other] = true
			}
		}
		member.Silent[m.node] = true
		v.Alive[node] = member
	}
}

// hurries is when a round leaves before its time, to tell who is silent and who is heard
// again: not before a part of an interval has passed since the last, so that the death of
// many costs no more than some rounds.
func (m *machine) hurries() time.Time { return m.own.left.Add(m.interval / 4) }

// isDue tells whether a round is to leave that was due then.
func (m *machine) isDue(now, due time.Time) bool {
	claims := m.claimsDue()
	return !now.Before(due) || m.hurry && !now.Before(m.hurries()) || !claims.IsZero() && !now.Before(claims)
}

// IsQuiet tells whether nothing was heard of a node for the configured detection time, though it be
// waited for longer. One that was never heard, or whose silence this node does not watch, is not quiet.
func (m *Mesh) IsQuiet(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.state.peers[node]
	return p != nil && p.heard && (!m.state.mesh.on || p.watched) && time.Since(p.at) >= m.state.detect
}
