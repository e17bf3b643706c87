package allocation

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// reserve decides what one reservation holds.
func (p *planner) reserve(req *request) {
	r := req.reservation
	if r.Invalid != nil {
		p.problems = append(p.problems, *r.Invalid)
		p.result.Reservations[r.Ref] = Assignment{Addresses: req.kept}
		return
	}
	p.move = move{}
	var chosen []netip.Addr
	var missing []shortage
	if len(r.Addresses) > 0 {
		chosen, missing = p.reserveAsked(req)
	} else {
		for _, f := range addr.Families() {
			found, short := p.reserveAny(req, f)
			chosen, missing = append(chosen, found...), append(missing, short...)
		}
	}
	slices.SortFunc(chosen, netip.Addr.Compare)
	p.result.Reservations[r.Ref] = Assignment{Addresses: chosen}
	for _, m := range missing {
		p.add(r, m.reason, "%s", m.message)
	}
	p.tellLost(req, chosen)
	p.tellOutside(req.owner, chosen)
}

// reserveAsked finds those of the addresses that a reservation asks for by themselves that it
// can have. It gives up the others.
func (p *planner) reserveAsked(req *request) (chosen []netip.Addr, missing []shortage) {
	asked := req.reservation.Addresses
	for _, a := range req.kept {
		if req.assumed || slices.Contains(asked, a) {
			chosen = append(chosen, a)
		} else {
			p.move.giving = append(p.move.giving, a)
		}
	}
	for _, a := range asked {
		if slices.Contains(chosen, a) {
			continue
		}
		if reason, message := p.refusal(req.owner, a); reason != "" {
			missing = append(missing, shortage{addr.FamilyOf(a), reason, message, true})
			continue
		}
		p.take(a, req.owner)
		chosen = append(chosen, a)
	}
	return chosen, missing
}

// reserveAny finds as many addresses of one family as a reservation asks for. It keeps what
// it has, addresses with Services on them before others, and leaves what it must leave
// once there is another in its place.
func (p *planner) reserveAny(req *request, f addr.Family) (chosen []netip.Addr, missing []shortage) {
	want := 0
	if slices.Contains(req.reservation.Families, f) {
		want = req.reservation.Count
	}
	var leaving []netip.Addr
	for _, a := range allOf(req.kept, f) {
		if !req.assumed && p.mustLeave(req.owner, a) {
			leaving = append(leaving, a)
		} else {
			chosen = append(chosen, a)
		}
	}
	if len(chosen) > want && !req.assumed {
		slices.SortFunc(chosen, p.busyFirst)
		leaving = append(leaving, chosen[want:]...)
		chosen = chosen[:want]
	}
	before := len(p.move.giving)
	p.move.giving = append(p.move.giving, leaving...)
	unreplaced := len(leaving)
	for len(chosen) < want {
		a, reason, message := p.another(req.owner, f)
		if reason != "" {
			missing = append(missing, shortage{f, reason, fmt.Sprintf("%d of %d %s addresses could be had: %s", len(chosen), want, f, message), false})
			staying := min(unreplaced, want-len(chosen))
			chosen = append(chosen, leaving[:staying]...)
			p.move.giving = append(p.move.giving[:before], leaving[staying:]...)
			break
		}
		p.take(a, req.owner)
		chosen = append(chosen, a)
		unreplaced = max(unreplaced-1, 0)
	}
	return chosen, missing
}

// another finds an address of the family for an owner that asks for none by itself.
func (p *planner) another(o owner, f addr.Family) (free netip.Addr, reason, message string) {
	if a := p.returning(o, f); a.IsValid() {
		return a, "", ""
	}
	return p.lowestFree(o, f)
}

// busyFirst orders addresses with Services on them before others, and by themselves.
func (p *planner) busyFirst(a, b netip.Addr) int {
	idle := func(x netip.Addr) int {
		if len(p.tenantsOf(x)) == 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(idle(a), idle(b)), a.Compare(b))
}

