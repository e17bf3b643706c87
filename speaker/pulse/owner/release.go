package owner

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// yieldAsk is how often a node that goes on answering for an address which its table has given to
// another one asks the network, and the nodes, whether that one answers: it may have been missed.
const yieldAsk = time.Second

// releases are the addresses that this node has to hand over.
//
// Tables do not come to all nodes at one moment. When a new order of the candidates moves an
// address, as when the label of a preferred node changes, or when this node is no candidate
// any more, as when it is drained, the node that had the address may learn of that first. It
// answers until it has heard the other one say that the address is there, be that long: one that
// has lost the API server has the old table, and no node would answer. A node that takes
// over because it came back is different: it says that it serves once it answers.
//
// An address that no node answers for, since tables differ (see backups), is adopted, and handed over in the same way.
// Which of several nodes goes on that have adopted one is decided as in arbitration.
type releases map[netip.Addr]release

// release is one address.
type release struct {
	ask     time.Time // when to ask for the other one next; zero: it was heard
	asked   bool
	adopted bool // no node answered
	poll    poll // of the station that was heard
	// on are the interfaces of the claim that the table had, for when it has none now.
	on []string
}

// part notes the addresses answered for until now for which this node is no candidate any
// more, while others are. heard tells of which another node was heard to answer.
func (y releases) part(now time.Time, answered map[netip.Addr]api.Ownership, before, table *api.Table, v hello.View, heard func(netip.Addr) bool) {
	y.prune(table, v)
	if before == nil {
		return
	}
	for _, a := range table.Elsewhere {
		claim, claimed := before.Claims[a]
		if _, had := answered[a]; had && claimed {
			y.begin(now, a, claim, table.Node, v, heard(a))
		}
	}
}

// prune forgets what there is nothing to hand over of by the table.
func (y releases) prune(table *api.Table, v hello.View) {
	self := v.Alive[table.Node]
	for a := range y {
		_, claimed := table.Claims[a]
		_, elsewhere := slices.BinarySearchFunc(table.Elsewhere, a, netip.Addr.Compare)
		if !claimed && !elsewhere || !table.Serving || table.Leaving || !self.CanServe(a) {
			delete(y, a)
		}
	}
}

// begin notes an address of which that claim made this node the owner. If another node was heard
// to answer for it, by the table that this one has only now, that one is asked at once: it may
// not say so again for long.
func (y releases) begin(now time.Time, a netip.Addr, claim desired.Candidacy, self string, v hello.View, heard bool) {
	if _, known := y[a]; known {
		return
	}
	owner, ok := near(claim, a, v, func(node string) bool { return v.CanServe(node, a) })
	if ok && owner == self || claim.NoPreempt {
		h := release{ask: now.Add(yieldAsk), on: claim.Interfaces}
		if heard {
			h.ask = now
		}
		y[a] = h
	}
}

// adopt begins to answer for an address of another node, as no node answers for it.
func (y releases) adopt(now time.Time, a netip.Addr) {
	y[a] = release{ask: now.Add(yieldAsk), asked: true, adopted: true}
}

// answers tells whether an address is answered for until it is handed over.
func (y releases) answers(a netip.Addr) bool { return !y[a].ask.IsZero() }

// isAdopted tells whether this node answers for an address since no node did.
func (y releases) isAdopted(a netip.Addr) bool { return y[a].adopted }

// names are the interfaces that advertisements named on which addresses are answered for meanwhile.
// Those that were handed over have none, and may be thousands for as long as they are elsewhere.
func (y releases) names() map[string]bool {
	names := map[string]bool{}
	for _, h := range y {
		for _, name := range h.on {
			names[name] = true
		}
	}
	return names
}

// reach adds the links on which addresses without a claim are answered for meanwhile.
func (y releases) reach(r reach, t *api.Table, s *links.Snapshot) {
	for a, h := range y {
		if _, claimed := t.Claims[a]; claimed || h.ask.IsZero() {
			continue
		}
		if on := s.Answering(a, h.on, t.NodeAddrs); len(on) > 0 {
			r[a] = on
		}
	}
}

