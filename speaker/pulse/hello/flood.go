package hello

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
)

const (
	// indexesAtOnce bounds how many buckets are compared with one peer at a time.
	indexesAtOnce = 4
	// repairAtMost is how long it takes at most until records that differ are compared again.
	repairAtMost = 5 * time.Second
)

// newsGap is the time between two datagrams with news, so that many changes at a time are few
// datagrams. What comes after a quiet time leaves at once.
func (m *machine) newsGap() time.Duration { return m.interval / 10 }

// gossipsAt is when there is something to gossip, if there is.
func (m *machine) gossipsAt() (t time.Time, pending bool) {
	switch {
	case len(m.keys) == 0:
		return t, false
	case len(m.mesh.pending) > 0:
		return m.checkedAt, true
	case len(m.mesh.news) > 0:
		return m.mesh.newsAt.Add(m.newsGap()), true
	}
	return t, false
}

// gossips gives what is to be told now to those that are near: news to all, and what each lacks.
func (m *machine) gossips(now time.Time) (out []outgoing) {
	if len(m.mesh.news) > 0 && (m.parting || !now.Before(m.mesh.newsAt.Add(m.newsGap()))) {
		m.mesh.newsAt = now
		if m.parting { // its last words are said several times
			m.mesh.news[m.mesh.self] = true
		}
		if to := m.near(now); len(to) > 0 {
			box := m.outbox()
			box.add(m.mesh.news)
			out = m.packed(out, box, addressesOf(to))
		}
		clear(m.mesh.news)
	}
	if len(m.mesh.pending) == 0 {
		return out
	}
	for _, p := range byName(m.mesh.pending) {
		box := m.outbox()
		box.add(p.records)
		for b := range buckets {
			if p.indexes&(1<<b) != 0 {
				m.stats.Repairs++
				x := m.index(b)
				to := box.with(len(encoded(x)))
				to.Indexes = append(to.Indexes, x)
			}
		}
		p.records, p.indexes = nil, 0
		out = m.packed(out, box, p.addrs)
	}
	clear(m.mesh.pending)
	return out
}

func (m *machine) outbox() outbox {
	return outbox{room: maxDatagram - headerSize - gossipOverhead - len(m.node) - macSize}
}

func (o *outbox) add(of map[*peer]bool) {
	for _, p := range byName(of) {
		if p.record != nil {
			record := encoded(p.record)
			to := o.with(len(record))
			to.Records = append(to.Records, record)
		}
	}
}

func byName(of map[*peer]bool) []*peer {
	return slices.SortedFunc(maps.Keys(of), func(a, b *peer) int { return strings.Compare(a.node, b.node) })
}

func (m *machine) packed(out []outgoing, box outbox, to []netip.Addr) []outgoing {
	for _, g := range box.all {
		m.seq++
		m.stats.Gossip++
		g.Node, g.Incarnation = m.node, m.incarnation
		out = append(out, outgoing{datagrams: m.sealedBody(datagramOf(versionGossip, m.seq, g)), to: to})
	}
	return out
}

// index tells which records there are in a bucket.
func (m *machine) index(bucket int) index {
	x := index{Bucket: bucket, Has: map[longID]recordVersion{}}
	// What does not fit is not told; it takes four times as many nodes as are supported.
	room := (m.outbox().room - indexHead) / indexEntry
	for _, p := range m.mesh.buckets[bucket] {
		if p.record != nil && len(x.Has) < room {
			x.Has[p.long] = versionOf(*p.record)
		}
	}
	return x
}

// hearGossip is what hear is for hellos.
func (m *machine) hearGossip(now time.Time, datagram []byte, from netip.AddrPort) outgoing {
	seq, body, reason := open(datagram, versionGossip, m.keys)
	g, ok := decodeGossip(body)
	if reason == "" && !ok {
		reason = ReasonMalformed
	}
	h := hello{Node: g.Node, Incarnation: g.Incarnation, Seq: seq}
	p := m.peers[g.Node]
	switch {
	case reason != "":
		m.reject(reason, from, hello{})
		return outgoing{}
	case p == nil:
		m.reject(ReasonUnknownNode, from, h)
		return outgoing{}
	}
	switch p.judge(now, h, m.nonceLife()) {
	case duplicate:
		m.stats.Duplicates++
	case replayed:
		m.reject(ReasonReplayed, from, h)
	case unproven:
		m.reject(ReasonUnproven, from, h)
		if ask := p.ask(now, m.nonceLife(), m.interval/4, m.random); ask != 0 {
			return outgoing{datagrams: m.hello(now, ask, 0), to: p.addrs}
		}
	case fresh:
		p.seq = seq
		m.takeGossip(now, p, g)
	}
	return outgoing{}
}

