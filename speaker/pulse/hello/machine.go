package hello

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// machine decides who is alive and what to send. It is driven by one caller at
// a time, which must call check at least once an interval and send the hellos
// of hellos as often.
type machine struct {
	node             string
	id               nodeID        // of node
	least            time.Duration // between hellos to a node
	multiplier       int
	interval, detect time.Duration // for as many peers as there are, where nothing is late
	own              punctuality
	mesh             sparseMesh
	log              *slog.Logger
	random           func() uint64 // never 0

	boot, seq uint64
	keys      keyring
	said      said // what we say about ourselves, but for
	claims    assertions
	vouched   bool      // as was told; sound though nobody is heard
	epoch     uint64    // the highest that was heard of or begun
	parting   bool      // this process ends, and the node
	partsAt   time.Time // counts as alive until then
	peers     map[string]*peer
	attended  []*peer // of whom time alone may change something, by name

	listening bool
	settlesAt time.Time // zero while we lack a key or an ear
	settled   bool
	checkedAt time.Time
	planned   time.Time // when there is something to do, as next said last

	reached []netip.Addr // where our hellos get, as their receivers have told since this was taken

	dirty bool // the view has changed since it was last taken
	hush  hush
	hurry bool // who is silent has changed since it was last told
	stats Stats
	told  map[Reason]bool // rejections that the log knows of
}

// outgoing is datagrams with the same content for some nodes. There is one for
// each key in use; receivers take the first that they can open.
type outgoing struct {
	datagrams [][]byte
	to        []netip.Addr
}

func newMachine(cfg Config, random func() uint64) *machine {
	m := &machine{
		node:       cfg.Node,
		id:         idOf(cfg.Node),
		least:      cfg.Interval,
		multiplier: cfg.Multiplier,
		log:        cfg.Log,
		random:     random,
		boot:       random(),
		peers:      map[string]*peer{},
		stats:      Stats{Rejected: map[Reason]uint64{}},
		told:       map[Reason]bool{},
		dirty:      true,
	}
	m.mesh = sparseMesh{limit: fullMesh, self: newPeer(cfg.Node, time.Time{})}
	m.pace(0)
	m.own.asks = m.multiplier
	return m
}

// each bounds what hellos cost in a large cluster: a node sends and hears a thousand a
// second at most, and the interval grows with the number of its peers.
const each = time.Millisecond

// pace sets the times for so many peers. All nodes have about as many, so that they agree.
func (m *machine) pace(peers int) {
	m.interval = max(m.least, time.Duration(peers)*each)
	if peers+1 > m.mesh.limit {
		m.interval = m.least // for those that are watched
	}
	m.detect = m.interval * time.Duration(m.multiplier)
}

// set takes over what is wanted and tells whether the others should hear of it
// at once.
func (m *machine) set(now time.Time, w Wanted) (urgent bool) {
	m.pace(len(w.Peers))
	if s := saying(m.node, w, m.less(w)); !s.equal(m.said) {
		m.said, urgent = s, true
		m.touch()
	}
	if m.claims.set(now, w.Claims) && m.mesh.on { // in a full mesh they have a pace of their own
		urgent = true
	}
	if w.Vouched != m.vouched {
		m.vouched, urgent = w.Vouched, true
	}
	if m.keys.set(now, w.Key) {
		for _, p := range m.peers {
			p.keyed, p.oldKeyAt = false, time.Time{}
		}
		m.awaitSettled(now)
		urgent = true
	}
	for node, p := range m.peers {
		if _, keep := w.Peers[node]; !keep {
			m.release(now, p)
			m.dismiss(p)
			delete(m.peers, node)
			m.touch()
		}
	}
	for node, want := range w.Peers {
		if node == m.node {
			continue
		}
		p, known := m.peers[node]
		if !known {
			p = newPeer(node, now)
			m.peers[node] = p
			m.attend(p)
			m.wait(now, p)
		}
		if p.update(want) {
			m.reconsider()
			if !p.isTold() {
				p.alive = m.presume(p)
				m.touch()
			}
		}
	}
	m.organize(now)
	if m.mesh.on && urgent {
		m.mesh.slowDue = now
	}
	return urgent
}

// less is for how much less there is room in what this node says, because of a sparse mesh, in
// which its record has only so much room itself.
func (m *machine) less(w Wanted) int {
	if len(w.Peers)+1 <= m.mesh.limit {
		return 0
	}
	longest := len(m.node)
	for node := range w.Peers {
		longest = max(longest, len(node))
	}
	m.mesh.room = maxDatagram - maxGossipOverhead - longest - macSize
	return sparseReserve(longest)
}

// listen says that from now on datagrams are received.
func (m *machine) listen(now time.Time) {
	m.listening, m.checkedAt = true, now
	m.awaitSettled(now)
}

