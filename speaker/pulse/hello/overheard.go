package hello

import (
	"bytes"
	"slices"
	"time"
)

// In a full mesh each node judges by its own ears. Where frames are lost between two nodes alone, each
// would take over from the other, though all the others hear both. So nodes testify: who hears a node that another
// one does not says so, and the other one goes by that. Where most do not hear a node, none
// testifies, and it is dead. In a sparse mesh records do the same; see witness.go.

// testimony is what a node says of another one that some node does not hear: that it does hear it, and
// which hello of it is the newest. That alone proves nothing: of one that has died, others say so
// until they notice. Only another testimony, of another hello, shows that it has lived meanwhile.
type testimony struct {
	of  nodeID
	seq uint32 // the lower half
}

// account is what one node has testified of a silent one.
type account struct {
	seq uint32
	at  time.Time // when it was of another hello than before; zero: it was not yet
}

// testimonies are those of this node, sorted.
func (m *machine) testimonies() []testimony {
	if m.mesh.on {
		return nil
	}
	var missed []nodeID
	for _, p := range m.peers {
		if p.heard && p.alive {
			missed = append(append(missed, p.said.silent...), p.said.overheard...)
		}
	}
	var all []testimony
	for _, p := range m.peers {
		if p.heard && p.alive && p.said.serving && !p.said.leaving && slices.Contains(missed, p.id) {
			all = append(all, testimony{p.id, uint32(p.seq)})
		}
	}
	slices.SortFunc(all, func(a, b testimony) int { return bytes.Compare(a.of[:], b.of[:]) })
	return all
}

// misses tells whether a node says that it does not hear another one.
func (s said) misses(id nodeID) bool {
	return slices.Contains(s.silent, id) || slices.Contains(s.overheard, id) || slices.Contains(s.unheard, id)
}

// hasWitness tells whether there is a node that hears us, and that another one hears which does not hear us.
func (m *machine) hasWitness(deaf *peer) bool {
	if m.mesh.on {
		return false
	}
	for _, p := range m.peers {
		if p != deaf && p.heard && p.alive && !p.said.misses(m.id) && !deaf.said.misses(p.id) {
			return true
		}
	}
	return false
}

// contradict has a testimony leave soon when a node begins to call another one silent that is heard here.
func (m *machine) contradict(by *peer, silent []nodeID) {
	if m.mesh.on || slices.Equal(silent, by.said.silent) {
		return
	}
	for _, p := range m.peers {
		if p.heard && p.alive && slices.Contains(silent, p.id) && !by.said.misses(p.id) {
			m.hurry = true
		}
	}
}

// overhear takes in what a node testifies of those that are silent here.
func (m *machine) overhear(now time.Time, by *peer, all []testimony) {
	for _, t := range all {
		for _, p := range m.peers {
			if p.id != t.of || p == by || !p.isSilent() {
				continue
			}
			if before, known := p.accounts[by]; !known {
				p.account(by, account{seq: t.seq})
			} else if before.seq != t.seq {
				p.account(by, account{seq: t.seq, at: now})
			}
			m.attest(now, p)
		}
	}
}

func (p *peer) account(by *peer, a account) {
	if p.accounts == nil {
		p.accounts = map[*peer]account{}
	}
	p.accounts[by] = a
}

// attestedUntil is for how long a silent node counts as alive by what others testify, if nothing more comes:
// for as long as their own silence would be waited for.
func (p *peer) attestedUntil() (until time.Time) {
	for by, a := range p.accounts {
		if by.alive && !a.at.IsZero() {
			until = later(until, a.at.Add(by.detect))
		}
	}
	return until
}

// attest makes true what testimonies, and the passing of time, do to a node.
func (m *machine) attest(now time.Time, p *peer) {
	silent := !m.mesh.on && p.isSilent()
	if !silent {
		p.accounts = nil
	}
	overheard := silent && now.Before(p.attestedUntil())
	if overheard == p.overheard {
		return
	}
	p.overheard, m.hurry = overheard, true
	m.touch()
	switch {
	case overheard:
		m.log.Warn("node is not heard here, and others hear it: it counts as alive; look for what loses frames between the two", "node", p.node)
	case silent:
		m.log.Warn("node is heard by no other node either, and counts as dead", "node", p.node)
	}
}
