package allocation

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// quota is what one namespace holds of one pool.
type quota struct {
	pool, namespace string
}

// lowestFree finds the lowest free address of the family in the first of the pools that
// are asked for that has one; if it asks for none, in the first pool that gives
// addresses by itself. A reason and a message say why there is none.
func (p *planner) lowestFree(q asker, f addr.Family) (free netip.Addr, reason, message string) {
	for _, name := range q.pools() {
		a, why, text := p.lowestFreeOf(q, name, f)
		if why == "" {
			return a, "", ""
		}
		if reason == "" || reason == ReasonNoPool {
			reason, message = why, text // a pool of the other family explains nothing
		}
	}
	if len(q.pools()) > 0 {
		return netip.Addr{}, reason, message
	}
	var full []string
	for _, sh := range p.inTurn(q, f) {
		if !q.unasked(sh.pool) || !sh.has(f) {
			continue
		}
		switch why, text := p.closed(sh, q); {
		case why == ReasonQuotaExceeded:
			reason, message = why, text
			continue
		case why != "":
			continue
		}
		if a := sh.lowestFree(f, p.taken); a.IsValid() {
			return a, "", ""
		}
		full = append(full, sh.pool.Name)
	}
	switch {
	case reason != "":
		return netip.Addr{}, reason, message
	case len(full) == 0:
		return netip.Addr{}, ReasonNoPool, fmt.Sprintf("no IPAddressPool gives this %s %s addresses without being asked: create one, "+
			"or look at autoAssign, disabled and serviceAllocation of those that there are", q.Object().Kind, f)
	}
	return netip.Addr{}, ReasonPoolExhausted, fmt.Sprintf("no %s address is free in IPAddressPool %s: add addresses to a pool, or create one", f, list(full))
}

// inTurn are all pools in the order in which the asker tries them for an address of the
// family. A Service of both families is to have both on one network if one can be had: among
// pools of equal rank, the one comes first from which it has the other family, or else
// those that have both for it.
func (p *planner) inTurn(q asker, f addr.Family) []*shelf {
	if q.service == nil || len(p.stock.shelves) < 2 {
		return p.stock.shelves
	}
	wanted := families(q.service)
	if len(wanted) < 2 {
		return p.stock.shelves
	}
	var other []netip.Addr
	for _, a := range slices.Concat(p.move.having, p.move.taking, q.service.Request.Addresses) {
		if addr.FamilyOf(a) != f {
			other = append(other, a)
		}
	}
	first := make(map[*shelf]bool, len(p.stock.shelves))
	for _, sh := range p.stock.shelves {
		if len(other) > 0 {
			first[sh] = slices.ContainsFunc(other, sh.pool.Contains)
		} else {
			first[sh] = p.hasAll(sh, q, wanted)
		}
	}
	turn := slices.Clone(p.stock.shelves)
	slices.SortStableFunc(turn, func(a, b *shelf) int { return cmp.Or(byRank(a, b), last(!first[a], !first[b])) })
	return turn
}

// hasAll tells whether the pool would give the asker an address of each of the families.
func (p *planner) hasAll(sh *shelf, q asker, wanted []addr.Family) bool {
	if !q.unasked(sh.pool) {
		return false
	}
	if reason, _ := p.closed(sh, q); reason != "" {
		return false
	}
	if most := sh.pool.MaxPerNamespace; most > 0 && p.holds(q, sh.pool)+len(wanted) > most {
		return false
	}
	return !slices.ContainsFunc(wanted, func(f addr.Family) bool { return !sh.lowestFree(f, p.taken).IsValid() })
}

func (p *planner) lowestFreeOf(q asker, name string, f addr.Family) (free netip.Addr, reason, message string) {
	sh := p.stock.shelf(name)
	if sh == nil {
		return netip.Addr{}, ReasonPoolNotFound, fmt.Sprintf("the requested IPAddressPool %q does not exist", name)
	}
	if !sh.has(f) {
		return netip.Addr{}, ReasonNoPool, fmt.Sprintf("the requested IPAddressPool %q has no %s addresses", name, f)
	}
	if reason, message = p.closed(sh, q); reason != "" {
		return netip.Addr{}, reason, message
	}
	if a := sh.lowestFree(f, p.taken); a.IsValid() {
		return a, "", ""
	}
	return netip.Addr{}, ReasonPoolExhausted, fmt.Sprintf("no %s address is free in the requested IPAddressPool %q", f, name)
}

// occupied are the addresses of pools that the cluster itself uses, and what for.
func (st *stock) occupied(c *view.Cluster) map[netip.Addr]view.Use {
	found := map[netip.Addr]view.Use{}
	for a, use := range c.Occupied() {
		if st.poolOf(a) != nil {
			found[a] = use
		}
	}
	return found
}

