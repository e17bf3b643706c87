package hello

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// machine decides which nodes are alive and what to send. It is driven by one caller at
// a time, which must call check at least once an interval and send the hellos
// of hellos as often.
type machine struct {
	node             string
	id               ID // of node
	multiplier       int
	interval, detect time.Duration // where nothing is late
	own              localHealth
	mesh             topology
	log              *slog.Logger
	random           func() uint64 // never 0

	incarnation, seq uint64
	keys             keyring
	said             said // what we say about ourselves, but for
	claims           assertions
	table            table     // digests of what we decide by
	tableDigest      uint64    // of all of it
	differs          uint32    // the buckets in which that of a node that we hear differs
	vouched          bool      // as was told; sound though no node is heard
	epoch            uint64    // the highest that was heard of or begun
	parting          bool      // this process ends, and the node
	partsAt          time.Time // counts as alive until then
	peers            map[string]*peer
	known            map[string]hello // the newest of each peer, by its body
	active           []*peer          // about which time alone may change something, by name

	listening bool
	settlesAt time.Time // zero while we lack a key or an ear
	settled   bool
	checkedAt time.Time
	planned   time.Time // when there is something to do, as next said last

	reached []netip.Addr // where our hellos get, as their receivers have told since this was taken

	dirty bool // the view has changed since it was last taken
	hurry bool // which nodes are alive has changed since the last round
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
		node:        cfg.Node,
		id:          IDOf(cfg.Node),
		interval:    cfg.Interval,
		multiplier:  cfg.Multiplier,
		detect:      cfg.Interval * time.Duration(cfg.Multiplier),
		log:         cfg.Log,
		random:      random,
		incarnation: random(),
		peers:       map[string]*peer{},
		known:       map[string]hello{},
		stats:       Stats{Rejected: map[Reason]uint64{}},
		told:        map[Reason]bool{},
		dirty:       true,
	}
	m.mesh = topology{self: newPeer(cfg.Node, time.Time{}), news: map[*peer]bool{}, pending: map[*peer]bool{}}
	m.organize()
	m.own.requested = m.multiplier
	return m
}

// set takes over what is wanted and tells whether the others should hear of it
// at once.
func (m *machine) set(now time.Time, w Wanted) (urgent bool) {
	if s := saying(w, m.room(w)); !s.equal(m.said) {
		m.said, urgent = s, true
		m.touch()
	}
	m.table = w.Table
	m.tableDigest = m.table.digest()
	m.claims.set(w.Claims) // which have a pace of their own
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
			m.deactivate(p)
			delete(m.known, p.body)
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
			m.activate(p)
			m.adaptTimeout(now, p)
		}
		if p.update(want) {
			m.reconsider()
			if !p.isTold() {
				p.alive = p.ready
				m.touch()
			}
		}
	}
	m.organize()
	if urgent {
		m.mesh.slowDue, m.mesh.newsAt = now, time.Time{}
	}
	return urgent
}

// room is for what this node says of itself, in bytes.
func (m *machine) room(w Wanted) int {
	longest := len(m.node)
	for node := range w.Peers {
		longest = max(longest, len(node))
	}
	return roomFor(m.node, len(w.Peers), longest)
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
	m.renew(now)
}

// nonceLife is for how long an answer to a nonce is waited for. On two busy machines it may
// take longer than one was ever waited for when it fell silent, and a node that cannot answer
// in time would never be heard again.
func (m *machine) nonceLife() time.Duration { return max(m.detect, most*m.interval) }

// hello is our own next one.
func (m *machine) hello(now time.Time, ask, echo uint64) [][]byte {
	return m.sealed(m.claimed(m.word(now, ask, echo)))
}

