package pulse

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// Doubt is what a node found when it asked, as a client would, for an address that another
// one is to answer for; or that nobody can answer for it.
type Doubt struct {
	Owner string // the node that is to answer; empty if no candidate can, and then the rest, too
	// Node is one that answers and should not, and Station its MAC; both are empty if
	// nobody answered.
	Node, Station string
	Interface     string // on which it was heard, or on which it was asked
	Since         time.Time
}

const (
	// patrolAfter is for how long an address is left alone once its node has changed. The
	// hand-over takes a second, and announcements follow for five.
	patrolAfter = 5 * time.Second
	// patrolEvery is how often it is asked for, and patrolAgain how often when something
	// was wrong the last time.
	patrolEvery = 5 * time.Minute
	patrolAgain = 10 * time.Second
	// An address is asked for so often, and so long is waited for answers.
	patrolAsks = 3
	patrolWait = time.Second
	// patrolSize bounds the questions of a second, which every station of the segment hears.
	patrolSize = 64
)

// patrol finds what breaks layer 2 without a word, and what the node that answers cannot see:
// that its answers reach nobody, since a switch or a hypervisor drops them; and that another
// node's kernel answers, too, as it does where kube-proxy in IPVS mode has the address on an
// interface. Of each address the runner-up asks, which is where clients would go next.
//
// It is driven by one caller at a time, who calls due when next says so.
type patrol struct {
	beats  map[netip.Addr]*beat
	jitter func(time.Duration) time.Duration // at random up to that

	round []netip.Addr // what is asked for now
	asked int          // how often
	at    time.Time    // when the round goes on, or the next one begins; zero: never
}

// beat is one address.
type beat struct {
	owner string // empty: nobody can answer, so that there is nothing to ask
	on    []links.Link
	next  time.Time
	heard map[neighbour.MAC]string // in this round: the interface on which the station was
	// suspect: the last round found something, which the next has to confirm. Three frames
	// may all get lost, and a round may fall into a change.
	suspect bool
	doubt   *Doubt
}

// keep sets the addresses of which this node is the runner-up, each with the node that is to
// answer, if any can, and the links on which this one would.
func (p *patrol) keep(now time.Time, behind map[netip.Addr]string, r reach) {
	if p.beats == nil {
		p.beats = map[netip.Addr]*beat{}
	}
	maps.DeleteFunc(p.beats, func(a netip.Addr, b *beat) bool {
		owner, still := behind[a]
		return !still || owner != b.owner
	})
	p.round = slices.DeleteFunc(p.round, func(a netip.Addr) bool { return p.beats[a] == nil })
	for a, owner := range behind {
		if p.beats[a] == nil {
			p.beats[a] = &beat{owner: owner, next: now.Add(patrolAfter + p.jitter(patrolAfter))}
		}
		p.beats[a].on = r[a]
	}
	if len(p.round) == 0 {
		p.rest()
	}
}

// under are the addresses that are asked for now, and on which links.
func (p *patrol) under() map[netip.Addr][]links.Link {
	under := make(map[netip.Addr][]links.Link, len(p.round))
	for _, a := range p.round {
		under[a] = p.beats[a].on
	}
	return under
}

// asks tells whether an address is asked for now.
func (p *patrol) asks(a netip.Addr) bool { return slices.Contains(p.round, a) }

// claimed takes in the claim of a station on an address that is asked for.
func (p *patrol) claimed(claim neighbour.Claim) {
	if !claim.Probe {
		p.beats[claim.Address].heard[claim.Station] = claim.Interface
	}
}

// due returns the questions to be sent now, and whether the addresses under patrol, or what
// is known of any, have changed.
func (p *patrol) due(now time.Time, v hello.View) (say []word, news bool) {
	switch {
	case p.at.IsZero() || now.Before(p.at):
		return nil, false
	case len(p.round) == 0:
		return nil, p.begin(now)
	}
	for _, a := range p.round {
		if !p.beats[a].answered(v) {
			say = append(say, word{neighbour.Probe, a, 0})
		}
	}
	if p.asked == patrolAsks || len(say) == 0 && p.asked > 0 {
		p.conclude(now, v)
		return nil, true
	}
	p.asked, p.at = p.asked+1, now.Add(patrolWait)
	return say, false
}

// begin makes up a round of what is due. Who answers has to be heard before anybody is asked.
func (p *patrol) begin(now time.Time) bool {
	found := false
	for a, b := range p.beats {
		switch {
		case !b.pending() || now.Before(b.next):
		case b.owner == "":
			b.doubt, found = &Doubt{Since: now}, true
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
	return found || len(p.round) > 0
}

// pending tells whether something is to be found out about the address, or to be told.
func (b *beat) pending() bool {
	if b.owner == "" {
		return b.doubt == nil
	}
	return len(b.on) > 0
}

// conclude ends the round.
func (p *patrol) conclude(now time.Time, v hello.View) {
	for _, a := range p.round {
		b := p.beats[a]
		found := b.verdict(v)
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
		b.heard, b.suspect = nil, found != nil
		if b.next = now.Add(patrolEvery - p.jitter(patrolEvery/5)); b.suspect {
			b.next = now.Add(patrolAgain)
		}
	}
	p.round = nil
	p.rest()
}

// rest waits for what is due first.
func (p *patrol) rest() {
	p.at = time.Time{}
	for _, b := range p.beats {
		if b.pending() {
			p.at = sooner(p.at, b.next)
		}
	}
}

// answered tells whether the node that is to answer was heard.
func (b *beat) answered(v hello.View) bool {
	return slices.ContainsFunc(v.Alive[b.owner].Stations, func(s hello.Station) bool {
		_, heard := b.heard[neighbour.MAC(s)]
		return heard
	})
}

// verdict is what is wrong, nil if nothing is, or if it cannot be known: of nodes whose
// stations nobody has told us. What a stranger has to do with the address the node that
// answers finds out itself, and may wait for.
func (b *beat) verdict(v hello.View) *Doubt {
	if v.Alive[b.owner].Stations == nil {
		return nil
	}
	for _, node := range slices.Sorted(maps.Keys(v.Alive)) {
		if node == b.owner {
			continue
		}
		for _, s := range v.Alive[node].Stations {
			station := neighbour.MAC(s)
			if on, heard := b.heard[station]; heard && !slices.Contains(v.Alive[b.owner].Stations, s) {
				return &Doubt{Owner: b.owner, Node: node, Station: station.String(), Interface: on}
			}
		}
	}
	if len(b.heard) > 0 {
		return nil
	}
	return &Doubt{Owner: b.owner, Interface: b.on[0].Name}
}

// next is when due has something to do; zero: never.
func (p *patrol) next() time.Time { return p.at }

// doubts are the addresses with which something is wrong.
func (p *patrol) doubts() map[netip.Addr]Doubt {
	found := map[netip.Addr]Doubt{}
	for a, b := range p.beats {
		if b.doubt != nil {
			found[a] = *b.doubt
		}
	}
	return found
}
