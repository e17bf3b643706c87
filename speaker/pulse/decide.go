package pulse

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// reach says on which links each claimed address would be answered for.
// Addresses that it does not hold cannot be answered for here.
type reach map[netip.Addr][]links.Link

// reachOf finds the links for the claims of a table. IPv6 has no place in it
// yet, since nothing answers neighbour solicitations.
func reachOf(t Table, s *links.Snapshot) reach {
	r := make(reach, len(t.Claims))
	for a, claim := range t.Claims {
		if a.Is4() {
			r[a] = s.Answering(a, claim.Interfaces, t.NodeAddrs)
		}
	}
	return r
}

// links returns every link of the reach once, sorted by index.
func (r reach) links() []links.Link {
	all := map[int]links.Link{}
	for _, on := range r {
		for _, l := range on {
			all[l.Index] = l
		}
	}
	return links.NewSnapshot(slices.Collect(maps.Values(all))...).All()
}

// without takes the links that failed out of the reach.
func (r reach) without(failed map[int]error) {
	for a, on := range r {
		r[a] = slices.DeleteFunc(on, func(l links.Link) bool { return failed[l.Index] != nil })
	}
}

// unable lists the addresses that cannot be answered for, sorted.
func (r reach) unable() []netip.Addr {
	var u []netip.Addr
	for a, on := range r {
		if len(on) == 0 {
			u = append(u, a)
		}
	}
	slices.SortFunc(u, netip.Addr.Compare)
	return u
}

// owned decides which addresses this node answers for: those of which it is the
// first candidate that can serve them, once the view of the mesh is settled.
// The view already holds what this node itself is unable to serve, but not yet
// that it serves: it answers before it says so.
func owned(t Table, v hello.View, r reach) map[netip.Addr][]links.Link {
	mine := map[netip.Addr][]links.Link{}
	if !v.Settled {
		return mine
	}
	self := v.Alive[t.Node]
	self.Serving = t.Serving && !t.Leaving
	for a, on := range r {
		owner, ok := election.Owner(t.Claims[a].Candidates, func(node string) bool {
			if node == t.Node {
				return self.CanServe(a)
			}
			return v.CanServe(node, a)
		})
		if ok && owner == t.Node && len(on) > 0 {
			mine[a] = on
		}
	}
	return mine
}

// wanted is what the mesh is told: the table's word, and the addresses out of
// reach so that the next candidate takes them over. IPv6 ones are left out, as
// no candidate answers for these. A node that is not ready serves nothing yet,
// whatever the table says.
func wanted(t Table, unable []netip.Addr, ready bool) hello.Wanted {
	all := slices.DeleteFunc(slices.Concat(t.Unable, unable), netip.Addr.Is6)
	slices.SortFunc(all, netip.Addr.Compare)
	return hello.Wanted{
		Peers:   t.Peers,
		Key:     []byte(t.Key),
		Serving: t.Serving && ready,
		Unable:  slices.Compact(all),
		Leaving: t.Leaving,
	}
}
