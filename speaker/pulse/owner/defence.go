package owner

import (
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
	// defendEvery is DEFEND_INTERVAL of RFC 5227: an address is not defended more often,
	// or two stations that both defend would fill the network.
	defendEvery = 10 * time.Second
	// askEvery is how often it is asked whether a stranger still has the address. What
	// it said last may be long ago: a host may be silent while it has nothing to ask.
	askEvery = 15 * time.Second
	// overAfter is how long a stranger must be silent, asked four times, for the contest
	// to be over.
	overAfter = time.Minute + askEvery/2
	// askAfter is when, after an address was taken, the segment is asked which station has it, too: once the
	// node that had it before has stopped.
	askAfter = time.Second
	// otherAfter is for how long the stranger that is told of must be silent, asked twice, for
	// another one to be told of in its place.
	otherAfter = 2*askEvery + askEvery/2
	// yieldAfter is how often an address is defended before it is left to a station that defends it, too, and has the
	// lower MAC, as a node of another cluster may: two that never give in would have clients change sides for ever.
	yieldAfter = 2
	// rememberFor is for how long the stations of a node count as a node's after it told
	// them last. What it sent while it handed over may be on its way.
	rememberFor = time.Minute
)

// word is something to be said to a segment.
type word struct {
	what    neighbour.Word
	address netip.Addr
	link    int // index of the interface; 0: all on which the address is answered for
	// to is the one station that a probe is for, with an address of this node as its sender, so that
	// the answer comes to this node alone; unset: it is for the segment.
	to neighbour.MAC
}

// stations knows the stations of the stations, so that no hand-over among them is taken for a
// conflict.
type stations struct {
	known map[hello.Station]knownStation
	// complete: every node that is alive has told its stations. Before, no station can be called a stranger.
	complete bool
}

// knownStation is what is known of a station of a node.
type knownStation struct {
	node  string
	until time.Time
}

// learn takes in what is known of the nodes.
func (n *stations) learn(now time.Time, self string, own []hello.Station, v hello.View) {
	if n.known == nil {
		n.known = map[hello.Station]knownStation{}
	}
	maps.DeleteFunc(n.known, func(_ hello.Station, a knownStation) bool {
		return now.After(a.until) && !slices.Contains(v.Silent, a.node) // which may be there, and be heard otherwise
	})
	n.complete = v.Settled
	for _, station := range own {
		n.known[station] = knownStation{self, now.Add(rememberFor)}
	}
	for node, member := range v.Alive {
		if node == self {
			continue
		}
		n.complete = n.complete && member.Stations != nil
		for _, station := range member.Stations {
			n.known[station] = knownStation{node, now.Add(rememberFor)}
		}
	}
}

// have tells whether a station is a node's.
func (n *stations) have(station neighbour.MAC) bool {
	_, known := n.known[hello.Station(station)]
	return known
}

// of is the node that has the station; empty if it is none's.
func (n *stations) of(station neighbour.MAC) string { return n.known[hello.Station(station)].node }

// attribute tells of a claim which station made it. A frame that tells of the MAC of a node must come from a
// station of that node, or it counts as a claim of the one that sent it: hosts read the ARP or NDP sender
// alone, and any host can write one. A MAC of no node may differ, as that of a virtual router does.
func (n *stations) attribute(claim neighbour.Claim) neighbour.Claim {
	if claim.Source.Station() && n.have(claim.Station) && n.of(claim.Source) != n.of(claim.Station) {
		claim.Station, claim.Source = claim.Source, neighbour.MAC{}
	}
	return claim
}

// strange tells whether a station is no node's, for sure.
func (n *stations) strange(station neighbour.MAC) bool { return n.complete && !n.have(station) }

// defence are the strangers that have addresses which this node answers for. It is
// driven by Machine, which calls due when next says so.
type defence struct {
	mine map[netip.Addr][]links.Link // what is answered for
	of   map[netip.Addr]*conflict
	ask  map[netip.Addr]time.Time // when to ask which station has the address
}

type conflict struct {
	conflictingStation

	link     int
	heard    time.Time // when any stranger was heard last
	defended time.Time
	defences int
	rivalled time.Time // when a station to which the address is left announced it last
}

