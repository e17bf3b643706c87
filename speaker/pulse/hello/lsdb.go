package hello

import (
	"slices"
	"time"
)

// What a node says to all is its record: what follows takes over those of others, and
// keeps our own true.

// record takes over what a node says to all; nil: it is not known any more.
func (m *machine) record(p *peer, said *hello) {
	m.mesh.toggle(p)
	p.record = said
	m.mesh.toggle(p)
	m.mesh.told = append(m.mesh.told[:0], p.adjacencies...)
	m.resolve(p)
	m.mesh.installed = append(m.mesh.installed, p)
	m.mesh.changed = true
	if said == nil || p.resyncing || m.mesh.unheard || p.proven && !p.there.found {
		m.mesh.whole = true
	}
	m.compares(p, m.mesh.told)
}

// toggle takes the record of a node into the digests, or out of them.
func (t *topology) toggle(p *peer) {
	if p.record == nil {
		return
	}
	digest := versionOf(*p.record).digest(p.long)
	t.digest ^= digest
	t.digests[p.long.bucket()] ^= uint32(digest ^ digest>>32)
}

// resolve finds the nodes of a record.
func (m *machine) resolve(p *peer) {
	p.adjacencies = p.adjacencies[:0]
	if p.record == nil {
		return
	}
	for _, l := range p.record.Links {
		if to := m.mesh.byID[l.To]; to != nil && to != p {
			p.adjacencies = append(p.adjacencies, adjacency{l, to})
		}
	}
}

// renew makes our record say what is true. A change is news.
func (m *machine) renew(now time.Time) {
	m.mesh.heard = now
	links := m.links(now)
	self := m.mesh.self
	if !m.recordIsStale(now) && slices.Equal(self.record.Links, links) {
		return
	}
	m.mesh.version++
	r := &hello{Node: m.node, Incarnation: m.incarnation, Seq: m.mesh.version, said: m.current(now), Links: links, Epoch: m.epoch}
	if m.isHeld() {
		r.Hold = max(m.partsAt.Sub(now), time.Millisecond)
	}
	m.record(self, r)
	m.mesh.news[self] = true
}

// recordIsStale tells whether our record says something else than is true.
func (m *machine) recordIsStale(now time.Time) bool {
	r := m.mesh.self.record
	return r == nil || r.Seq != m.mesh.version || !r.equal(m.current(now)) || (r.Hold > 0) != m.isHeld()
}

func (m *machine) isHeld() bool { return m.parting && m.mesh.heard.Before(m.partsAt) }

// links are what this node says of those that it watches, in order.
func (m *machine) links(now time.Time) []link {
	var all []link
	for _, p := range m.active {
		if !p.watched {
			continue
		}
		l := link{To: p.long, State: p.link}
		if until := m.awaited(p); now.Before(until) {
			m.judgeBy(until)
		} else if !until.IsZero() {
			if !p.dead {
				continue
			}
			l.State = linkSilent // as others say: a node that begins later is told when those are gone
		}
		switch {
		case p.link == linkSilent:
			l.Incarnation, l.Seq = uint32(p.incarnation), uint32(p.seq)
		case p.link == linkHeard && p.refutation != nil:
			l.State, l.Incarnation, l.Seq = linkRefuted, p.refutation.Incarnation, p.refutation.Seq
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b link) int { return a.To.compare(b.To) })
	return all[:min(len(all), maxLinks)]
}

// awaited is until when a node that was never heard since it is watched may still be about to
// say hello; zero: it is heard, or was. One of which there is no record may be behind a closed
// port, and is awaited while Kubernetes says that it is there. Of another one a node has
// heard. It may have died since, or not know of us: then we have nothing to say of it.
func (m *machine) awaited(p *peer) time.Time {
	if p.link != linkPending || p.record == nil {
		return time.Time{}
	}
	if p.isReported() {
		return p.began.Add(m.detect) // as with nodes that were heard
	}
	return p.began.Add(2 * m.detect)
}

// refute makes this node say that it hears one which another calls silent.
func (m *machine) refute(p *peer) {
	if !p.watched || p.link != linkHeard {
		p.refutation = nil
		return
	}
	reported := false
	for _, e := range p.reports {
		if e.State != linkSilent {
			continue
		}
		reported = true
		newer := func(incarnation, seq uint32) bool { return incarnation != e.Incarnation || int32(seq-e.Seq) > 0 }
		if p.refutation != nil && newer(p.refutation.Incarnation, p.refutation.Seq) {
			continue
		}
		if newer(uint32(p.incarnation), uint32(p.seq)) {
			p.refutation = &link{Incarnation: uint32(p.incarnation), Seq: uint32(p.seq)}
		}
	}
	if !reported {
		p.refutation = nil
	}
}
