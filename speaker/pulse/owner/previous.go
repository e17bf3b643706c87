package owner

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// previousOwners are, by address of the table, the last other node that answered for it as this
// one sees it. While another node has an address, that is the one: so it is known, and in the
// kernel, before the address moves. The forwarding hands over to it what belongs to connections
// that it has, for as long as it is alive, or its kernel is; see dataplanes. Of an address that was
// never seen elsewhere it is the node that would answer for it if this node did not, as it was before this
// one came back.
type previousOwners map[netip.Addr]string

// follow takes in which node answers for what. mine are those that this node answers for, or is about to; left
// are those of them that are left to others. Before
// the mesh is settled it is the one that would, of those heard by then: a node that comes back is to know
// before it takes over. So is one that becomes a candidate again: the address may have moved among the others since.
//
// Of what this node had, and is no candidate for any more, it is the node that came next by the table
// before. For a moment both may answer, until the one hears the other: a client that turns back
// brings connections that the other one has.
func (p previousOwners) follow(before, t *api.Table, v hello.View, mine map[netip.Addr][]links.Link, left map[netip.Addr]bool) {
	note := func(a netip.Addr, claim desired.Candidacy) {
		owner, ok := near(claim, a, v, func(node string) bool { return node != t.Node && v.CanServe(node, a) })
		if ok {
			p[a] = owner
		}
	}
	for a, claim := range t.Claims {
		_, is := mine[a]
		_, known := p[a]
		if !is || left[a] || !known || before != nil && !claimed(before, a) {
			note(a, claim)
		}
	}
	for a := range p {
		if claimed(t, a) {
			continue
		}
		if _, elsewhere := slices.BinarySearchFunc(t.Elsewhere, a, netip.Addr.Compare); !elsewhere {
			delete(p, a)
		} else if before != nil {
			note(a, before.Claims[a])
		}
	}
}

// claimed tells whether a table has this node among the candidates for an address.
func claimed(t *api.Table, a netip.Addr) bool {
	_, is := t.Claims[a]
	return is
}

// among tells which of the nodes had an address before others.
func (p previousOwners) among(nodes []string) map[string]bool {
	of := make(map[string]bool, len(nodes))
	if len(nodes) == 0 {
		return of
	}
	for _, node := range p {
		if !of[node] && slices.Contains(nodes, node) {
			of[node] = true
		}
	}
	return of
}

// knowing are those that have their connections still, and "" in place of those that do not: a question
// to a dead node is in vain.
func (p previousOwners) knowing(goesOn func(node string) bool) map[netip.Addr]string {
	known := make(map[netip.Addr]string, len(p))
	for a, node := range p {
		if !goesOn(node) {
			node = ""
		}
		known[a] = node
	}
	return known
}

// nodeAddrs are, by address of the table, the address of the node that had it before, if that has one of the
// family. While no node is known that had it, it is the first candidate beside this node that is not dead: a node that
// returns has it in its kernel before it has heard any other. One that never had the address refuses the
// packets that it is handed, as this node would have.
func (p previousOwners) nodeAddrs(t *api.Table, goesOn, dead func(node string) bool) map[netip.Addr]netip.Addr {
	known := p.knowing(goesOn)
	for a, claim := range t.Claims {
		if _, is := known[a]; is {
			continue
		}
		others := func(node string) bool { return node != t.Node && !dead(node) }
		if at := slices.IndexFunc(claim.Candidates, others); at >= 0 {
			known[a] = claim.Candidates[at]
		}
	}
	nodes := make(map[netip.Addr]netip.Addr, len(known))
	for a, node := range known {
		ofFamily := func(n netip.Addr) bool { return addr.FamilyOf(n) == addr.FamilyOf(a) }
		if at := slices.IndexFunc(t.Peers[node].Addrs, ofFamily); at >= 0 {
			nodes[a] = t.Peers[node].Addrs[at]
		}
	}
	return nodes
}
