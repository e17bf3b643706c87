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
func (p *planner) lowestFree(o owner, f addr.Family) (free netip.Addr, reason, message string) {
	for _, name := range o.pools() {
		a, why, text := p.lowestFreeOf(o, name, f)
		if why == "" {
			return a, "", ""
		}
		if reason == "" || reason == ReasonNoPool {
			reason, message = why, text // a pool of the other family explains nothing
		}
	}
	if len(o.pools()) > 0 {
		return netip.Addr{}, reason, message
	}
	var full []string
	for _, fp := range p.inTurn(o, f) {
		if !o.unasked(fp.pool) || !fp.has(f) {
			continue
		}
		switch why, text := p.closed(fp, o); {
		case why == ReasonQuotaExceeded:
			reason, message = why, text
			continue
		case why != "":
			continue
		}
		if a := fp.lowestFree(f, p.taken); a.IsValid() {
			return a, "", ""
		}
		full = append(full, fp.pool.Name)
	}
	switch {
	case reason != "":
		return netip.Addr{}, reason, message
	case len(full) == 0:
		return netip.Addr{}, ReasonNoPool, fmt.Sprintf("no IPAddressPool gives this %s %s addresses without being asked: create one, "+
			"or look at autoAssign, disabled and serviceAllocation of those that there are", o.Object().Kind, f)
	}
	return netip.Addr{}, ReasonPoolExhausted, fmt.Sprintf("no %s address is free in IPAddressPool %s: add addresses to a pool, or create one", f, list(full))
}

// inTurn are all pools in the order in which the owner tries them for an address of the
// family. A Service of both families is to have both on one network if one can be had: among
// pools of equal rank, the one comes first from which it has the other family, or else
// those that have both for it.
func (p *planner) inTurn(o owner, f addr.Family) []*freePool {
	if o.service == nil || len(p.free.pools) < 2 {
		return p.free.pools
	}
	wanted := families(o.service)
	if len(wanted) < 2 {
		return p.free.pools
	}
	var other []netip.Addr
	for _, a := range slices.Concat(p.move.having, p.move.taking, o.service.Request.Addresses) {
		if addr.FamilyOf(a) != f {
			other = append(other, a)
		}
	}
	first := make(map[*freePool]bool, len(p.free.pools))
	for _, fp := range p.free.pools {
		if len(other) > 0 {
			first[fp] = slices.ContainsFunc(other, fp.pool.Contains)
		} else {
			first[fp] = p.hasAll(fp, o, wanted)
		}
	}
	turn := slices.Clone(p.free.pools)
	slices.SortStableFunc(turn, func(a, b *freePool) int { return cmp.Or(byRank(a, b), last(!first[a], !first[b])) })
	return turn
}

// hasAll reports whether the pool would give the owner an address of each of the families.
func (p *planner) hasAll(fp *freePool, o owner, wanted []addr.Family) bool {
	if !o.unasked(fp.pool) {
		return false
	}
	if reason, _ := p.closed(fp, o); reason != "" {
		return false
	}
	if most := fp.pool.MaxPerNamespace; most > 0 && p.holds(o, fp.pool)+len(wanted) > most {
		return false
	}
	return !slices.ContainsFunc(wanted, func(f addr.Family) bool { return !fp.lowestFree(f, p.taken).IsValid() })
}

func (p *planner) lowestFreeOf(o owner, name string, f addr.Family) (free netip.Addr, reason, message string) {
	fp := p.free.pool(name)
	if fp == nil {
		return netip.Addr{}, ReasonPoolNotFound, fmt.Sprintf("the requested IPAddressPool %q does not exist", name)
	}
	if !fp.has(f) {
		return netip.Addr{}, ReasonNoPool, fmt.Sprintf("the requested IPAddressPool %q has no %s addresses", name, f)
	}
	if reason, message = p.closed(fp, o); reason != "" {
		return netip.Addr{}, reason, message
	}
	if a := fp.lowestFree(f, p.taken); a.IsValid() {
		return a, "", ""
	}
	return netip.Addr{}, ReasonPoolExhausted, fmt.Sprintf("no %s address is free in the requested IPAddressPool %q", f, name)
}

// closed says why a pool gives the owner no new address, whichever; an empty reason
// means that it would.
func (p *planner) closed(fp *freePool, o owner) (reason, message string) {
	pool := fp.pool
	switch {
	case fp.rival != nil:
		return ReasonPoolBlocked, fmt.Sprintf("IPAddressPool %q gives no addresses while it overlaps pool %q", pool.Name, fp.rival.Name)
	case pool.Disabled:
		return ReasonPoolDisabled, fmt.Sprintf("IPAddressPool %q gives no new addresses (disabled: true)", pool.Name)
	case !p.serves(pool, o):
		return ReasonPoolNotAllowed, fmt.Sprintf("IPAddressPool %q is not for this %s: its serviceAllocation does not choose it", pool.Name, o.Object().Kind)
	case pool.MaxPerNamespace > 0 && p.holds(o, pool) >= pool.MaxPerNamespace:
		return ReasonQuotaExceeded, fmt.Sprintf("namespace %q has %d addresses of IPAddressPool %q, those that cool down included, and maxPerNamespace allows %d",
			o.ref().Namespace, p.holds(o, pool), pool.Name, pool.MaxPerNamespace)
	}
	return "", ""
}

