// Package allocation decides which Services and IPReservations hold which external
// addresses. Plan is a pure function of the cluster: it keeps what is held, oldest first,
// and gives the others the lowest free address of the pools that suit them. Its cost depends
// on how many addresses are in use, never on how large the pools are.
//
// The controller uses Engine, which decides the same at the cost of what has changed since
// the last snapshot. Tests hold Engine to Plan.
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
}

// Assignments are what Services and reservations hold.
type Assignments struct {
	Services, Reservations map[view.Ref]Assignment
}

// Plan decides over every Service of type LoadBalancer of the given classes, and over
// every reservation. The result has an entry for each of them, except those that are
// being deleted, and those of a namespace that is not known yet where pools choose namespaces
// by labels: these are left as they are.
//
// Each holds the addresses in its status, or those in assumed, which has the decisions
// that the snapshot does not show yet. The rules, in this order:
//
//   - An address belongs to one Service, or to several that share it: they have one
//     share key, and no port in common. Where two hold it that cannot share it, the
//     older one keeps it and the other gets a new one.
//   - An address belongs to one reservation at most, and then to Services of its
//     namespace only, if to any. Where a Service of another one holds it as well, the
//     Service keeps it: there is traffic to it.
//   - What is held stays, whoever wrote it, and whatever becomes of the pools, until
//     the Service no longer wants the family or asks for something else, or the pool
//     has dropped the address and says Renumber, unless that is what it asks for. What no Service can have, such as a
//     loopback address, is not taken over from a status.
//   - An address that is left is free once no status shows it any more. What is
//     assumed is not left before a status shows it.
//   - Addresses of nodes, ClusterIPs, and what these are from are given to nobody.
//   - An address that is cooling down is for nobody but who left it, and for reservations
//     of that namespace that name it.
//   - Reservations choose before Services, the older before the younger. A Service that
//     asks for a reservation gets what the status of that shows.
//
// The problems name those who lack what they ask for, and pools that claim addresses of
// an older pool.
func Plan(c *view.Cluster, assumed Assignments, classes view.Classes) (Assignments, []problem.Problem) {
	result := Assignments{
		Services:     make(map[view.Ref]Assignment, len(c.Services)),
		Reservations: make(map[view.Ref]Assignment, len(c.Reservations)),
	}
	return result, allAwake(c).plan(assumed, classes, result)
}

// plan decides over the Services that are awake and over all reservations, into result. It
// returns the problems.
func (sc *scene) plan(assumed Assignments, classes view.Classes, result Assignments) []problem.Problem {
	c := sc.Cluster
	services, reservations := servicesByAge(sc.awake, assumed.Services, classes), reservationsByAge(c, assumed.Reservations)
	p := &planner{
		scene:    sc,
		classes:  classes,
		tenants:  make(map[netip.Addr]tenants, len(services)),
		shared:   map[string][]netip.Addr{},
		result:   result,
		problems: sc.stock.overlaps(),
		reserved: map[netip.Addr][]*view.Reservation{},
		held:     map[quota]int{},
		dropped:  map[string][]holding{},
		left:     map[view.Ref][]netip.Addr{},
	}
	maps.Copy(p.held, sc.resting.held)
	for a, ref := range c.Cooling {
		p.left[ref] = append(p.left[ref], a)
	}
	for _, cl := range slices.Concat(services, reservations) {
		p.keep(cl)
	}
	for _, cl := range slices.Concat(services, reservations) {
		p.reserve(cl)
	}
	for _, cl := range reservations {
		if cl.ours && !p.waits(cl) {
			p.book(cl)
		}
	}
	for _, cl := range services {
		if cl.ours && !p.waits(cl) {
			p.settle(cl)
		}
	}
	p.tellDropped()
	problem.Sort(p.problems)
	return slices.Compact(p.problems)
}

// scene is the cluster as one plan sees it: the Services that it decides over, and what it
// has to know of the others.
type scene struct {
	*view.Cluster
	awake    map[view.Ref]*view.Service
	resting  *resting
	stock    *stock
	occupied map[netip.Addr]view.Use // what the cluster itself uses of the pools, and for what
}

// allAwake has no Service at rest.
func allAwake(c *view.Cluster) *scene {
	st := newStock(c)
	return &scene{c, c.Services, &resting{}, st, st.occupied(c)}
}

// planner is the state of one run of Plan.
type planner struct {
	*scene
	classes  view.Classes
	tenants  map[netip.Addr]tenants  // see tenantsOf
	shared   map[string][]netip.Addr // by share key
	result   Assignments
	problems []problem.Problem

	reserved map[netip.Addr][]*view.Reservation // who holds an address: one, unless a status was written by hand
	held     map[quota]int                      // of pools with a quota
	dropped  map[string][]holding               // by pool, what is kept after an edit
	move     move
	left     map[view.Ref][]netip.Addr // Cooling the other way round
}

