package hello

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

const (
	// reverseHold is for how long a node goes on saying hello to one that watches it, after that
	// one said so last.
	reverseHold = time.Second
	// parting is for how long a node that is wanted no more gets hellos as before.
	parting = 10 * time.Second
	// maxFormer bounds how many such nodes do; the first come first.
	maxFormer = 2 * maxLinks
	// spare is for how long a node counts as alive that was heard and is
	// heard no more, because it knows our record and we do not know its own yet.
	spare = time.Second
	// soon is among how many nodes it is considered at once that one is alive again: what nodes that meet again do until
	// each knows all others, they do alone.
	soon = 50
	// each bounds what hellos to the nodes cost that are not watched: one of them a millisecond.
	each = time.Millisecond
	// postponements are how many intervals settling waits for the records of others at most.
	postponements = 20
)

// topology is what a machine knows of the whole mesh.
//
// Each node watches some others, in small clusters all: see ring. It says to all, in a record, what it says
// in hellos, and which of those it hears. Records are passed on by gossip, and from
// the records of all each node finds which are alive: see judge.
//
// Hellos go to the dead as well, and to nodes of which there is no record, at a slower pace in large clusters.
type topology struct {
	slow time.Duration // between hellos to those that are not watched

	self    *peer
	order   []*peer // all, ourselves included, by name
	byID    map[longID]*peer
	rings   [rings]ring
	version uint64 // of our record

	changed bool      // judge has something to do
	judgeAt time.Time // and then, at the latest; zero: never
	heard   time.Time // the time for which reach is asked

	considered  time.Time // when judge ran last
	installedAt time.Time // when a record was new last
	slowDue     time.Time
	round       bool    // a round of hellos leaves now, and those to nodes that are not watched may be due
	unheard     bool    // there are nodes that do not hear us
	whole       bool    // judge has to look at all records
	installed   []*peer // whose record is new, for judge
	queue       []*peer // kept for its room, as is told
	told        []adjacency
	resyncs     bool // some may be resyncing

	buckets [buckets][]*peer // the nodes by the first byte of their IDs, by name
	digests [buckets]uint32  // of the records in each
	digest  uint64           // of all records
	former  []former
	news    map[*peer]bool
	newsAt  time.Time      // when news left last
	pending map[*peer]bool // to which something is to be sent alone
	waited  int            // how often settling was postponed
}

// former is a node that was near and is wanted no more. While others do not know that yet, it must
// not be one of those that call this node silent.
type former struct {
	addrs []netip.Addr
	until time.Time
}

// ties are what this node has to do for another one.
type ties struct {
	watched      bool      // we watch it
	began        time.Time // since when we do
	link         linkState
	refutation   *link     // what we say of it to watchers that call it silent
	reverseUntil time.Time // until then it gets our hellos because it watches us
	spared       time.Time // alive until then at least

	records  map[*peer]bool // to send it
	indexes  uint32         // of buckets, to send it
	differs  time.Time      // since when its records are not ours; zero: they are
	synced   bool           // its records were ours once
	repairAt time.Time      // not before then something is done about it
	repairIn time.Duration  // and so much later again
}

// organize follows the membership.
func (m *machine) organize() {
	m.mesh.slow = max(m.interval, time.Duration(len(m.peers))*each)
	if m.isOrganized() {
		return
	}
	m.mesh.byID = map[longID]*peer{m.mesh.self.long: m.mesh.self}
	m.mesh.order = []*peer{m.mesh.self}
	for _, p := range m.peers {
		m.mesh.byID[p.long] = p
		m.mesh.order = append(m.mesh.order, p)
	}
	slices.SortFunc(m.mesh.order, func(a, b *peer) int { return cmp.Compare(a.node, b.node) })
	m.mesh.rings = ringsOf(m.mesh.self, m.peers)
	gone := func(p *peer, _ bool) bool { return m.mesh.byID[p.long] != p }
	maps.DeleteFunc(m.mesh.news, gone)
	maps.DeleteFunc(m.mesh.pending, gone)
	m.mesh.buckets, m.mesh.digests, m.mesh.digest = [buckets][]*peer{}, [buckets]uint32{}, 0
	for _, p := range m.mesh.order {
		m.resolve(p)
		maps.DeleteFunc(p.records, gone)
		bucket := p.long.bucket()
		m.mesh.buckets[bucket] = append(m.mesh.buckets[bucket], p)
		m.mesh.toggle(p)
	}
	m.mesh.installed = m.mesh.installed[:0]
	m.reconsider()
}