// update looks which addresses are to be handed over: those answered for until now, that are
// elsewhere by the table and were here by the one before, all else being as it is. heard is that of part.
func (y releases) update(now time.Time, answered map[netip.Addr]api.Ownership, elsewhere []netip.Addr, before, table *api.Table, v hello.View, heard func(netip.Addr) bool) {
	away := make(map[netip.Addr]bool, len(elsewhere)+len(table.Elsewhere))
	for _, a := range table.Elsewhere {
		away[a] = true
	}
	for _, a := range elsewhere {
		away[a] = true
		if _, had := answered[a]; had && before != nil {
			y.begin(now, a, before.Claims[a], table.Node, v, heard(a))
		}
	}
	for a := range y {
		if self := v.Alive[table.Node]; !away[a] || !table.Serving || table.Leaving || !self.CanServe(a) {
			delete(y, a)
		}
	}
}

// still adds the addresses that are answered for until they are handed over.
func (y releases) still(mine map[netip.Addr][]links.Link, r reach) {
	for a, h := range y {
		if !h.ask.IsZero() && len(r[a]) > 0 {
			mine[a] = r[a]
		}
	}
}

// claimed takes in that another node claims an address, and tells whether that ends anything: once the
// node has replied to a poll. Of an address that was adopted, a node that is heard in hellos says so there: two that
// have adopted it would each leave it to the other.
func (y releases) claimed(now time.Time, claim neighbour.Claim, heard bool) (news bool) {
	h := y[claim.Address]
	if h.ask.IsZero() || claim.Probe || h.adopted && heard {
		return false
	}
	if news = h.poll.isAnsweredBy(now, claim); news {
		h = release{}
	} else {
		h.poll.begin(now, claim)
	}
	y[claim.Address] = h
	return news
}

// told takes in what other nodes say of addresses: one that answers on another segment is not heard otherwise.
// Of several that have adopted an address, the one that took it last goes on.
func (y releases) told(self string, v hello.View, epochs map[netip.Addr]uint64) {
	for node, m := range v.Alive {
		if node == self {
			continue
		}
		for _, claim := range m.Claims {
			h, ours := y[claim.Address], epochs[claim.Address]
			switch isLater := claim.Epoch > ours || claim.Epoch == ours && node < self; {
			case h.ask.IsZero():
			case claim.Stance == hello.Answers || h.adopted && claim.Stance == hello.Yields && isLater:
				y[claim.Address] = release{}
			case claim.Stance == hello.Leaves && claim.Epoch == 0 && !h.asked: // it asks
				h.asked = true
				y[claim.Address] = h
			}
		}
	}
}

// claims are what the others are told of addresses that no node took over within a while, or that another node asks
// for, and of those that were adopted: for the one that has to say that it answers.
func (y releases) claims(epochs map[netip.Addr]uint64) []hello.Claim {
	var all []hello.Claim
	for a, h := range y {
		if h.asked && !h.ask.IsZero() {
			all = append(all, hello.Claim{Address: a, Stance: hello.Yields, Epoch: epochs[a]})
		}
	}
	return all
}

// due returns what is to be asked now, and whether that is news for the other nodes.
func (y releases) due(now time.Time) (say []word, news bool) {
	for a, h := range y {
		if h.poll.isDue(now) {
			y[a] = h
			say = append(say, word{neighbour.Probe, a, h.poll.link, h.poll.station})
		}
		if h.ask.IsZero() || now.Before(h.ask) {
			continue
		}
		news = news || !h.asked
		h.ask, h.asked = now.Add(yieldAsk), true
		y[a] = h
		say = append(say, word{what: neighbour.Probe, address: a})
	}
	return say, news
}

// next is when due has something to do; zero: never.
func (y releases) next() time.Time {
	var next time.Time
	for _, h := range y {
		next = sooner(sooner(next, h.ask), h.poll.next())
	}
	return next
}
