package allocation

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// asker is who holds and asks for addresses: a Service or an IPReservation. The other
// is nil.
type asker struct {
	service     *view.Service
	reservation *view.Reservation
}

func (q asker) ref() view.Ref {
	if q.service != nil {
		return q.service.Ref
	}
	return q.reservation.Ref
}

// Object is the asker as problems name it.
func (q asker) Object() problem.Object {
	if q.service != nil {
		return q.service.Object()
	}
	return q.reservation.Object()
}

// String is the kind and the name, for people.
func (q asker) String() string { return q.Object().Kind + " " + q.ref().String() }

// pools are the names of those that it asks for.
func (q asker) pools() []string {
	switch {
	case q.service != nil:
		return q.service.Request.Pools
	case q.reservation.Pool != "":
		return []string{q.reservation.Pool}
	default:
		return nil
	}
}

// serves tells whether the pool's serviceAllocation lets the asker have addresses.
func (p *planner) serves(pool *view.Pool, q asker) bool {
	labels := p.Namespaces[q.ref().Namespace]
	if q.service != nil {
		return pool.Serves(q.service, labels)
	}
	return pool.ServesNamespace(q.reservation.Namespace, labels)
}

// waits tells whether nothing can be decided over the claim yet: the labels of its namespace are
// not known, as for the moment in which the Service was seen before its Namespace, and some pool
// goes by them. A Service that has what it asks for has nothing to wait for, and what is assumed is
// on its way.
func (p *planner) waits(cl *claim) bool {
	if _, known := p.Namespaces[cl.ref().Namespace]; known || !p.stock.labels || cl.assumed {
		return false
	}
	s := cl.service
	return s == nil || !slices.Equal(cl.kept, s.Ingress) || !p.stock.restful(s, cl.ours)
}

// unasked tells whether the pool gives addresses to such as do not ask for it. One that
// chooses Services by their labels does not give them to reservations, which have none.
func (q asker) unasked(pool *view.Pool) bool {
	return pool.AutoAssign && (q.service != nil || len(pool.ServiceSelectors) == 0)
}

// claim is an asker that holds addresses or wants some.
type claim struct {
	asker
	ours    bool         // Plan decides what it holds; otherwise it holds what it holds
	shown   []netip.Addr // in its status
	held    []netip.Addr // the same, or what is assumed
	assumed bool         // no status shows held yet
	kept    []netip.Addr // those of held that it may keep, as asHeld orders them
	lost    []lost
}

// lost is an address that an asker holds and cannot keep, because of another one, or
// for itself.
type lost struct {
	addr netip.Addr
	to   string // "": to nobody
	why  string
}

// decides tells whether Plan decides what the Service holds.
func decides(s *view.Service, classes view.Classes) bool {
	return s.Type == view.LoadBalancer && classes.Serves(s.Class) && !s.Deleting
}

// servicesByAge are those of the Services that have to do with addresses, the oldest first.
func servicesByAge(services map[view.Ref]*view.Service, assumed map[view.Ref]Assignment, classes view.Classes) []*claim {
	all := make([]claim, 0, len(services)) // never grows: claims points into it
	claims := make([]*claim, 0, len(services))
	for ref, s := range services {
		ours := decides(s, classes)
		held := s.Ingress
		a, unseen := assumed[ref]
		if unseen {
			held = a.Addresses
		}
		if ours || len(held) > 0 || len(s.Ingress) > 0 {
			all = append(all, claim{asker: asker{service: s}, ours: ours, shown: s.Ingress, held: held, assumed: unseen})
			claims = append(claims, &all[len(all)-1])
		}
	}
	slices.SortFunc(claims, func(a, b *claim) int {
		if byAge := a.service.Created.Compare(b.service.Created); byAge != 0 {
			return byAge // most of the time, and names take longer to compare
		}
		return a.service.Compare(b.service.Ref)
	})
	return claims
}

// reservationsByAge are all reservations, the oldest first, and those that are being
// deleted last: they hold nothing against one that stays.
func reservationsByAge(c *view.Cluster, assumed map[view.Ref]Assignment) []*claim {
	claims := make([]*claim, 0, len(c.Reservations))
	for ref, r := range c.Reservations {
		cl := &claim{asker: asker{reservation: r}, ours: !r.Deleting, shown: r.Held, held: r.Held}
		if a, unseen := assumed[ref]; unseen {
			cl.held, cl.assumed = a.Addresses, true
		}
		claims = append(claims, cl)
	}
	slices.SortFunc(claims, func(a, b *claim) int {
		return cmp.Or(last(a.reservation.Deleting, b.reservation.Deleting),
			a.reservation.Created.Compare(b.reservation.Created), a.reservation.Compare(b.reservation.Ref))
	})
	return claims
}

// last orders what is so behind what is not.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// keep settles what the claim keeps of what it holds: of Services one address for each
// wanted family, or all where certain ones are asked for; of reservations all, until they
// are settled; of those that are not ours everything.
func (p *planner) keep(cl *claim) {
	switch {
	case !cl.ours && cl.service != nil:
		p.reserve(cl)
	case cl.reservation != nil:
		for _, a := range cl.held {
			p.retain(cl, a)
		}
	default:
		for _, f := range families(cl.service) {
			p.keepOf(cl, f)
		}
		cl.kept = cl.asHeld(cl.kept)
	}
}

// asHeld is the addresses of a Service, which come in the order of its families, in the order
// in which it holds them if that is all that it holds. MetalLB writes IPv4 first, and goes by
// the first one of a status in its choice of nodes. Of one family, the order is as given.
func (cl *claim) asHeld(addrs []netip.Addr) []netip.Addr {
	for _, f := range addr.Families() {
		if !slices.Equal(allOf(addrs, f), allOf(cl.held, f)) {
			return addrs
		}
	}
	return cl.held
}

// keepOf settles what a Service keeps of one family.
func (p *planner) keepOf(cl *claim, f addr.Family) {
	request := &cl.service.Request
	for _, a := range cl.held {
		if addr.FamilyOf(a) != f {
			continue
		}
		if p.retain(cl, a) && request.Invalid == nil && !asksFor(cl.service, f) {
			break
		}
	}
}

// retain settles the claim on an address that it holds, and tells whether it can keep it.
// What is assumed it keeps in any case, until a status shows it: the write may land.
func (p *planner) retain(cl *claim, a netip.Addr) bool {
	if !addr.Reachable(a) {
		cl.lost = append(cl.lost, lost{addr: a})
		return false
	}
	if who, why := p.obstacle(a, cl.asker); who != "" && !cl.assumed {
		cl.lost = append(cl.lost, lost{a, who, why})
		return false
	}
	p.settleOn(a, cl.asker)
	cl.kept = append(cl.kept, a)
	return true
}

// reserve sees to it that nobody is given an address that the asker still shows, or is
// about to show, even if it is leaving it.
func (p *planner) reserve(cl *claim) {
	for _, held := range [][]netip.Addr{cl.held, cl.shown} {
		for _, a := range held {
			p.settleOn(a, cl.asker)
		}
	}
}