// closedFor says why the owner cannot get this address of the pool. One that its
// namespace has already costs it nothing.
func (p *planner) closedFor(fp *freePool, o owner, a netip.Addr) (reason, message string) {
	reason, message = p.closed(fp, o)
	if reason == ReasonQuotaExceeded && p.belongs(a, o.ref().Namespace) {
		return "", ""
	}
	return reason, message
}

// offers reports whether the owner may get the address without asking for it.
func (p *planner) offers(o owner, a netip.Addr) bool {
	if _, used := p.free.used.Use(a); used {
		return false
	}
	open := func(fp *freePool) bool {
		reason, _ := p.closedFor(fp, o, a)
		return reason == "" && !fp.pool.Avoids(a)
	}
	if len(o.pools()) == 0 {
		pool := p.free.poolOf(a)
		return pool != nil && o.unasked(pool) && open(p.free.pool(pool.Name))
	}
	return slices.ContainsFunc(o.pools(), func(name string) bool {
		fp := p.free.pool(name)
		return fp != nil && fp.pool.Contains(a) && open(fp)
	})
}

// returning finds an address that the owner, or one of its name, has left a short time
// ago and may have again; the zero Addr for none.
func (p *planner) returning(o owner, f addr.Family) netip.Addr {
	var lowest netip.Addr
	for _, a := range p.left[o.ref()] {
		if addr.FamilyOf(a) == f && (!lowest.IsValid() || a.Less(lowest)) && p.idle(a) && p.offers(o, a) {
			lowest = a
		}
	}
	return lowest
}

// move is what the owner that is being settled has had, gives up and has chosen.
type move struct {
	having, giving, taking []netip.Addr
}

// belongs reports whether a Service or a reservation of the namespace holds the address, or it
// is cooling down for one.
func (p *planner) belongs(a netip.Addr, namespace string) bool {
	return p.usedBy(a, namespace, nil) || p.reservedBy(a, namespace, nil) || p.rests(a, namespace)
}

// rests reports whether the address of a pool is cooling down for the namespace.
func (p *planner) rests(a netip.Addr, namespace string) bool {
	former, cooling := p.Cooling[a]
	return cooling && former.Namespace == namespace && p.free.poolOf(a) != nil
}

// rest takes in what is cooling down. It counts for the namespace that left it, since no other may
// have it.
func (p *planner) rest() {
	for a, ref := range p.Cooling {
		p.left[ref] = append(p.left[ref], a)
		pool := p.free.poolOf(a)
		if s := p.settled.on[a]; pool != nil && pool.MaxPerNamespace > 0 && (s == nil || s.Namespace != ref.Namespace) {
			p.held[quota{pool.Name, ref.Namespace}]++
		}
	}
}

// usedBy reports whether a Service of the namespace, but for one, is on the address.
func (p *planner) usedBy(a netip.Addr, namespace string, but *view.Service) bool {
	return slices.ContainsFunc(p.tenantsOf(a), func(s *view.Service) bool { return s.Namespace == namespace && s != but })
}

// reservedBy reports whether a reservation of the namespace, but for one, holds the address.
func (p *planner) reservedBy(a netip.Addr, namespace string, but *view.Reservation) bool {
	return slices.ContainsFunc(p.reserved[a], func(r *view.Reservation) bool { return r.Namespace == namespace && r != but })
}

// holds counts the addresses of the pool that the namespace of the owner has, and those that cool
// down for it, as it will be when the owner has moved.
func (p *planner) holds(o owner, pool *view.Pool) int {
	namespace := o.ref().Namespace
	count := p.held[quota{pool.Name, namespace}]
	of := func(a netip.Addr) bool { from := p.free.countsFor(a); return from != nil && from.Name == pool.Name }
	for _, a := range p.move.giving {
		cools := pool.CoolDown > 0 && pool.Contains(a) || p.rests(a, namespace)
		if of(a) && !cools && !p.usedBy(a, namespace, o.service) && !p.reservedBy(a, namespace, o.reservation) {
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
	if !p.free.quotas || p.belongs(a, namespace) {
		return
	}
	if pool := p.free.countsFor(a); pool != nil && pool.MaxPerNamespace > 0 {
		p.held[quota{pool.Name, namespace}]++
	}
}