// settle decides what one Service gets.
func (p *planner) settle(cl *claim) {
	s := cl.service
	if s.Request.Invalid != nil {
		p.problems = append(p.problems, *s.Request.Invalid)
		p.result.Services[s.Ref] = Assignment{Addresses: cl.kept}
		return
	}
	wanted := families(s)
	strange := p.refuseStrangers(cl, wanted)
	for _, conflict := range s.Request.Conflicts {
		p.advise(s, ReasonRequestConflict, "%s", conflict)
	}
	if strange {
		// Whoever pins a Service to an address does not want it at one that we choose.
		p.result.Services[s.Ref] = Assignment{Addresses: cl.kept}
		p.report(cl, cl.kept, nil)
		return
	}

	chosen := make([]netip.Addr, 0, len(wanted))
	var missing []shortage
	served := 0
	p.move = move{having: cl.kept}
	for _, f := range wanted {
		found, short := p.choose(cl, f)
		p.move.taking = append(p.move.taking, found...)
		missing = append(missing, short...)
		chosen = append(chosen, found...)
		if len(found) > 0 {
			served++
		}
	}
	if s.FamilyPolicy == view.RequireDualStack && served < len(wanted) {
		chosen = cl.kept
	}
	for _, a := range chosen {
		p.settleOn(a, cl.asker)
	}
	p.result.Services[s.Ref] = Assignment{Addresses: cl.asHeld(chosen)}
	p.report(cl, chosen, missing)
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
func (p *planner) choose(cl *claim, f addr.Family) ([]netip.Addr, []shortage) {
	found, missing := p.prefer(cl, f)
	if !cl.assumed {
		return found, missing
	}
	kept := allOf(cl.kept, f)
	if slices.ContainsFunc(kept, func(a netip.Addr) bool { return !slices.Contains(found, a) }) {
		p.move.giving = nil
		return kept, missing
	}
	return found, missing
}

// prefer finds the addresses of one family that the Service is to have in the end. With a
// shortage, they include those that the Service keeps meanwhile: as long as one of several
// that it asks for cannot be had, all that it has beside them.
func (p *planner) prefer(cl *claim, f addr.Family) ([]netip.Addr, []shortage) {
	s := cl.service
	kept := allOf(cl.kept, f)
	if asksFor(s, f) {
		asked := allOf(s.Request.Addresses, f)
		p.move.giving = slices.DeleteFunc(slices.Clone(kept), func(a netip.Addr) bool { return slices.Contains(asked, a) })
		if found, missing := p.chooseAsked(cl.asker, asked, kept); len(missing) == 0 {
			return found, nil
		}
		p.move.giving = nil // it gives up nothing before it gets all
		found, missing := p.chooseAsked(cl.asker, asked, kept)
		for _, a := range kept {
			if !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
		return found, missing
	}
	p.move.giving = nil
	if len(s.Request.Reservations) > 0 {
		return p.stand(cl, f)
	}
	if len(kept) > 0 && !p.mustLeave(cl.asker, kept[0]) {
		return kept, nil
	}
	p.move.giving = kept
	if s.Request.ShareKey != "" {
		if a := p.together(s, f); a.IsValid() {
			return []netip.Addr{a}, nil
		}
	}
	if a := p.returning(cl.asker, f); a.IsValid() {
		return []netip.Addr{a}, nil
	}
	a, reason, message := p.lowestFree(cl.asker, f)
	if reason != "" {
		return kept, []shortage{{f, reason, message, false}}
	}
	return []netip.Addr{a}, nil
}

// chooseAsked finds those addresses of one family that are asked for by themselves.
func (p *planner) chooseAsked(q asker, asked, kept []netip.Addr) (found []netip.Addr, missing []shortage) {
	before := len(p.move.taking)
	for _, a := range asked {
		if !slices.Contains(kept, a) {
			if reason, message := p.refusal(q, a); reason != "" {
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
	return cooling || p.occupied[a] != "" || !p.idle(a)
}

// idle tells whether nobody holds or shows the address.
func (p *planner) idle(a netip.Addr) bool {
	return p.tenantsOf(a).first == nil && len(p.reserved[a]) == 0
}

// mustLeave tells whether the asker wants another pool than the one its address is
// from, or the pool has dropped the address and wants it to move. Otherwise an address
// that its pool has dropped may stay, since nobody asked to move, and one that no pool has
// ever had as well, unless the asker names a pool: nobody announces it.
func (p *planner) mustLeave(q asker, held netip.Addr) bool {
	former := p.stock.formerPool(held)
	switch {
	case former != nil && former.Renumber:
		return true
	case len(q.pools()) == 0 || p.stock.inAny(q.pools(), held):
		return false
	default:
		return former == nil || !slices.Contains(q.pools(), former.Name)
	}
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

// asksFor tells whether the Service asks for certain addresses of the family.
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