// closed says why a pool gives the asker no new address, whichever; an empty reason
// means that it would.
func (p *planner) closed(sh *shelf, q asker) (reason, message string) {
	pool := sh.pool
	switch {
	case sh.rival != nil:
		return ReasonPoolBlocked, fmt.Sprintf("IPAddressPool %q gives no addresses while it overlaps pool %q", pool.Name, sh.rival.Name)
	case pool.Disabled:
		return ReasonPoolDisabled, fmt.Sprintf("IPAddressPool %q gives no new addresses (disabled: true)", pool.Name)
	case !p.serves(pool, q):
		return ReasonPoolNotAllowed, fmt.Sprintf("IPAddressPool %q is not for this %s: its serviceAllocation does not choose it", pool.Name, q.Object().Kind)
	case pool.MaxPerNamespace > 0 && p.holds(q, pool) >= pool.MaxPerNamespace:
		return ReasonQuotaExceeded, fmt.Sprintf("namespace %q has %d addresses of IPAddressPool %q, and maxPerNamespace allows %d",
			q.ref().Namespace, p.holds(q, pool), pool.Name, pool.MaxPerNamespace)
	}
	return "", ""
}

// closedFor says why the asker cannot get this address of the pool. One that its
// namespace has already costs it nothing.
func (p *planner) closedFor(sh *shelf, q asker, a netip.Addr) (reason, message string) {
	reason, message = p.closed(sh, q)
	if reason == ReasonQuotaExceeded && p.belongs(a, q.ref().Namespace) {
		return "", ""
	}
	return reason, message
}

// offers tells whether the asker may get the address without asking for it.
func (p *planner) offers(q asker, a netip.Addr) bool {
	if p.occupied[a] != "" || p.ServiceRange(a).IsValid() {
		return false
	}
	open := func(sh *shelf) bool {
		reason, _ := p.closedFor(sh, q, a)
		return reason == "" && !sh.pool.Avoids(a)
	}
	if len(q.pools()) == 0 {
		pool := p.stock.poolOf(a)
		return pool != nil && q.unasked(pool) && open(p.stock.shelf(pool.Name))
	}
	return slices.ContainsFunc(q.pools(), func(name string) bool {
		sh := p.stock.shelf(name)
		return sh != nil && sh.pool.Contains(a) && open(sh)
	})
}

// returning finds an address that the asker, or one of its name, has left a short time
// ago and may have again; the zero Addr for none.
func (p *planner) returning(q asker, f addr.Family) netip.Addr {
	var lowest netip.Addr
	for _, a := range p.left[q.ref()] {
		if addr.FamilyOf(a) == f && (!lowest.IsValid() || a.Less(lowest)) && p.idle(a) && p.offers(q, a) {
			lowest = a
		}
	}
	return lowest
}

// move is what the asker that is being settled has had, gives up and has chosen.
type move struct {
	having, giving, taking []netip.Addr
}

// belongs tells whether a Service or a reservation of the namespace holds the address.
func (p *planner) belongs(a netip.Addr, namespace string) bool {
	return p.tenantsOf(a).of(namespace) || p.reservedBy(a, namespace, nil)
}

// reservedBy tells whether a reservation of the namespace, but for one, holds the address.
func (p *planner) reservedBy(a netip.Addr, namespace string, but *view.Reservation) bool {
	return slices.ContainsFunc(p.reserved[a], func(r *view.Reservation) bool { return r.Namespace == namespace && r != but })
}

// holds counts the addresses of the pool that the namespace of the asker has, as it
// will be when the asker has moved.
func (p *planner) holds(q asker, pool *view.Pool) int {
	namespace := q.ref().Namespace
	count := p.held[quota{pool.Name, namespace}]
	of := func(a netip.Addr) bool { from := p.stock.countsFor(a); return from != nil && from.Name == pool.Name }
	for _, a := range p.move.giving {
		if of(a) && !p.tenantsOf(a).without(q.service).of(namespace) && !p.reservedBy(a, namespace, q.reservation) {
			count--
		}
	}
	for _, a := range p.move.taking {
		if of(a) && !p.belongs(a, namespace) {
			count++
		}
	}
	return count
}

// countQuota notes that the namespace is about to have the address.
func (p *planner) countQuota(a netip.Addr, namespace string) {
	if !p.stock.quotas || p.belongs(a, namespace) {
		return
	}
	if pool := p.stock.countsFor(a); pool != nil && pool.MaxPerNamespace > 0 {
		p.held[quota{pool.Name, namespace}]++
	}
}