// stand finds an address of the family for a Service that asks for reservations: one that
// such a reservation holds, and that its status shows. So a Service never comes to stand
// on what its reservation does not get. It stays where it is if that is one of them.
func (p *planner) stand(req *request, f addr.Family) ([]netip.Addr, []shortage) {
	s := req.service
	kept := allOf(req.kept, f)
	for _, a := range kept {
		if p.offeredTo(s, a) {
			return []netip.Addr{a}, nil
		}
	}
	p.move.giving = kept
	first := shortage{family: f}
	for _, name := range s.Request.Reservations {
		a, reason, message := p.standOn(s, name, f)
		if reason == "" {
			return []netip.Addr{a}, nil
		}
		if first.reason == "" {
			first.reason, first.message = reason, message
		}
	}
	return kept, []shortage{first}
}

// offeredTo reports whether one of the reservations that the Service asks for has the
// address for it.
func (p *planner) offeredTo(s *view.Service, a netip.Addr) bool {
	return slices.ContainsFunc(s.Request.Reservations, func(name string) bool {
		return slices.Contains(p.reservedFor(s, name), a)
	})
}

// reservedFor are the addresses that a reservation of the Service's namespace holds, will go
// on holding, and shows.
func (p *planner) reservedFor(s *view.Service, name string) []netip.Addr {
	ref := view.Ref{Namespace: s.Namespace, Name: name}
	r := p.Reservations[ref]
	if r == nil {
		return nil
	}
	var booked []netip.Addr
	for _, a := range p.result.Reservations[ref].Addresses {
		if slices.Contains(r.Held, a) {
			booked = append(booked, a)
		}
	}
	return booked
}

// standOn finds the lowest address of one reservation that the Service may have, before
// others one that it can share. A reason and a message say why there is none.
func (p *planner) standOn(s *view.Service, name string, f addr.Family) (found netip.Addr, reason, message string) {
	o := owner{service: s}
	switch r := p.Reservations[view.Ref{Namespace: s.Namespace, Name: name}]; {
	case r == nil:
		return netip.Addr{}, ReasonReservationNotFound, fmt.Sprintf("the requested IPReservation %q does not exist in namespace %q: create it, or correct the annotation fairlead.dev/reservation", name, s.Namespace)
	case r.Deleting:
		return netip.Addr{}, ReasonReservationNotFound, fmt.Sprintf("the requested IPReservation %q is being deleted", name)
	}
	booked := allOf(p.reservedFor(s, name), f)
	if len(booked) == 0 {
		return netip.Addr{}, ReasonReservationExhausted, fmt.Sprintf("the requested IPReservation %q holds no %s address: look at its condition Allocated", name, f)
	}
	slices.SortFunc(booked, p.busyFirst)
	for _, a := range booked {
		why, text := p.refusal(o, a)
		if why == "" {
			return a, "", ""
		}
		if message == "" {
			message = text
		}
	}
	return netip.Addr{}, ReasonReservationExhausted, fmt.Sprintf("the requested IPReservation %q has no %s address for this Service: %s", name, f, message)
}

// refusedReserved says why the Service cannot have an address that a reservation of its
// namespace holds; an empty reason means that it can. The pool has given it to the
// namespace already, so that only the pool's serviceAllocation counts.
func (p *planner) refusedReserved(s *view.Service, a netip.Addr) (reason, message string) {
	o := owner{service: s}
	if pool := p.free.poolOf(a); pool != nil && !p.serves(pool, o) {
		return ReasonPoolNotAllowed, fmt.Sprintf("the requested address %s cannot be given: IPAddressPool %q is not for this Service: its serviceAllocation does not choose it", a, pool.Name)
	}
	if len(o.pools()) > 0 && !p.free.inAny(o.pools(), a) {
		return ReasonRequestOutsidePools, fmt.Sprintf("the requested address %s is not in the requested IPAddressPool %s", a, list(o.pools()))
	}
	return "", ""
}