func (m *machine) takeGossip(now time.Time, p *peer, g gossip) {
	for _, record := range g.Records {
		if m.install(now, record) {
			p.repairIn = 0
		}
	}
	for _, x := range g.Indexes {
		m.answer(now, p, x)
	}
}

// install takes in a record and tells whether it is new.
func (m *machine) install(now time.Time, body cbor.RawMessage) bool {
	var head recordHead
	if cbor.Unmarshal(body, &head) != nil {
		m.stats.Rejected[ReasonMalformed]++
		return false
	}
	self, come := m.mesh.self, versionOf(hello{Incarnation: head.Incarnation, Seq: head.Seq})
	if head.Node == m.node {
		// Of the process that was here before. This one outbids it, or others would
		// keep what that said.
		if self.record != nil && head.Incarnation != m.incarnation && come.compare(versionOf(*self.record)) >= 0 {
			m.mesh.version = come.Version + 1
			m.mesh.changed = true
			return true
		}
		return false
	}
	p := m.peers[head.Node]
	if p == nil {
		m.stats.Rejected[ReasonUnknownNode]++
		return false
	}
	if !p.lacks(come) {
		return false
	}
	record, ok := decode(body)
	if !ok {
		m.stats.Rejected[ReasonMalformed]++
		return false
	}
	record.summary, record.Reverse, record.Claims = summary{}, nil, nil
	m.epoch = max(m.epoch, record.Epoch)
	m.mesh.installedAt = now
	m.record(p, &record)
	p.resyncing = false
	if p.say(now, record) {
		m.touch()
	}
	if now.Before(p.held) {
		m.activate(p)
	}
	m.mesh.news[p] = true
	return true
}

// lacks tells whether a record of the node is newer than what is known.
func (p *peer) lacks(s recordVersion) bool {
	return p.record == nil || s.compare(versionOf(*p.record)) > 0
}

// compare looks whether a peer that is near has the records that we have. If it has others for
// longer than news need, both say what they have.
func (m *machine) compare(now time.Time, p *peer, h hello) {
	if p.record != nil && h.recordVersion().compare(versionOf(*p.record)) < 0 {
		m.queueRecord(p, p) // it does not know what it said as another process
	}
	if h.Digest == m.mesh.digest {
		m.endResyncs(now)
		p.synced, p.differs, p.repairIn = true, time.Time{}, 0
		return
	}
	switch {
	case !p.isNear(now):
		return
	case p.differs.IsZero():
		p.differs = now
		return
	case h.Buckets == nil || now.Sub(p.differs) < m.interval/2 || now.Before(p.repairAt):
		return
	}
	p.repairIn = min(max(2*p.repairIn, m.interval), repairAtMost)
	p.repairAt = now.Add(p.repairIn)
	first, count := int(m.random()%buckets), 0
	for i := range buckets {
		if b := (first + i) % buckets; m.mesh.digests[b] != h.Buckets[b] && count < indexesAtOnce {
			p.indexes |= 1 << b
			m.mesh.pending[p] = true
			count++
		}
	}
}

// queueRecord notes that a peer is to be sent a record.
func (m *machine) queueRecord(to, record *peer) {
	if to.records == nil {
		to.records = map[*peer]bool{}
	}
	to.records[record], m.mesh.pending[to] = true, true
}

// answer sends what a peer lacks, and asks by an index of our own for what we lack.
func (m *machine) answer(now time.Time, p *peer, x index) {
	for _, q := range m.mesh.buckets[x.Bucket] {
		if q.record == nil {
			continue
		}
		if s, has := x.Has[q.long]; !has || s.compare(versionOf(*q.record)) < 0 {
			m.queueRecord(p, q)
		}
	}
	for id, s := range x.Has {
		if q := m.mesh.byID[id]; q != nil && q != m.mesh.self && q.lacks(s) && !now.Before(p.repairAt) {
			p.repairAt = now.Add(m.interval / 4)
			p.indexes |= 1 << x.Bucket
			m.mesh.pending[p] = true
		}
	}
}

// takeHeldWords takes over what nodes have said of themselves while their former word held, once it holds no more.
func (m *machine) takeHeldWords(now time.Time) {
	for _, p := range m.active {
		if p.withheld && p.record != nil && !now.Before(p.held) {
			claims := p.said.Claims
			p.withheld, p.said = false, p.record.said
			p.said.Claims = claims
			m.touch()
		}
	}
}