// isOrganized tells whether the nodes are those of the rings.
func (m *machine) isOrganized() bool {
	if len(m.mesh.order) != len(m.peers)+1 {
		return false
	}
	for _, p := range m.mesh.order {
		if p != m.mesh.self && m.peers[p.node] != p {
			return false
		}
	}
	return true
}

// reconsider has judge look at all nodes, after a change of something else than records.
func (m *machine) reconsider() { m.mesh.changed, m.mesh.whole = true, true }

// isNear tells whether a peer gets all our hellos and the gossip.
func (p *peer) isNear(now time.Time) bool { return p.watched || now.Before(p.reverseUntil) }

// near are those that are told all.
func (m *machine) near(now time.Time) []*peer {
	var found []*peer
	for _, p := range m.active {
		if p.isNear(now) {
			found = append(found, p)
		}
	}
	return found
}

// release notes a node that is wanted no more.
func (m *machine) release(now time.Time, p *peer) {
	if p.isNear(now) && len(m.mesh.former) < maxFormer {
		m.mesh.former = append(m.mesh.former, former{p.addrs, now.Add(parting)})
	}
}

// nearHellos gives the hellos of a round.
func (m *machine) nearHellos(now time.Time) outgoing {
	m.mesh.round = true
	near := m.near(now)
	to := addressesOf(near)
	m.mesh.former = slices.DeleteFunc(m.mesh.former, func(f former) bool { return !now.Before(f.until) })
	for _, f := range m.mesh.former {
		to = append(to, f.addrs...)
	}
	return outgoing{to: to, datagrams: m.sealed(m.nearHello(now, near))}
}

// nearHello is what is said to those that are near.
func (m *machine) nearHello(now time.Time, near []*peer) hello {
	h := m.word(now, 0, 0)
	h.Watches, h.TableDigest = true, m.tableDigest
	for _, p := range near {
		if !p.watched && len(h.Reverse) < maxReverse {
			h.Reverse = append(h.Reverse, p.id)
		}
		if !p.differs.IsZero() {
			h.Buckets = &m.mesh.digests
		}
		if p.difference != nil {
			h.Table = &m.table
		}
	}
	if h.Table != nil && h.left() < 0 {
		h.Table = nil
	}
	return m.claimed(h)
}

// rest gives what is to be sent beside the hellos of a round: those to nodes that are not near
// and not known to be alive by a record, at their pace, claims, and gossip.
func (m *machine) rest(now time.Time) (out []outgoing) {
	if len(m.keys) == 0 {
		return nil
	}
	if due := m.claimsDue(); !due.IsZero() && !now.Before(due) {
		out = append(out, m.claiming(now))
	}
	if m.mesh.round && (!now.Before(m.mesh.slowDue) || m.parting) {
		m.mesh.slowDue = now.Add(m.mesh.slow - m.interval)
		var far []*peer
		for _, p := range m.mesh.order {
			if p != m.mesh.self && !p.isNear(now) && (p.record == nil || !p.alive) {
				far = append(far, p)
			}
		}
		if len(far) > 0 {
			h := m.word(now, 0, 0)
			h.Requested = time.Duration(m.own.requested) * m.mesh.slow
			out = append(out, outgoing{datagrams: m.sealed(m.claimed(h)), to: addressesOf(far)})
		}
	}
	m.mesh.round = false
	return append(out, m.gossips(now)...)
}

// nextRest is when rest or judge have something to do.
func (m *machine) nextRest(sooner func(time.Time)) {
	if due := m.claimsDue(); !due.IsZero() && len(m.keys) > 0 {
		sooner(due)
	}
	if m.mesh.changed {
		sooner(m.considersAt())
	}
	if !m.mesh.judgeAt.IsZero() {
		sooner(m.mesh.judgeAt)
	}
	if t, pending := m.gossipsAt(); pending {
		sooner(t)
	}
	for _, p := range m.active {
		p.nextDifference(m.checkedAt, sooner)
		if p.watched && p.link == linkHeard {
			sooner(p.until())
		}
		if p.record != nil && m.checkedAt.Before(p.held) {
			sooner(p.held)
		}
	}
}

