package hello

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

const (
	// fullMesh is up to how many nodes each says hello to every other one.
	fullMesh = 50
	// owing is for how long a node goes on saying hello to one that watches it, after that
	// one said so last.
	owing = time.Second
	// parting is for how long a node that is wanted no more gets hellos as before.
	parting = 10 * time.Second
	// maxFormer bounds how many such nodes do; the first come first.
	maxFormer = 2 * maxLinks
	// spare is for how long a node of a sparse mesh counts as alive that was heard and is
	// heard no more, because it knows our record and we do not know its own yet.
	spare = time.Second
	// postponements are how many intervals settling waits for the records of others at most.
	postponements = 20
)

// sparseMesh is what a machine knows in a mesh of more than fullMesh nodes.
//
// There each node watches some others only: see ring. It says to all, in a record, what it says
// in hellos among fewer, and whom of those it hears. Records are passed on by gossip, and from
// the records of all each node finds who is alive: see judge.
//
// Nodes that are not of a sparse mesh, because they run an older release or do not
// know of so many nodes yet, say so by saying nothing of it. To them, to those of
// which there is no record, and to the dead hellos go as in a full mesh, at its pace, and what
// is heard from them counts as there. So nodes need not change over at the same time.
type sparseMesh struct {
	on    bool
	limit int // up to so many nodes it is off
	since time.Time
	room  int           // for a record, in bytes
	slow  time.Duration // between hellos to those that are not watched

	self    *peer
	order   []*peer // all, ourselves included, by name
	byID    map[longID]*peer
	rings   [rings]ring
	version uint64 // of our record

	changed bool      // judge has something to do
	judgeAt time.Time // and then, at the latest; zero: never
	heard   time.Time // the time for which reach is asked

	considered time.Time // when judge ran last
	learnedAt  time.Time // when a record was new last
	slowDue    time.Time
	unheard    bool    // there are nodes that do not hear us
	whole      bool    // judge has to look at all records
	learned    []*peer // whose record is new, for judge
	queue      []*peer // kept for its room, as is told
	told       []edge
	returns    bool // some may be returning

	buckets [buckets][]*peer // the nodes by the first byte of their IDs, by name
	digests [buckets]uint32  // of the records in each
	former  []former
	news    map[*peer]bool
	newsAt  time.Time      // when news left last
	owing   map[*peer]bool // to whom something is to be sent alone
	waited  int            // how often settling was postponed
}

// former is a node that was near and is wanted no more. While others do not know that yet, it must
// not be one of those that call this node silent.
type former struct {
	addrs []netip.Addr
	until time.Time
}

// ties are what binds a node to another one in a sparse mesh.
type ties struct {
	sparse  bool      // its newest hello was one of a sparse mesh
	watched bool      // we watch it
	began   time.Time // since when we do
	link    linkState
	vouch   *link     // what we say of it to those who call it silent
	owed    time.Time // until then it gets our hellos because it watches us
	spared  time.Time // alive until then at least

	dropped  *hello         // the last record, of the process that is of a full mesh since
	records  map[*peer]bool // to send it
	indexes  uint32         // of buckets, to send it
	differs  time.Time      // since when its records are not ours; zero: they are
	synced   bool           // its records were ours once
	repairAt time.Time      // not before then something is done about it
	repairIn time.Duration  // and so much later again
}