// isLost tells whether a claim is one of a station that the address is to be left to: it answers each defence, and its MAC
// is lower. Both know that without a word, and one of them goes on.
func (c *conflict) isLost(claim neighbour.Claim, on []links.Link) bool {
	i := slices.IndexFunc(on, func(l links.Link) bool { return l.Index == claim.Index })
	return claim.Announced && c.defences >= yieldAfter && i >= 0 && slices.Compare(claim.Station[:], on[i].MAC) < 0
}

// conflictingStation is the stranger that is told of. Others that have the address, too, are not told of while this
// one is heard: one station can send in the name of any number, and two that both answer would
// take turns for ever.
type conflictingStation struct {
	api.Contest

	last time.Time // when that one was heard last
}

// claimed takes in what a stranger claims, and tells whether it is told of from now on.
func (f *conflictingStation) claimed(now time.Time, claim neighbour.Claim) (news bool) {
	station := claim.Station.String()
	same := f.Station == station && f.Interface == claim.Interface
	if !same && now.Before(f.last.Add(otherAfter)) {
		return false
	}
	f.Station, f.Interface, f.last = station, claim.Interface, now
	return !same
}

// keep forgets all but the addresses that are answered for, and has those asked for that
// are new.
func (c *defence) keep(now time.Time, mine map[netip.Addr][]links.Link, taken []netip.Addr) {
	if c.of == nil {
		c.of, c.ask = map[netip.Addr]*conflict{}, map[netip.Addr]time.Time{}
	}
	c.mine = mine
	maps.DeleteFunc(c.of, func(a netip.Addr, _ *conflict) bool { return mine[a] == nil })
	maps.DeleteFunc(c.ask, func(a netip.Addr, _ time.Time) bool { return mine[a] == nil })
	for _, a := range taken {
		c.ask[a] = now.Add(askAfter)
	}
}

// claimed takes in that a stranger has an address which is answered for, and tells
// whether that is news.
func (c *defence) claimed(now time.Time, claim neighbour.Claim) (news bool) {
	known := c.of[claim.Address]
	if known == nil {
		known = &conflict{conflictingStation: conflictingStation{Contest: api.Contest{Since: now}}}
		c.of[claim.Address], c.ask[claim.Address] = known, now.Add(askEvery)
	}
	known.link, known.heard = claim.Index, now
	if known.isLost(claim, c.mine[claim.Address]) {
		news, known.rivalled, known.Yielded = !known.Yielded, now, true
	}
	return known.claimed(now, claim) || news
}

// yields tells whether an address is left to another station, and not announced.
func (c *defence) yields(a netip.Addr) bool { return c.of[a] != nil && c.of[a].Yielded }

// due ends the contests that are over, and returns what there is to be said now, which addresses are to be asked for, and
// whether any contest ended, or is fought again.
func (c *defence) due(now time.Time) (say []word, ask []netip.Addr, over bool) {
	for a, contest := range c.of {
		if contest.Yielded && !now.Before(contest.rivalled.Add(otherAfter)) {
			contest.Yielded, over = false, true
		}
		switch {
		case !now.Before(contest.heard.Add(overAfter)):
			delete(c.of, a)
			delete(c.ask, a)
			over = true
		case contest.toDefend() && !now.Before(contest.defended.Add(defendEvery)):
			contest.defended = now
			contest.defences++
			say = append(say, word{what: neighbour.Announcement, address: a, link: contest.link})
		}
	}
	for a, at := range c.ask {
		if now.Before(at) {
			continue
		}
		ask = append(ask, a)
		if delete(c.ask, a); c.of[a] != nil {
			c.ask[a] = now.Add(askEvery)
		}
	}
	slices.SortFunc(say, func(a, b word) int { return a.address.Compare(b.address) })
	slices.SortFunc(ask, netip.Addr.Compare)
	return say, ask, over
}

// toDefend tells whether a station was heard since the address was defended last.
func (c *conflict) toDefend() bool { return c.heard.After(c.defended) && !c.Yielded }

// next is when due has something to do, if nothing is heard until then; zero: never.
func (c *defence) next() time.Time {
	var next time.Time
	for _, contest := range c.of {
		next = sooner(next, contest.heard.Add(overAfter))
		if contest.toDefend() {
			next = sooner(next, contest.defended.Add(defendEvery))
		}
		if contest.Yielded {
			next = sooner(next, contest.rivalled.Add(otherAfter))
		}
	}
	for _, at := range c.ask {
		next = sooner(next, at)
	}
	return next
}

// sooner is the earlier of two times, of which a zero one does not count.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
