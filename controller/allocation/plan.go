// Package allocation decides which Services and IPReservations hold which external
// addresses. It keeps what is held, oldest first, and gives the others the lowest free
// address of the pools that suit them. The result depends on the cluster alone; the cost
// depends on what has changed since the last snapshot, and on how many addresses are in
// use, never on how large the pools are.
package allocation

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Assignment is what one Service or reservation holds.
type Assignment struct {
	// Addresses of a Service are one of each of its families, or as many as are asked for: in
	// the order of the families, unless its status has the same ones in another.
	// Those of a reservation are sorted. Empty: it holds nothing.
	Addresses []netip.Addr
	// Guest are those of them that Services of another namespace had first.
	Guest []netip.Addr
}

// Assignments are what Services and reservations hold.
type Assignments struct {
	Services, Reservations map[view.Ref]Assignment
}

// plan decides for the active Services and for all reservations, into result. It returns the
// problems.
func (sc *scene) plan(assumed Assignments, classes view.Classes, result Assignments) []problem.Problem {
	c := sc.Cluster
	services, reservations := servicesByAge(sc.active, assumed.Services, classes), reservationsByAge(c, assumed.Reservations)
	p := &planner{
		scene:    sc,
		classes:  classes,
		tenants:  make(map[netip.Addr][]*view.Service, len(services)),
		shared:   map[view.Secret][]netip.Addr{},
		result:   result,
		problems: sc.free.overlaps(),
		reserved: map[netip.Addr][]*view.Reservation{},
		held:     map[quota]int{},
		dropped:  map[string][]holding{},
		left:     map[view.Ref][]netip.Addr{},
	}
	maps.Copy(p.held, sc.settled.held)
	p.rest()
	everyone := slices.Concat(services, reservations)
	for _, guests := range []bool{false, true} {
		for _, req := range everyone {
			p.keep(req, guests)
		}
	}
	for _, req := range everyone {
		p.block(req)
	}
	for _, named := range []bool{true, false} {
		for _, req := range reservations {
			if req.named() == named && req.ours && !p.waits(req) {
				p.reserve(req)
			}
		}
		for _, req := range services {
			if req.named() == named && req.ours && !p.waits(req) {
				p.allocate(req)
			}
		}
	}
	p.markGuests()
	p.tellDropped()
	problem.Sort(p.problems)
	return slices.Compact(p.problems)
}

// scene is the cluster as one plan sees it: the Services to decide for, and what there is to
// know of the others.
type scene struct {
	*view.Cluster
	active  map[view.Ref]*view.Service
	settled *settled
	free    *freeList
}

// planner is the state of one plan.
type planner struct {
	*scene
	classes  view.Classes
	tenants  map[netip.Addr][]*view.Service // see tenantsOf
	shared   map[view.Secret][]netip.Addr   // by share key
	result   Assignments
	problems []problem.Problem

	reserved map[netip.Addr][]*view.Reservation // by address: one, unless a status was written by hand
	held     map[quota]int                      // of pools with a quota
	dropped  map[string][]holding               // by pool, what is kept after an edit
	move     move
	left     map[view.Ref][]netip.Addr // Cooling the other way round
}

// allocate decides what one Service gets.
func (p *planner) allocate(req *request) {
	s := req.service
	if s.Request.Invalid != nil {
		p.problems = append(p.problems, *s.Request.Invalid)
		p.result.Services[s.Ref] = Assignment{Addresses: req.kept}
		return
	}
	wanted := families(s)
	strange := p.refuseStrangers(req, wanted)
	for _, conflict := range s.Request.Conflicts {
		p.advise(s, ReasonRequestConflict, "%s", conflict)
	}
	if strange {
		// A user that pins a Service to an address does not want it at one that we choose.
		p.result.Services[s.Ref] = Assignment{Addresses: req.kept}
		p.report(req, req.kept, nil)
		return
	}

	chosen := make([]netip.Addr, 0, len(wanted))
	var missing []shortage
	served := 0
	p.move = move{having: req.kept}
	for _, f := range wanted {
		found, short := p.choose(req, f)
		p.move.taking = append(p.move.taking, found...)
		missing = append(missing, short...)
		chosen = append(chosen, found...)
		if len(found) > 0 {
			served++
		}
	}
	if s.FamilyPolicy == view.RequireDualStack && served < len(wanted) {
		chosen = req.kept
	}
	chosen = p.makeDo(req, chosen, missing)
	for _, a := range chosen {
		p.take(a, req.owner)
	}
	p.result.Services[s.Ref] = Assignment{Addresses: req.asHeld(chosen)}
	p.report(req, chosen, missing)
}

// makeDo is chosen, for a Service with PreferDualStack that was moved to pools or reservations of one family without
// its former address of the other: once it has one of the first, it gets what a new Service would.
func (p *planner) makeDo(req *request, chosen []netip.Addr, missing []shortage) []netip.Addr {
	if req.service.FamilyPolicy != view.PreferDualStack || req.assumed || len(missing) != 1 || missing[0].pinned {
		return chosen
	}
	without := missing[0].family
	isLeft := func(a netip.Addr) bool { return addr.FamilyOf(a) == without && p.asksElsewhere(req.owner, a) }
	if !p.lacks(req.service, without) || !slices.ContainsFunc(chosen, func(a netip.Addr) bool { return addr.FamilyOf(a) != without }) {
		return chosen
	}
	return slices.DeleteFunc(chosen, isLeft)
}