// organize follows the membership.
func (m *machine) organize(now time.Time) {
	on := len(m.peers)+1 > m.mesh.limit
	m.mesh.slow = max(m.least, time.Duration(len(m.peers))*each)
	if on == m.mesh.on && m.isOrganized() {
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
	maps.DeleteFunc(m.mesh.owing, gone)
	m.mesh.buckets, m.mesh.digests = [buckets][]*peer{}, [buckets]uint32{}
	for _, p := range m.mesh.order {
		m.resolve(p)
		maps.DeleteFunc(p.records, gone)
		bucket := p.long.bucket()
		m.mesh.buckets[bucket] = append(m.mesh.buckets[bucket], p)
		m.mesh.digests[bucket] ^= p.digest()
	}
	m.mesh.learned = m.mesh.learned[:0]
	m.reconsider()
	if on != m.mesh.on {
		m.turn(now, on)
	}
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

// turn makes the mesh sparse or full. Who was alive stays so for a while, in which it can be
// heard in the other way.
func (m *machine) turn(now time.Time, on bool) {
	m.mesh.on, m.mesh.since, m.mesh.slowDue = on, now, now.Add(m.mesh.slow)
	if on {
		m.mesh.news, m.mesh.owing = map[*peer]bool{}, map[*peer]bool{}
		return
	}
	m.record(m.mesh.self, nil)
	m.mesh.news, m.mesh.owing, m.mesh.digests = nil, nil, [buckets]uint32{}
	m.touch()
	for _, p := range m.peers {
		m.attend(p)
		alive := p.alive && p.record != nil
		p.vertex, p.ties = vertex{}, ties{sparse: p.sparse}
		if alive {
			p.heard, p.spared = true, now.Add(spare)
		}
	}
}

// reconsider is for a change of something else than records, on which depends who is alive.
func (m *machine) reconsider() { m.mesh.changed, m.mesh.whole = true, true }

// isNear tells whether a peer gets all our hellos and the gossip.
func (p *peer) isNear(now time.Time) bool { return p.watched || now.Before(p.owed) }

// near are those that are told all.
func (m *machine) near(now time.Time, which func(*peer) bool) []*peer {
	var found []*peer
	for _, p := range m.attended {
		if p.isNear(now) && which(p) {
			found = append(found, p)
		}
	}
	return found
}

// release notes a node that is wanted no more.
func (m *machine) release(now time.Time, p *peer) {
	if m.mesh.on && p.isNear(now) && len(m.mesh.former) < maxFormer {
		m.mesh.former = append(m.mesh.former, former{p.addrs, now.Add(parting)})
	}
}

// nearHellos gives the hellos of a round.
func (m *machine) nearHellos(now time.Time) outgoing {
	to := addressesOf(m.near(now, anyPeer))
	m.mesh.former = slices.DeleteFunc(m.mesh.former, func(f former) bool { return !now.Before(f.until) })
	for _, f := range m.mesh.former {
		to = append(to, f.addrs...)
	}
	return outgoing{to: to, datagrams: m.sealed(m.nearHello(now))}
}

func anyPeer(*peer) bool      { return true }
func sparsePeer(p *peer) bool { return p.sparse }

// nearHello is what is said to those that are near.
func (m *machine) nearHello(now time.Time) hello {
	h := m.word(now, 0, 0)
	h.sparse.watches = true
	for _, p := range m.near(now, anyPeer) {
		if !p.watched && len(h.courtesy) < maxCourtesy {
			h.courtesy = append(h.courtesy, p.id)
		}
	}
	return h
}

// rest gives what is to be sent beside the hellos of a round: those to who is not near
// and not known to be alive by a record, at the pace of a full mesh, and gossip.
func (m *machine) rest(now time.Time) (out []outgoing) {
	if !m.mesh.on || len(m.keys) == 0 {
		return nil
	}
	if !now.Before(m.mesh.slowDue) || m.parting {
		m.mesh.slowDue = now.Add(jitter(m.mesh.slow, func(n int64) int64 { return int64(m.random() % uint64(n)) }))
		var far []*peer
		for _, p := range m.mesh.order {
			if p != m.mesh.self && !p.isNear(now) && (p.record == nil || !p.alive) {
				far = append(far, p)
			}
		}
		if len(far) > 0 {
			h := m.word(now, 0, 0)
			h.asks = time.Duration(m.own.asks) * m.mesh.slow
			out = append(out, outgoing{datagrams: m.sealed(h), to: addressesOf(far)})
		}
	}
	return append(out, m.gossips(now)...)
}

// nextRest is when rest or judge have something to do.
func (m *machine) nextRest(sooner func(time.Time)) {
	if !m.mesh.on {
		return
	}
	if len(m.keys) > 0 { // without one nothing leaves, and this would stay due
		sooner(m.mesh.slowDue)
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
	for _, p := range m.attended {
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
		m.mesh.on && m.mesh.changed && m.considersAt().Before(m.planned)
}

// considersAt is when what has changed is considered: at once after a quiet time, and else
// with what else comes within a short one.
func (m *machine) considersAt() time.Time { return m.mesh.considered.Add(m.newsGap()) }

// meet takes in what a hello says that concerns a sparse mesh. It was believed.
func (m *machine) meet(now time.Time, p *peer, h hello) {
	p.sparse = h.sparse != nil
	if !m.mesh.on {
		return
	}
	if h.sparse == nil {
		m.drop(p)
		return
	}
	if p.record == nil && !p.watched {
		p.spared = now.Add(spare)
	}
	if p.watched && p.link != linkHeard {
		p.link, p.vouch, m.mesh.changed = linkHeard, nil, true
	}
	if p.record != nil && (!p.alive || !p.there.found && !p.out) {
		m.reconsider() // it lives, watched or not
	}
	if h.sparse.watches && !slices.Contains(h.courtesy, m.id) {
		p.owed = now.Add(owing)
	}
	if p.returning && p.record != nil && (stamp{h.sparse.version, uint32(h.boot >> 32)}) == stampOf(*p.record) {
		p.returning = false
		m.reconsider()
	}
	m.compare(now, p, h)
}

// drop forgets the record of a node that says hello to everybody.
func (m *machine) drop(p *peer) {
	if p.record == nil {
		return
	}
	p.dropped = p.record
	m.record(p, nil)
	p.vertex = vertex{}
	p.alive = true // it is heard
	m.touch()
}

// listenTo notes whom of those that this node watches it does not hear any more.
func (m *machine) listenTo(now time.Time, p *peer) {
	if p.record == nil && !p.watched || now.Before(p.until()) {
		return
	}
	if p.record != nil && p.proven {
		p.proven = false // it has to answer a nonce again
		m.reconsider()
	}
	if p.watched && p.link == linkHeard {
		p.link, p.vouch, m.mesh.changed = linkSilent, nil, true
		m.log.Debug("a watched node is not heard any more", "node", p.node, "silence", now.Sub(p.at).Round(time.Millisecond).String())
	}
}

// consider decides who is alive and what to say of those that are watched, until neither
// changes the other.
func (m *machine) consider(now time.Time) {
	if !m.mesh.on {
		return
	}
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
		for _, p := range m.attended {
			m.vouchFor(p)
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
	if !m.mesh.on {
		return true
	}
	heard := false
	for _, p := range m.peers {
		if p.synced {
			return true
		}
		heard = heard || p.watched && p.link == linkHeard
	}
	return !heard
}
