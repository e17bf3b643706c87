package pulse

import (
	"net/netip"
	"time"

	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// yieldWithin is for how long a node goes on answering for an address that its table has
// given to another one, unless it hears that one before.
const yieldWithin = time.Second

// yielding are the addresses that this node has to hand over, and until when it goes on
// answering for them; zero: no more.
//
// Tables do not come to all nodes at one moment. When a new order of the candidates moves an
// address, as when the label of a preferred node changes, the node that had it may learn of
// that first. It answers until it has heard the other one say that the address is there. A
// node that takes over because it came back is different: it says that it serves once it
// answers.
type yielding map[netip.Addr]time.Time

// update looks which addresses are to be handed over: those answered for until now, that are
// elsewhere by the table and were here by the one before, all else being as it is.
func (y yielding) update(now time.Time, answered map[netip.Addr]Ownership, elsewhere []netip.Addr, before, table *Table, v hello.View) {
	away := make(map[netip.Addr]bool, len(elsewhere))
	for _, a := range elsewhere {
		away[a] = true
		if _, had := answered[a]; !had || before == nil {
			continue
		}
		if _, known := y[a]; known {
			continue
		}
		owner, ok := election.Owner(before.Claims[a].Candidates, func(node string) bool { return v.CanServe(node, a) })
		if ok && owner == table.Node {
			y[a] = now.Add(yieldWithin)
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
	for a, until := range y {
		if !until.IsZero() && len(r[a]) > 0 {
			mine[a] = r[a]
		}
	}
}

// claimed takes in that another node claims an address, and tells whether that ends anything.
func (y yielding) claimed(claim neighbour.Claim) (news bool) {
	if until := y[claim.Address]; until.IsZero() || claim.Probe {
		return false
	}
	y[claim.Address] = time.Time{}
	return true
}

// due ends what has lasted long enough, and tells whether it ended anything.
func (y yielding) due(now time.Time) (over bool) {
	for a, until := range y {
		if !until.IsZero() && !now.Before(until) {
			y[a], over = time.Time{}, true
		}
	}
	return over
}

// next is when due has something to do; zero: never.
func (y yielding) next() time.Time {
	var next time.Time
	for _, until := range y {
		next = sooner(next, until)
	}
	return next
}