// lacks reports whether the Service asks for pools or reservations, all of them exist, and none is of the family.
func (p *planner) lacks(s *view.Service, f addr.Family) bool {
	if len(s.Request.Reservations) > 0 {
		return !slices.ContainsFunc(s.Request.Reservations, func(name string) bool {
			r := p.Reservations[view.Ref{Namespace: s.Namespace, Name: name}]
			return r == nil || r.Deleting || r.Invalid != nil || slices.Contains(r.Families, f) || len(allOf(r.Addresses, f)) > 0
		})
	}
	return len(s.Request.Pools) > 0 && !slices.ContainsFunc(s.Request.Pools, func(name string) bool {
		fp := p.free.pool(name)
		return fp == nil || fp.has(f)
	})
}

// shortage says why a family did not get the address that is wanted for it.
type shortage struct {
	family  addr.Family
	reason  string
	message string
	pinned  bool // the user asked for one certain address
}

// choose finds the addresses of one family. What is assumed is not left before a status
// shows it: the write that gives it is on its way, and may land after the address was
// given to another Service.
func (p *planner) choose(req *request, f addr.Family) ([]netip.Addr, []shortage) {
	found, missing := p.prefer(req, f)
	if !req.assumed {
		return found, missing
	}
	kept := allOf(req.kept, f)
	if slices.ContainsFunc(kept, func(a netip.Addr) bool { return !slices.Contains(found, a) }) {
		p.move.giving = nil
		return kept, missing
	}
	return found, missing
}

// prefer finds the addresses of one family that the Service is to have in the end. With a
// shortage, they include those that the Service keeps meanwhile: as long as one of several
// that it asks for cannot be had, all that it has beside them.
func (p *planner) prefer(req *request, f addr.Family) ([]netip.Addr, []shortage) {
	s := req.service
	kept := allOf(req.kept, f)
	if asksFor(s, f) {
		asked := allOf(s.Request.Addresses, f)
		p.move.giving = slices.DeleteFunc(slices.Clone(kept), func(a netip.Addr) bool { return slices.Contains(asked, a) })
		if found, missing := p.chooseAsked(req.owner, asked, kept); len(missing) == 0 {
			return found, nil
		}
		p.move.giving = nil // it gives up nothing before it gets all
		found, missing := p.chooseAsked(req.owner, asked, kept)
		for _, a := range kept {
			if !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
		return found, missing
	}
	p.move.giving = nil
	if len(s.Request.Reservations) > 0 {
		return p.stand(req, f)
	}
	if len(kept) > 0 && !p.mustLeave(req.owner, kept[0]) {
		return kept, nil
	}
	p.move.giving = kept
	if s.Request.ShareKey != "" {
		if a := p.together(s, f); a.IsValid() {
			return []netip.Addr{a}, nil
		}
	}
	a, reason, message := p.another(req.owner, f)
	if reason != "" {
		return kept, []shortage{{f, reason, message, false}}
	}
	return []netip.Addr{a}, nil
}

// chooseAsked finds those addresses of one family that are asked for by themselves.
func (p *planner) chooseAsked(o owner, asked, kept []netip.Addr) (found []netip.Addr, missing []shortage) {
	before := len(p.move.taking)
	for _, a := range asked {
		if !slices.Contains(kept, a) {
			if reason, message := p.refusal(o, a); reason != "" {
				missing = append(missing, shortage{addr.FamilyOf(a), reason, message, true})
				continue
			}
			p.move.taking = append(p.move.taking, a)
		}
		found = append(found, a)
	}
	p.move.taking = p.move.taking[:before]
	return found, missing
}

func (p *planner) taken(a netip.Addr) bool {
	_, cooling := p.Cooling[a]
	_, used := p.free.used.Addresses[a]
	return cooling || used || !p.idle(a)
}

// idle reports whether nothing holds or shows the address.
func (p *planner) idle(a netip.Addr) bool {
	return len(p.tenants[a]) == 0 && !p.settled.has(a) && len(p.reserved[a]) == 0
}

// mustLeave reports whether the owner asks for another pool than the one that its address is
// from, or the pool has dropped the address and renumbers. Otherwise a dropped address stays,
// and so does one that no pool has ever had, unless the owner names a pool: no node announces
// it.
func (p *planner) mustLeave(o owner, held netip.Addr) bool {
	former := p.free.formerPool(held)
	return former != nil && former.Renumber || p.asksElsewhere(o, held)
}

// asksElsewhere reports whether the owner asks for reservations that do not have the address, or for pools that do
// not, nor had it before an edit.
func (p *planner) asksElsewhere(o owner, held netip.Addr) bool {
	if s := o.service; s != nil && len(s.Request.Reservations) > 0 {
		return !p.offeredTo(s, held)
	}
	if len(o.pools()) == 0 || p.free.inAny(o.pools(), held) {
		return false
	}
	former := p.free.formerPool(held)
	return former == nil || !slices.Contains(o.pools(), former.Name)
}

func families(s *view.Service) []addr.Family {
	if len(s.Families) > 0 {
		return s.Families
	}
	wanted := make([]addr.Family, 0, len(s.ClusterIPs))
	for _, a := range s.ClusterIPs {
		wanted = append(wanted, addr.FamilyOf(a))
	}
	return wanted
}

// asksFor reports whether the Service asks for certain addresses of the family.
func asksFor(s *view.Service, f addr.Family) bool {
	return slices.ContainsFunc(s.Request.Addresses, func(a netip.Addr) bool { return addr.FamilyOf(a) == f })
}

// allOf are the addresses of the family, in their order.
func allOf(addrs []netip.Addr, f addr.Family) []netip.Addr {
	var own []netip.Addr
	for _, a := range addrs {
		if addr.FamilyOf(a) == f {
			own = append(own, a)
		}
	}
	return own
}