func (m *machine) awaitSettled(now time.Time) {
	if m.settlesAt.IsZero() && m.listening && len(m.keys) > 0 {
		m.settlesAt = now.Add(m.detect)
	}
}

// part says that this process ends and that the node stays in service for hold,
// or not at all if it is 0. It is final: hellos that follow say so too.
func (m *machine) part(now time.Time, hold time.Duration) {
	m.parting, m.partsAt = true, now.Add(min(hold, MaxHold))
	m.touch()
	if m.mesh.on {
		m.renew(now)
	}
}

// nonceLife is for how long an answer to a nonce is waited for. On two busy machines it may
// take longer than one was ever waited for when it fell silent, and a node that cannot answer
// in time would never be heard again.
func (m *machine) nonceLife() time.Duration { return max(m.detect, most*m.interval) }

// hello is our own next one.
func (m *machine) hello(now time.Time, ask, echo uint64) [][]byte {
	return m.sealed(m.word(now, ask, echo))
}

func (m *machine) word(now time.Time, ask, echo uint64) hello {
	m.seq++
	h := hello{node: m.node, boot: m.boot, seq: m.seq, ask: ask, echo: echo, said: m.current(now), asks: m.asked(), epoch: m.epoch}
	if m.parting && !h.leaving {
		h.hold = max(m.partsAt.Sub(now), time.Millisecond)
	}
	if m.mesh.on {
		h.sparse = &sparseWord{version: m.mesh.version, digests: m.mesh.digests}
	}
	h = h.testifying(m.testimonies())
	if ask == 0 && echo == 0 && len(m.claims.all) > 0 { // an answer goes to one node only
		h.claims = m.claims.tell(fits(h.limit() - len(h.bare())))
	}
	return h
}

func (m *machine) sealed(h hello) [][]byte { return m.sealedBody(h.encode()) }

// sealedBody is a datagram for each key that some node may need.
func (m *machine) sealedBody(body []byte) [][]byte {
	var datagrams [][]byte
	for _, k := range m.keys {
		if k.isOver(m.checkedAt) && !m.meetsBehind(m.checkedAt) {
			continue
		}
		datagrams = append(datagrams, k.secret.seal(body))
	}
	return datagrams
}

// current is what we say now: as wanted, unless we part.
func (m *machine) current(now time.Time) said {
	s := m.said
	hushed := m.hushed()
	s.silent, s.overheard, s.unheard, s.sound = hushed.silent, hushed.overheard, hushed.unheard, m.sound() || m.vouched
	s.leaving = s.leaving || m.parting && !now.Before(m.partsAt)
	return s
}

// hellos gives what to send in a round: a hello to each peer, or nothing without a key. Those
// that are silent get theirs as well: until nodes that were parted hear each other again, both
// answer. What waits in the kernel for the ARP answers of dead nodes is some seconds of
// hellos, for which the send buffer has room. It is to be told when the round has left.
func (m *machine) hellos(now time.Time) outgoing {
	m.own.gauge(now)
	m.notice(now)
	if len(m.keys) == 0 {
		return outgoing{}
	}
	if m.mesh.on {
		return m.nearHellos(now)
	}
	var out outgoing
	for _, p := range m.peers {
		out.to = append(out.to, p.addrs...)
	}
	out.datagrams = m.hello(now, 0, 0)
	return out
}

// left says that the round of hellos has left.
func (m *machine) left(now time.Time) {
	m.own.gauge(now)
	m.own.left, m.own.promised, m.hurry = now, m.interval, false
}

// hear takes a datagram in and gives the answer to it, mostly none. from is
// for the log only: the MAC says who sent it, whatever way it came.
func (m *machine) hear(now time.Time, datagram []byte, from netip.AddrPort) outgoing {
	m.stats.Received++
	if isGossip(datagram) {
		return m.hearGossip(now, datagram, from)
	}
	h, reason := open(datagram, m.keys)
	if reason != "" {
		m.reject(reason, from, h)
		return outgoing{}
	}
	p := m.peers[h.node]
	if p == nil {
		m.reject(ReasonUnknownNode, from, h)
		return outgoing{}
	}
	m.heardWith(now, p)
	var ask, echo uint64
	switch p.judge(now, h, m.nonceLife()) {
	case fresh:
		m.believe(now, p, h)
	case duplicate:
		m.stats.Duplicates++
	case replayed:
		m.reject(ReasonReplayed, from, h)
	case unproven:
		m.reject(ReasonUnproven, from, h)
		ask = p.ask(now, m.nonceLife(), m.interval/4, m.random)
	}
	if h.ask != 0 {
		echo = p.echo(now, h.ask, m.interval/4)
	}
	if ask == 0 && echo == 0 {
		return outgoing{}
	}
	return outgoing{datagrams: m.hello(now, ask, echo), to: p.addrs}
}

