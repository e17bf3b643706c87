package pulse

import (
	"net/netip"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// yieldWithin is for how long a node goes on answering for an address that its table has
// given to another one, unless it hears that one before.
const yieldWithin = time.Second

// yielding are the addresses that this node has to hand over.
//
// Tables do not come to all nodes at one moment. When a new order of the candidates moves an
// address, as when the label of a preferred node changes, or when this node is no candidate
// any more, as when it is drained, the node that had the address may learn of that first. It
// answers until it has heard the other one say that the address is there. A node that takes
// over because it came back is different: it says that it serves once it answers.
type yielding map[netip.Addr]handover

// handover is one address.
type handover struct {
	until time.Time // for how long this node goes on answering; zero: no more
	// on are the interfaces of the claim that the table had, for when it has none now.
	on []string
}

// part notes the addresses answered for until now for which this node is no candidate any
// more, while others are.
func (y yielding) part(now time.Time, answered map[netip.Addr]Ownership, before, table *Table, v hello.View) {
	if before == nil {
		return
	}
	for _, a := range table.Elsewhere {
		claim, claimed := before.Claims[a]
		if _, had := answered[a]; had && claimed {
			y.begin(now, a, claim, table.Node, v)
		}
	}
}

// begin notes an address of which that claim made this node the owner.
func (y yielding) begin(now time.Time, a netip.Addr, claim desired.Claim, self string, v hello.View) {
	if _, known := y[a]; known {
		return
	}
	owner, ok := election.Owner(claim.Candidates, func(node string) bool { return v.CanServe(node, a) })
	if ok && owner == self {
		y[a] = handover{until: now.Add(yieldWithin), on: claim.Interfaces}
	}
}

// reach adds the links on which addresses without a claim are answered for meanwhile.
func (y yielding) reach(r reach, t *Table, s *links.Snapshot) {
	for a, h := range y {
		if _, claimed := t.Claims[a]; claimed || h.until.IsZero() {
			continue
		}
		if on := s.Answering(a, h.on, t.NodeAddrs); len(on) > 0 {
			r[a] = on
		}
	}
}

// update looks which addresses are to be handed over: those answered for until now, that are
// elsewhere by the table and were here by the one before, all else being as it is.
func (y yielding) update(now time.Time, answered map[netip.Addr]Ownership, elsewhere []netip.Addr, before, table *Table, v hello.View) {
	away := make(map[netip.Addr]bool, len(elsewhere)+len(table.Elsewhere))
	for _, a := range table.Elsewhere {
		away[a] = true
	}
	for _, a := range elsewhere {
		away[a] = true
		if _, had := answered[a]; had && before != nil {
			y.begin(now, a, before.Claims[a], table.Node, v)
		}
	}
	for a := range y {
		if self := v.Alive[table.Node]; !away[a] || !table.Serving || table.Leaving || !self.CanServe(a) {
			delete(y, a)
		}
	}
}

// still adds the addresses that are answered for until they are handed over.
func (y yielding) still(mine map[netip.Addr][]links.Link, r reach) {
	for a, h := range y {
		if !h.until.IsZero() && len(r[a]) > 0 {
			mine[a] = r[a]
		}
	}
}

// claimed takes in that another node claims an address, and tells whether that ends anything.
func (y yielding) claimed(claim neighbour.Claim) (news bool) {
	if h := y[claim.Address]; h.until.IsZero() || claim.Probe {
		return false
	}
	y[claim.Address] = handover{}
	return true
}

// due ends what has lasted long enough, and tells whether it ended anything.
func (y yielding) due(now time.Time) (over bool) {
	for a, h := range y {
		if !h.until.IsZero() && !now.Before(h.until) {
			y[a], over = handover{}, true
		}
	}
	return over
}

// next is when due has something to do; zero: never.
func (y yielding) next() time.Time {
	var next time.Time
	for _, h := range y {
		next = sooner(next, h.until)
	}
	return next
}
