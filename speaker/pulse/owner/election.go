package owner

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// reach says on which links each claimed address would be answered for.
// Addresses that it does not hold cannot be answered for here.
type reach map[netip.Addr][]links.Link

// reachOf finds the links for the claims of a table.
func reachOf(t *api.Table, s *links.Snapshot) reach {
	r := make(reach, len(t.Claims))
	for a, claim := range t.Claims {
		r[a] = s.Answering(a, claim.Interfaces, t.NodeAddrs)
	}
	return r
}

// networks are the links that are answered on, by family: each once, sorted by index.
type networks map[addr.Family][]links.Link

func (r reach) networks() networks {
	all := map[addr.Family]map[int]links.Link{addr.IPv4: {}, addr.IPv6: {}}
	for a, on := range r {
		of := all[addr.FamilyOf(a)]
		for i := range on {
			if _, has := of[on[i].Index]; !has {
				of[on[i].Index] = on[i]
			}
		}
	}
	on := networks{}
	for family, of := range all {
		on[family] = links.NewSnapshot(slices.Collect(maps.Values(of))...).All()
	}
	return on
}

// without takes the places that failed out of the reach, the networks of which are these, and returns those that are left.
// The lists that it had may be those of another reach.
func (r reach) without(failed map[Place]bool, networks networks) networks {
	if len(failed) == 0 {
		return networks
	}
	for a, on := range r {
		isOut := func(l links.Link) bool { return failed[Place{addr.FamilyOf(a), l.Index}] }
		if slices.ContainsFunc(on, isOut) {
			r[a] = slices.DeleteFunc(slices.Clone(on), isOut)
		}
	}
	return r.networks()
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
// first candidate that can serve them (see near), once the view of the mesh is settled.
// The view already holds what this node itself is unable to serve, but not yet
// that it serves: it answers before it says so. One that does not serve answers for
// nothing, whatever its table says. elsewhere are the addresses that another
// node answers for, and behind those of them that this one is among the next to take over. There, too, are
// those that no node can answer for while this is the first candidate alive.
func owned(t *api.Table, v hello.View, r reach, serves bool, keep keeper) (mine map[netip.Addr][]links.Link, elsewhere []netip.Addr, behind map[netip.Addr]standby) {
	mine, behind = map[netip.Addr][]links.Link{}, map[netip.Addr]standby{}
	if !v.Settled {
		return mine, nil, behind
	}
	self := v.Alive[t.Node]
	self.Serving = t.Serving && !t.Leaving && serves
	heirs := asymmetricOf(t.Node, v)
	for a, on := range r {
		able := func(node string) bool {
			if node == t.Node {
				return self.CanServe(a)
			}
			return v.CanServe(node, a)
		}
		claim := t.Claims[a]
		owner, ok := near(claim, a, v, able)
		if ok && claim.NoPreempt {
			owner = keep.owner(candidacy{a, claim, v, t.Node, &self}, owner)
		}
		if ok && owner == t.Node {
			if heir, is := heirs.of(claim, a, v, able); is {
				owner = heir
				keep.presume(a, claim, heir)
			}
		}
		switch {
		case ok && owner != t.Node:
			elsewhere = append(elsewhere, a)
			if after, is := placeAfter(owner, t.Node, claim, a, v, able); is && hears(t.Node, owner, claim, a, v, on) {
				behind[a] = standby{owner, after}
			}
		case ok && len(on) > 0:
			mine[a] = on
		case !ok:
			if first, _ := election.Owner(claim.Candidates, v.IsAlive); first == t.Node {
				behind[a] = standby{}
			}
		}
	}
	return mine, elsewhere, behind
}

// near is the node that answers for an address: the first candidate that is able. One that says that it has
// no subnet with the address, and is thus reached by routers at best, leaves it to the first that says that it has
// one: clients are there. Of nodes that say neither it is not
// known, and what they think of it is the same order without them; so no node comes before them for it. Where the
// advertisements name the interfaces of a node, it is meant to answer there whatever its subnets. One that is damped
// leaves it to the first that is not, unless clients reach only the one that is.
func near(claim desired.Candidacy, a netip.Addr, v hello.View, able func(node string) bool) (string, bool) {
	first, ok := nearest(claim, a, v, able)
	if !ok || !v.Alive[first].Damped {
		return first, ok
	}
	steady, ok := nearest(claim, a, v, func(node string) bool { return able(node) && !v.Alive[node].Damped })
	isFar := func(node string) bool { return !claim.IsNamed(node) && v.Alive[node].Lacks(a) }
	if !ok || isFar(steady) && !isFar(first) {
		return first, true
	}
	return steady, true
}

// nearest is near as if no node were damped.
func nearest(claim desired.Candidacy, a netip.Addr, v hello.View, able func(node string) bool) (string, bool) {
	first, ok := election.Owner(claim.Candidates, able)
	if !ok || claim.IsNamed(first) || !v.Alive[first].Lacks(a) {
		return first, ok
	}
	there := func(node string) bool { return claim.IsNamed(node) || v.Alive[node].Has(a) }
	if in, ok := election.Owner(claim.Candidates, func(node string) bool { return able(node) && there(node) }); ok {
		return in, true
	}
	return first, true
}

// standby is the place of this node among those that would take an address over.
type standby struct {
	owner string // the node that is to answer now; empty: none can
	after int    // how many come before this node once the owner is gone; 0: it is the runner-up
}

// standbys is how many nodes stand by for an address.
const standbys = 8

// hears tells whether this node would hear the owner of an address answer on its links: one without a subnet that
// has the address hears nothing of an owner that has one.
func hears(self, owner string, claim desired.Candidacy, a netip.Addr, v hello.View, on []links.Link) bool {
	return !v.Alive[owner].Has(a) || claim.IsNamed(self) || len(links.Holding(a, on)) > 0
}

// placeAfter is how many nodes come between the owner of an address and self, false if more than stand by, or
// if self is unable. Which of two comes earlier after the runner-up does not depend on where the address is on-link.
func placeAfter(owner, self string, claim desired.Candidacy, a netip.Addr, v hello.View, able func(node string) bool) (int, bool) {
	next, ok := near(claim, a, v, func(node string) bool { return node != owner && able(node) })
	if !ok || next == self {
		return 0, ok
	}
	after := 1
	for _, node := range claim.Candidates {
		switch {
		case node == self:
			return after, able(self)
		case node != owner && node != next && able(node):
			after++
		}
		if after == standbys {
			break
		}
	}
	return 0, false
}

// placed is the ownership with the candidates before this node, and why
// they do not answer, and the next after it that is alive and able.
func placed(o api.Ownership, t *api.Table, v hello.View, a netip.Addr) api.Ownership {
	o.Dead, o.Unable, o.Distant, o.Damped, o.Preferred = nil, nil, nil, nil, nil
	candidates := t.Claims[a].Candidates
	place := slices.Index(candidates, t.Node)
	for _, node := range candidates[:max(place, 0)] {
		switch m, alive := v.Alive[node]; {
		case !alive:
			o.Dead = append(o.Dead, node)
		case !v.CanServe(node, a):
			o.Unable = append(o.Unable, node)
		case m.Lacks(a) && !t.Claims[a].IsNamed(node):
			o.Distant = append(o.Distant, node)
		case t.Claims[a].NoPreempt:
			o.Preferred = append(o.Preferred, node)
		case m.Damped:
			o.Damped = append(o.Damped, node)
		}
	}
	o.Next, _ = near(t.Claims[a], a, v, func(node string) bool { return node != t.Node && v.CanServe(node, a) })
	return o
}

// without are the addresses that need not wait.
func without(mine map[netip.Addr][]links.Link, wait map[netip.Addr]bool) map[netip.Addr][]links.Link {
	mine = maps.Clone(mine)
	maps.DeleteFunc(mine, func(a netip.Addr, _ []links.Link) bool { return wait[a] })
	return mine
}
