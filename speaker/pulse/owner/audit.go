package owner

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

const (
	// patrolAfter is for how long an address is left alone once its node has changed. The
	// hand-over takes a second, and announcements follow for five.
	patrolAfter = 5 * time.Second
	// patrolEvery is how often it is asked for at most, and patrolAgain how often when
	// something was wrong the last time.
	patrolEvery = time.Minute
	patrolAgain = 10 * time.Second
	// patrolPace is how many questions all nodes together send in a second, while all is well:
	// each one is heard by every station of the segment. Where there are more addresses than that
	// allows for, each is asked for less often.
	patrolPace = 50
	// An address is asked for so often, and so long is waited for answers.
	patrolAsks = 3
	patrolWait = time.Second
	// patrolSize bounds what one node asks in a second.
	patrolSize = 64
	// patrolHeard bounds how many stations are noted of an address in a round, besides those of
	// nodes: one station can answer in the name of any number.
	patrolHeard = 64
)

// audit finds what breaks layer 2 without a word, and what the node that answers cannot see:
// that its answers reach no station, since a switch or a hypervisor drops them; that another
// node's kernel answers, too, as it does where kube-proxy in IPVS mode has the address on an
// interface; and that a stranger does, which never sends a frame unless it is asked. Of each
// address the runner-up asks, which is where clients would go next, and it tells what it finds.
//
// Machine calls due when next says so.
type audit struct {
	self    string // this node
	beats   map[netip.Addr]*audited
	every   time.Duration
	jitter  func(time.Duration) time.Duration // at random up to that
	strange func(neighbour.MAC) bool          // the station is no node's, for sure
	// kernel tells for which of the addresses the kernel of this node would answer, were it
	// asked on one of the links, and what interface has the address. This node cannot hear it.
	kernel func(addresses map[netip.Addr][]links.Link) map[netip.Addr]string

	round []netip.Addr // what is asked for now
	asked int          // how often
	at    time.Time    // when the round goes on, or the next one begins; zero: never
}

// audited is one address.
type audited struct {
	owner string // without an owner there is nothing to ask
	on    []links.Link
	next  time.Time
	heard map[neighbour.MAC]string // in this round: the interface on which the station was
	// suspect: the last round found something, which the next has to confirm. Three frames
	// may all get lost, and a round may fall into a change.
	suspect bool
	taken   bool // the last round heard another station, and not the owner
	doubt   *api.Doubt
}

// keep sets the addresses for which this node stands by, of which it asks for those of which it is the runner-up, and
// the links on which it would answer. all is how many addresses are answered for by any node.
func (p *audit) keep(now time.Time, behind map[netip.Addr]standby, r reach, all int) {
	p.every = max(patrolEvery, time.Duration(all)*3*time.Second/(2*patrolPace))
	if p.beats == nil {
		p.beats = map[netip.Addr]*audited{}
	}
	maps.DeleteFunc(p.beats, func(a netip.Addr, b *audited) bool {
		place, still := behind[a]
		return !still || place != standby{owner: b.owner}
	})
	p.round = slices.DeleteFunc(p.round, func(a netip.Addr) bool { return p.beats[a] == nil })
	for a, place := range behind {
		switch {
		case place.after > 0:
			continue
		case p.beats[a] == nil:
			p.beats[a] = &audited{owner: place.owner, next: now.Add(patrolAfter + p.jitter(patrolAfter))}
		}
		p.beats[a].on = r[a]
	}
	if len(p.round) == 0 {
		p.rest()
	}
}

// under are the addresses that are asked for now, and on which links.
func (p *audit) under() map[netip.Addr][]links.Link {
	under := make(map[netip.Addr][]links.Link, len(p.round))
	for _, a := range p.round {
		under[a] = p.beats[a].on
	}
	return under
}

// asks tells whether an address is asked for now.
func (p *audit) asks(a netip.Addr) bool { return slices.Contains(p.round, a) }

// claimed takes in the claim of a station, which may be one of a node, on an address that is asked for.
func (p *audit) claimed(claim neighbour.Claim, ofNode bool) {
	heard := p.beats[claim.Address].heard
	if !claim.Probe && (ofNode || len(heard) < patrolHeard) {
		heard[claim.Station] = claim.Interface
	}
}

// due returns the addresses to be asked for now, and whether those that are listened for
// have changed, and whether what is known of any has.
func (p *audit) due(now time.Time, v hello.View) (ask []netip.Addr, listen, news bool) {
	switch {
	case p.at.IsZero() || now.Before(p.at):
		return nil, false, false
	case len(p.round) == 0:
		news = p.begin(now)
		return nil, len(p.round) > 0, news
	}
	for _, a := range p.round {
		if !p.beats[a].answered(v) {
			ask = append(ask, a)
		}
	}
	if p.asked == patrolAsks || len(ask) == 0 && p.asked > 0 {
		return nil, true, p.conclude(now, v)
	}
	p.asked, p.at = p.asked+1, now.Add(patrolWait)
	return ask, false, false
}