// isPressing tells whether there is something to do before next said that there is.
func (m *machine) isPressing() bool {
	t, pending := m.gossipsAt()
	return m.hurry && m.hurries().Before(m.planned) || pending && t.Before(m.planned) ||
		m.mesh.changed && m.considersAt().Before(m.planned)
}

// considersAt is when what has changed is considered: at once after a quiet time, and else
// with what else comes within a short one.
func (m *machine) considersAt() time.Time { return m.mesh.considered.Add(m.newsGap()) }

// meet takes in what a hello says of the mesh. It was believed.
func (m *machine) meet(now time.Time, p *peer, h hello) {
	if p.record == nil && !p.watched {
		p.spared = now.Add(spare)
	}
	if p.watched && p.link != linkHeard {
		p.link, p.refutation, m.mesh.changed = linkHeard, nil, true
		m.touch()
	}
	if p.record != nil && (!p.alive || !p.there.found && !p.dead) {
		m.reconsider() // it lives, watched or not
		if len(m.mesh.order) <= soon {
			m.mesh.considered = time.Time{} // at once
		}
		if h.recordVersion().compare(versionOf(*p.record)) > 0 {
			p.resyncing, m.mesh.resyncs = true, true // what we have of it is of before
		}
	}
	if h.Watches && !slices.Contains(h.Reverse, m.id) {
		p.reverseUntil = now.Add(reverseHold)
	}
	if p.resyncing && p.record != nil && h.recordVersion() == versionOf(*p.record) {
		p.resyncing = false
		m.reconsider()
	}
	m.compare(now, p, h)
	m.compareTable(now, p, h)
}

// listenTo notes that a node which this one watches is not heard any more.
func (m *machine) listenTo(now time.Time, p *peer) {
	if p.record == nil && !p.watched || now.Before(p.until()) {
		return
	}
	if p.record != nil && p.proven {
		p.proven = false // it has to answer a nonce again
		m.reconsider()
	}
	if p.watched && p.link == linkHeard {
		p.link, p.refutation, m.mesh.changed = linkSilent, nil, true
		m.touch()
		m.log.Debug("a watched node is not heard any more", "node", p.node, "silence", now.Sub(p.at).Round(time.Millisecond).String())
	}
}

// consider decides which nodes are alive and what to say of those that are watched, until neither
// changes the other.
func (m *machine) consider(now time.Time) {
	m.mesh.heard = now
	due := m.mesh.changed && !now.Before(m.considersAt()) || !m.mesh.judgeAt.IsZero() && !now.Before(m.mesh.judgeAt)
	if !due && !m.recordIsStale(now) {
		return
	}
	m.mesh.considered = now
	if !m.mesh.judgeAt.IsZero() && !now.Before(m.mesh.judgeAt) {
		m.mesh.whole = true
	}
	for range 4 {
		m.mesh.changed = false
		if m.mesh.whole { // which finds anew what is to be judged when
			m.mesh.judgeAt = time.Time{}
		}
		m.choose(now)
		m.renew(now)
		m.judge(now)
		for _, p := range m.active {
			m.refute(p)
		}
		if m.renew(now); !m.mesh.changed {
			return
		}
	}
	m.mesh.changed = false // what is left is for the next time
	m.judgeBy(now.Add(m.interval / 10))
}

// isSynced tells whether this node has had the records of others.
func (m *machine) isSynced() bool {
	heard := false
	for _, p := range m.peers {
		if p.synced {
			return true
		}
		heard = heard || p.watched && p.link == linkHeard
	}
	return !heard
}

// IsQuiet tells whether nothing was heard of a node for the configured detection time, though it be
// waited for longer. One that was never heard, or that this node does not watch, is not quiet.
func (m *Mesh) IsQuiet(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.state.peers[node]
	return p != nil && p.heard && p.watched && time.Since(p.at) >= m.state.detect
}