func (m *machine) believe(now time.Time, p *peer, h hello) {
	before, silent, revived := p.heard, now.Sub(p.at), !p.alive
	m.missed(now, p, h)
	m.contradict(p, h.silent)
	m.epoch = max(m.epoch, h.epoch)
	m.confirm(now, p, h)
	if p.take(now, h) {
		m.touch()
	}
	m.attest(now, p)
	m.overhear(now, p, h.testimony)
	m.attend(p)
	m.meet(now, p, h)
	m.wait(now, p)
	if p.record == nil {
		m.listens(now, p)
	} else if before {
		return // who is dead and who is not is not found by this alone
	}
	switch {
	case before && revived:
		m.hurry = true
		m.log.Info("node is heard again", "node", p.node, "silence", silent.Round(time.Millisecond).String())
	case p.warned:
		m.log.Info("node is heard for the first time", "node", p.node)
	case !before:
		m.log.Debug("node is heard for the first time", "node", p.node)
	}
	p.warned = false
}

// confirmEvery is how often it is told that hellos get to a node. The kernel believes it for 15 s
// and more (base_reachable_time of RFC 4861).
const confirmEvery = time.Second

// confirm notes that our hellos get to a node that has answered a nonce and does not call us silent.
func (m *machine) confirm(now time.Time, p *peer, h hello) {
	if now.Before(p.confirmed.Add(confirmEvery)) || h.leaving || slices.Contains(h.silent, m.id) || slices.Contains(h.overheard, m.id) {
		return
	}
	p.confirmed = now
	m.reached = append(m.reached, p.addrs...)
}

func (m *machine) reject(reason Reason, from netip.AddrPort, h hello) {
	m.stats.Rejected[reason]++
	switch reason {
	case ReasonNoKey, ReasonUnknownNode, ReasonUnproven:
		return // normal while a node starts or joins
	}
	if !m.told[reason] {
		m.told[reason] = true
		m.log.Warn("rejected a hello; further ones are only counted", "reason", reason, "from", from, "node", h.node)
	}
}

// resume forgives silence while this process did not run: hellos may have been lost
// for want of room in the socket, and a machine that stood still as a whole heard none.
func (m *machine) resume(now time.Time) {
	if pause := now.Sub(m.checkedAt); m.listening && pause > 2*m.interval {
		m.excuse(now, pause-m.interval)
	}
	m.checkedAt = now
}

// next is when check has something to do if nothing is heard until then, or
// limit if that is earlier.
func (m *machine) next(limit time.Time) time.Time {
	sooner := func(t time.Time) {
		if t.Before(limit) {
			limit = t
		}
	}
	if !m.settled && !m.settlesAt.IsZero() {
		sooner(m.settlesAt)
	}
	if m.hurry {
		sooner(m.hurries())
	}
	if due := m.claimsDue(); !due.IsZero() {
		sooner(due)
	}
	m.nextRest(sooner)
	for _, p := range m.attended {
		if p.record == nil && p.heard && p.alive {
			sooner(p.until())
		}
		if p.overheard {
			sooner(p.attestedUntil())
		}
		if p.alive && !p.deaf && !p.deafSince.IsZero() { // zero unless it is sound
			sooner(p.deafSince.Add(m.deafAfter(p)))
		}
	}
	m.planned = limit
	return limit
}

// view gives who is alive now.
func (m *machine) view(now time.Time) View {
	m.dirty = false
	v := View{Settled: m.settled, Alive: make(map[string]Member, len(m.peers)+1)}
	for node, p := range m.peers {
		switch {
		case p.alive:
			v.Alive[node] = p.member()
		case p.overheard:
			v.Alive[node] = p.lastMember()
			v.Apart = append(v.Apart, node)
		case p.isSilent():
			v.Silent = append(v.Silent, node)
		}
	}
	slices.Sort(v.Silent)
	slices.Sort(v.Apart)
	v.Alive[m.node] = m.current(now).member()
	m.deaf(v)
	return v
}

// figures gives the counters and gauges.
func (m *machine) figures() Stats {
	s := m.stats
	s.Rejected = maps.Clone(s.Rejected)
	s.Asked = m.asked()
	s.Late, _ = m.own.worst(m.checkedAt)
	for _, p := range m.attended {
		s.Waits = max(s.Waits, p.detect)
	}
	for _, p := range m.peers {
		switch {
		case p.isTold() && p.alive:
			s.Heard++
		case p.overheard:
			s.Apart++
		case !p.isTold() && p.ready:
			s.Unheard++
		}
		if !m.mesh.on || p.watched {
			s.Watched++
		}
	}
	return s
}

// sendsTo tells whether some peer has the address.
func (m *machine) sendsTo(a netip.Addr) bool {
	for _, p := range m.peers {
		if slices.Contains(p.addrs, a) {
			return true
		}
	}
	return false
}