// begin makes up a round of what is due, and tells whether there is something to tell without
// asking. The answers have to be heard before the first question.
func (p *audit) begin(now time.Time) bool {
	found := false
	for a, b := range p.beats {
		switch {
		case !b.pending() || now.Before(b.next):
		case b.owner == "":
			b.doubt, found = &api.Doubt{Since: now}, true
		default:
			p.round = append(p.round, a)
		}
	}
	slices.SortFunc(p.round, func(a, b netip.Addr) int {
		return cmp.Or(p.beats[a].next.Compare(p.beats[b].next), a.Compare(b))
	})
	p.round = p.round[:min(len(p.round), patrolSize)]
	for _, a := range p.round {
		p.beats[a].heard = map[neighbour.MAC]string{}
	}
	if p.asked, p.at = 0, now; len(p.round) == 0 {
		p.rest()
	}
	return found
}

// pending tells whether something is to be found out about the address, or to be told.
func (b *audited) pending() bool {
	if b.owner == "" {
		return b.doubt == nil
	}
	return len(b.on) > 0
}

// conclude ends the round, and tells whether what is known has changed.
func (p *audit) conclude(now time.Time, v hello.View) (news bool) {
	own := p.kernel(p.under())
	for _, a := range p.round {
		b := p.beats[a]
		found := b.verdict(v, p.strange)
		if holder, is := own[a]; is {
			found = &api.Doubt{Owner: b.owner, Node: p.self, Station: neighbour.MAC(b.on[0].MAC).String(), Interface: holder}
		}
		b.taken = found != nil && found.Station != "" && !b.answered(v)
		news = b.tell(now, found) || news
		b.suspect, b.heard = found != nil, nil
		if b.next = now.Add(p.every - p.jitter(p.every/3)); b.suspect {
			b.next = now.Add(patrolAgain)
		}
	}
	p.round = nil
	p.rest()
	return news
}

// tell takes in what is wrong, nil if nothing is, and tells whether that is news.
func (b *audited) tell(now time.Time, found *api.Doubt) (news bool) {
	before := b.doubt
	switch {
	case found == nil:
		b.doubt = nil
	case b.doubt != nil:
		found.Since = b.doubt.Since
		b.doubt = found
	case b.suspect:
		found.Since = now
		b.doubt = found
	}
	return (before == nil) != (b.doubt == nil) || before != nil && *before != *b.doubt
}

// rest waits for what is due first.
func (p *audit) rest() {
	p.at = time.Time{}
	for _, b := range p.beats {
		if b.pending() {
			p.at = sooner(p.at, b.next)
		}
	}
}

// answered tells whether the node that is to answer was heard.
func (b *audited) answered(v hello.View) bool {
	return slices.ContainsFunc(v.Alive[b.owner].Stations, func(s hello.Station) bool {
		_, heard := b.heard[neighbour.MAC(s)]
		return heard
	})
}

// verdict is what is wrong, nil if nothing is, or if it cannot be known: of nodes that
// have not told their stations. Another node that answers is worse than a stranger: the one that
// is to answer hears of the latter, too, if that says a word.
func (b *audited) verdict(v hello.View, strange func(neighbour.MAC) bool) *api.Doubt {
	if v.Alive[b.owner].Stations == nil {
		return nil
	}
	alone := !b.answered(v)
	for _, node := range slices.Sorted(maps.Keys(v.Alive)) {
		if node == b.owner {
			continue
		}
		for _, s := range v.Alive[node].Stations {
			station := neighbour.MAC(s)
			if on, heard := b.heard[station]; heard && !slices.Contains(v.Alive[b.owner].Stations, s) {
				return &api.Doubt{Owner: b.owner, Node: node, Station: station.String(), Alone: alone, Interface: on}
			}
		}
	}
	compare := func(x, y neighbour.MAC) int { return slices.Compare(x[:], y[:]) }
	for _, station := range slices.SortedFunc(maps.Keys(b.heard), compare) {
		if strange(station) {
			return &api.Doubt{Owner: b.owner, Station: station.String(), Alone: alone, Interface: b.heard[station]}
		}
	}
	if len(b.heard) > 0 {
		return nil
	}
	return &api.Doubt{Owner: b.owner, Interface: b.on[0].Name}
}

// next is when due has something to do; zero: never.
func (p *audit) next() time.Time { return p.at }

// found tells whether another station answers for an address, and the node that is to answer does not.
func (p *audit) found(a netip.Addr) bool {
	b := p.beats[a]
	return b != nil && b.taken
}

// doubts are the addresses with which something is wrong.
func (p *audit) doubts() map[netip.Addr]api.Doubt {
	found := map[netip.Addr]api.Doubt{}
	for a, b := range p.beats {
		if b.doubt != nil {
			found[a] = *b.doubt
		}
	}
	return found
}
