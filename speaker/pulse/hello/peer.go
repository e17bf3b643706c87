package hello

import (
	"net/netip"
	"slices"
	"time"
)

// peer is what we know of another node.
type peer struct {
	vertex // what all nodes say of it
	ties   // what it is to this node

	node  string
	id    ID
	long  longID
	addrs []netip.Addr // where hellos go: at most one a family
	ready bool
	since time.Time // when we were told of it

	keyed    bool      // it was heard with the current key
	oldKeyAt time.Time // when it was heard with another one last

	heard bool      // a proven hello came since then
	at    time.Time // when the newest came
	held  time.Time // alive until then at least, because it said so
	said  said      // its newest word
	// withheld: it has said something else since, while that holds.
	withheld bool

	claims     hearsay
	difference *difference // of its table from ours; nil: none

	detect    time.Duration // so much silence is a death
	least     time.Duration // and so much where another node says that it does not hear it either
	requested time.Duration // what it wants detect to be; 0: it was not heard
	late      lateness      // where none was lost
	lost      lateness      // where some were, or may have been
	adapted   bool          // detect is longer since hellos were missing, which was told

	proven           bool   // incarnation has answered a nonce and did not fall silent since
	incarnation, seq uint64 // of the newest hello
	body             string // of one that is known
	nonce            uint64 // what we asked incarnation's successor to send back; 0: nothing
	nonceAt          time.Time
	askedAt          time.Time
	echoed           uint64 // the nonce that we sent back last, and when
	echoedAt         time.Time

	confirmed time.Time // when it was told last that our hellos get there

	active bool // see activate
	alive  bool // as in the view
	warned bool // its being alive without a hello was told

	apartTold bool // the log has that it is apart
}

func newPeer(node string, since time.Time) *peer {
	return &peer{node: node, id: IDOf(node), long: longIDOf(node), since: since}
}

// isTold tells whether the node is known by its own word, or by that of nodes which heard it.
func (p *peer) isTold() bool { return p.heard || p.known }

// update takes over what Kubernetes says and tells whether the view may have changed.
func (p *peer) update(want Peer) bool {
	p.addrs = nil
	for _, a := range want.Addrs {
		a = a.Unmap()
		sameFamily := func(b netip.Addr) bool { return a.Is4() == b.Is4() }
		if a.IsValid() && !slices.ContainsFunc(p.addrs, sameFamily) {
			p.addrs = append(p.addrs, a)
		}
	}
	changed := p.ready != want.Ready
	p.ready = want.Ready
	return changed
}

// until is when the peer dies if nothing more comes. Only for one that was heard.
func (p *peer) until() time.Time {
	silence := p.detect
	if p.isReported() {
		silence = p.least
	}
	return later(p.at.Add(silence), later(p.held, p.spared))
}

// isReported: a node says that it does not hear this one. Then hellos that were lost on the way to us
// before are no reason to wait for longer.
func (p *peer) isReported() bool {
	return slices.ContainsFunc(p.reports, func(e adjacency) bool { return e.State == linkSilent })
}

func (p *peer) aliveAt(now time.Time) bool {
	if !p.heard {
		return p.ready
	}
	return now.Before(p.until())
}

func (p *peer) member() Member {
	if !p.heard && p.record == nil {
		return Member{Serving: true}
	}
	return p.said.member()
}

// isSilent: it was heard and is not, and it did not say that it leaves.
func (p *peer) isSilent() bool { return p.isTold() && !p.alive && !p.said.Leaving }

// isApart: this node watches it and does not hear it any more.
func (p *peer) isApart() bool { return p.watched && p.link == linkSilent }

// misses tells whether the node says that it does not hear another one any more.
func (p *peer) misses(other *peer) bool {
	return slices.ContainsFunc(p.adjacencies, func(e adjacency) bool { return e.other == other && e.State == linkSilent })
}

type verdict int

const (
	fresh verdict = iota
	duplicate
	replayed
	unproven
)

// judge tells whether an authentic hello is new. nonceLife bounds the age of a
// nonce, so that an answer to it is recent.
func (p *peer) judge(now time.Time, h hello, nonceLife time.Duration) verdict {
	switch {
	case p.proven && h.Incarnation == p.incarnation:
		switch {
		case h.Seq > p.seq:
			return fresh
		case h.Seq == p.seq:
			return duplicate
		}
		return replayed
	case p.nonce != 0 && h.Echo == p.nonce && now.Before(p.nonceAt.Add(nonceLife)):
		return fresh
	}
	return unproven
}

// take believes a hello and tells whether the view changes.
func (p *peer) take(now time.Time, h hello) bool {
	if !p.proven || p.incarnation != h.Incarnation {
		p.nonce = 0
	}
	p.proven, p.incarnation, p.seq, p.requested = true, h.Incarnation, h.Seq, h.Requested
	p.at = now
	if p.record != nil { // judge finds whether it is alive
		p.heard = true
		known := versionOf(*p.record)
		if told := h.recordVersion(); told.Incarnation == known.Incarnation && told.compare(known) < 0 {
			p.holds(now, h)
			return false // the record is newer
		}
		return p.say(now, h)
	}
	changed := !p.heard || !p.alive
	p.heard, p.alive = true, true
	return p.say(now, h) || changed
}

// say takes over what a node says of itself, and tells whether that changes anything.
func (p *peer) say(now time.Time, h hello) bool {
	if p.withheld = p.holds(now, h); p.withheld {
		return false
	}
	h.Claims = p.said.Claims
	changed := !p.said.equal(h.said)
	p.said = h.said
	return changed
}

// holds tells whether the former word of a node holds: it has restarted and is not ready to
// take over from its former self, whose work the kernel still does.
func (p *peer) holds(now time.Time, h hello) bool {
	switch {
	case h.Hold > 0 && !h.Leaving:
		p.held = now.Add(min(h.Hold, MaxHold))
	case now.Before(p.held) && !h.Serving && !h.Leaving:
		return true
	default:
		p.held = time.Time{}
	}
	return false
}

// ask gives the nonce that the peer is to send back, 0 if it was asked a
// moment ago. A nonce is kept for life and asked again, so that a forged or
// recorded flood cannot outrun the true answer.
func (p *peer) ask(now time.Time, life, pause time.Duration, random func() uint64) uint64 {
	if now.Before(p.askedAt.Add(pause)) {
		return 0
	}
	p.askedAt = now
	if p.nonce == 0 || !now.Before(p.nonceAt.Add(life)) {
		p.nonce, p.nonceAt = random(), now
	}
	return p.nonce
}

// echo gives the answer to a nonce, 0 if it was sent back a moment ago.
func (p *peer) echo(now time.Time, nonce uint64, pause time.Duration) uint64 {
	if nonce == p.echoed && now.Before(p.echoedAt.Add(pause)) {
		return 0
	}
	p.echoed, p.echoedAt = nonce, now
	return nonce
}