func (m *machine) word(now time.Time, ask, echo uint64) hello {
	m.seq++
	h := hello{Node: m.node, Incarnation: m.incarnation, Seq: m.seq, Ask: ask, Echo: echo, said: m.current(now), Requested: m.requestedTimeout(), Epoch: m.epoch}
	if m.parting && !h.Leaving {
		h.Hold = max(m.partsAt.Sub(now), time.Millisecond)
	}
	h.Version, h.Digest = m.mesh.version, m.mesh.digest
	return h
}

func (m *machine) sealed(h hello) [][]byte {
	seq := h.Seq
	h.Seq = 0
	return m.sealedBody(datagramOf(version, seq, h))
}

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
	s.Sound, s.Differs = m.vouched, m.differs
	s.Leaving = s.Leaving || m.parting && !now.Before(m.partsAt)
	return s
}

// hellos gives what to send in a round: a hello to each peer that is near, or nothing without a key. Those
// that are silent get theirs as well: until nodes that were parted hear each other again, both
// answer. What waits in the kernel for the ARP answers of dead nodes is some seconds of
// hellos, for which the send buffer has room. It is to be told when the round has left.
func (m *machine) hellos(now time.Time) outgoing {
	m.own.measure(now)
	m.adaptRequest(now)
	if len(m.keys) == 0 {
		return outgoing{}
	}
	return m.nearHellos(now)
}

// left says that the round of hellos has left.
func (m *machine) left(now time.Time) {
	m.own.measure(now)
	m.own.left, m.own.promised, m.hurry = now, m.interval, false
}

// touch notes that the view has changed.
func (m *machine) touch() { m.dirty = true }

// hurries is when a round leaves before its time, as nodes have died or are heard
// again: not before a part of an interval has passed since the last, so that the death of
// many costs no more than some rounds.
func (m *machine) hurries() time.Time { return m.own.left.Add(m.interval / 4) }

// isDue tells whether a round is to leave that was due then.
func (m *machine) isDue(now, due time.Time) bool {
	return !now.Before(due) || m.hurry && !now.Before(m.hurries())
}

// hear takes a datagram in and gives the answer to it, mostly none. from is
// for the log only: the MAC says that a node sent it, whatever way it came.
func (m *machine) hear(now time.Time, datagram []byte, from netip.AddrPort) outgoing {
	m.stats.Received++
	if isGossip(datagram) {
		return m.hearGossip(now, datagram, from)
	}
	seq, body, reason := open(datagram, version, m.keys)
	h, ok := m.read(body)
	h.Seq = seq
	if reason == "" && !ok {
		reason = ReasonMalformed
	}
	p := m.peers[h.Node]
	switch {
	case reason != "":
		m.reject(reason, from, h)
		return outgoing{}
	case p == nil:
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
	if h.Ask != 0 {
		echo = p.echo(now, h.Ask, m.interval/4)
	}
	if ask == 0 && echo == 0 {
		return outgoing{}
	}
	return outgoing{datagrams: m.hello(now, ask, echo), to: p.addrs}
}

func (m *machine) believe(now time.Time, p *peer, h hello) {
	before, silent, revived := p.heard, now.Sub(p.at), !p.alive
	m.observe(now, p, h)
	m.epoch = max(m.epoch, h.Epoch)
	m.confirm(now, p, h)
	if p.take(now, h) {
		m.touch()
	}
	m.hearClaims(now, p, h.Claims)
	m.activate(p)
	m.meet(now, p, h)
	m.adaptTimeout(now, p)
	if p.record != nil && before {
		return // judge finds whether it is alive
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

// confirm notes that our hellos get to a node that has answered a nonce and does not say that it misses them.
func (m *machine) confirm(now time.Time, p *peer, h hello) {
	if now.Before(p.confirmed.Add(confirmEvery)) || h.Leaving || p.misses(m.mesh.self) {
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
		m.log.Warn("rejected a hello; further ones are only counted", "reason", reason, "from", from, "node", h.Node)
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
	m.nextRest(sooner)
	for _, p := range m.active {
		if p.record == nil && p.heard && p.alive {
			sooner(p.until())
		}
	}
	m.planned = limit
	return limit
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
