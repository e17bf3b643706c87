package allocation

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// owner is a Service or an IPReservation, which holds addresses; the other is nil.
type owner struct {
	service     *view.Service
	reservation *view.Reservation
}

func (o owner) ref() view.Ref {
	if o.service != nil {
		return o.service.Ref
	}
	return o.reservation.Ref
}

// Object is the owner as problems name it.
func (o owner) Object() problem.Object {
	if o.service != nil {
		return o.service.Object()
	}
	return o.reservation.Object()
}

// String is the kind and the name, for people.
func (o owner) String() string { return o.Object().Kind + " " + o.ref().String() }

// pools are the names of the pools that it asks for.
func (o owner) pools() []string {
	switch {
	case o.service != nil:
		return o.service.Request.Pools
	case o.reservation.Pool != "":
		return []string{o.reservation.Pool}
	default:
		return nil
	}
}

// serves reports whether the pool's serviceAllocation lets the owner have addresses.
func (p *planner) serves(pool *view.Pool, o owner) bool {
	labels := p.Namespaces[o.ref().Namespace]
	if o.service != nil {
		return pool.Serves(o.service, labels)
	}
	return pool.ServesNamespace(o.reservation.Namespace, labels)
}

// waits reports whether nothing can be decided over the request yet: the labels of its namespace are
// not known, as for the moment in which the Service was seen before its Namespace, and some pool
// goes by them. A Service that has what it asks for has nothing to wait for, and what is assumed is
// on its way.
func (p *planner) waits(req *request) bool {
	if _, known := p.Namespaces[req.ref().Namespace]; known || !p.free.labels || req.assumed {
		return false
	}
	s := req.service
	return s == nil || !slices.Equal(req.kept, s.Ingress) || !p.free.settles(s, req.ours)
}

// unasked reports whether the pool gives addresses to such as do not ask for it. One that
// chooses Services by their labels does not give them to reservations, which have none.
func (o owner) unasked(pool *view.Pool) bool {
	return pool.AutoAssign && (o.service != nil || len(pool.ServiceSelectors) == 0)
}

// request is an owner that holds addresses or wants some.
type request struct {
	owner
	ours    bool         // Plan decides what it holds; otherwise it holds what it holds
	shown   []netip.Addr // in its status
	held    []netip.Addr // the same, or what is assumed
	guest   []netip.Addr // those of held that Services of another namespace had first
	assumed bool         // no status shows held yet
	kept    []netip.Addr // those of held that it may keep, as asHeld orders them
	lost    []lost
}

// named reports whether all that it asks for are certain addresses: it may choose before others, which may have another one. What
// a Service can have of a reservation is known once that has chosen.
func (req *request) named() bool {
	if req.service != nil {
		return len(req.service.Request.Addresses) > 0 && len(req.service.Request.Reservations) == 0
	}
	return len(req.reservation.Addresses) > 0
}

// lost is an address that an owner holds and cannot keep, because of another one, or
// for itself.
type lost struct {
	addr netip.Addr
	to   string // "": no allocator can have given it
	why  string
}

// decides reports whether Plan decides what the Service holds.
func decides(s *view.Service, classes view.Classes) bool {
	return s.Type == view.LoadBalancer && classes.Serves(s.Class) && !s.Deleting
}

// servicesByAge are those of the Services that have to do with addresses, the oldest first.
func servicesByAge(services map[view.Ref]*view.Service, assumed map[view.Ref]Assignment, classes view.Classes) []*request {
	all := make([]request, 0, len(services)) // never grows: requests points into it
	requests := make([]*request, 0, len(services))
	for ref, s := range services {
		ours := decides(s, classes)
		held, guest := s.Ingress, s.Guest
		a, unseen := assumed[ref]
		if unseen {
			held, guest = a.Addresses, a.Guest
		}
		if ours || len(held) > 0 || len(s.Ingress) > 0 {
			all = append(all, request{owner: owner{service: s}, ours: ours, shown: s.Ingress, held: held, guest: guest, assumed: unseen})
			requests = append(requests, &all[len(all)-1])
		}
	}
	slices.SortFunc(requests, func(a, b *request) int {
		if byAge := a.service.Created.Compare(b.service.Created); byAge != 0 {
			return byAge // most of the time, and names take longer to compare
		}
		return a.service.Compare(b.service.Ref)
	})
	return requests
}

// reservationsByAge are all reservations, the oldest first, and those that are being
// deleted last: they hold nothing against one that stays.
func reservationsByAge(c *view.Cluster, assumed map[view.Ref]Assignment) []*request {
	requests := make([]*request, 0, len(c.Reservations))
	for ref, r := range c.Reservations {
		req := &request{owner: owner{reservation: r}, ours: !r.Deleting, shown: r.Held, held: r.Held}
		if a, unseen := assumed[ref]; unseen {
			req.held, req.assumed = a.Addresses, true
		}
		requests = append(requests, req)
	}
	slices.SortFunc(requests, func(a, b *request) int {
		return cmp.Or(last(a.reservation.Deleting, b.reservation.Deleting),
			a.reservation.Created.Compare(b.reservation.Created), a.reservation.Compare(b.reservation.Ref))
	})
	return requests
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

// keep decides what the request keeps of what it holds: of Services one address for each
// wanted family, or all where certain ones are asked for; of reservations all, until they
// are decided; of those that are not ours everything. Guests keep what is left by those that
// came first, whatever their age.
func (p *planner) keep(req *request, guests bool) {
	switch {
	case req.reservation != nil:
		for _, a := range req.held {
			if !guests {
				p.retain(req, a)
			}
		}
	case guests && len(req.guest) == 0:
	case req.ours:
		for _, f := range families(req.service) {
			p.keepOf(req, f, guests)
		}
		if guests {
			req.kept = req.ordered(req.kept)
		}
		req.kept = req.asHeld(req.kept)
	default:
		for _, a := range slices.Concat(req.held, req.shown) {
			if slices.Contains(req.guest, a) == guests {
				p.take(a, req.owner)
			}
		}
	}
}

// asHeld is the addresses of a Service, which come in the order of its families, in the order
// in which it holds them if that is all that it holds. MetalLB writes IPv4 first, and goes by
// the first one of a status in its choice of nodes. Of one family, the order is as given.
func (req *request) asHeld(addrs []netip.Addr) []netip.Addr {
	for _, f := range addr.Families() {
		if !slices.Equal(allOf(addrs, f), allOf(req.held, f)) {
			return addrs
		}
	}
	return req.held
}

// ordered is what is kept of what a Service holds, in the order of its families and of what it holds.
func (req *request) ordered(kept []netip.Addr) []netip.Addr {
	var all []netip.Addr
	for _, f := range families(req.service) {
		all = append(all, slices.DeleteFunc(allOf(req.held, f), func(a netip.Addr) bool { return !slices.Contains(kept, a) })...)
	}
	return all
}

// keepOf decides what a Service keeps of one family, of that on which it is a guest or of the rest.
func (p *planner) keepOf(req *request, f addr.Family, guest bool) {
	one := req.service.Request.Invalid == nil && !asksFor(req.service, f)
	for _, a := range req.held {
		if one && len(allOf(req.kept, f)) > 0 {
			return
		}
		if addr.FamilyOf(a) == f && slices.Contains(req.guest, a) == guest {
			p.retain(req, a)
		}
	}
}

// retain keeps an address that the request holds, if it can.
// What is assumed it keeps in any case, until a status shows it: the write may land.
func (p *planner) retain(req *request, a netip.Addr) {
	if why := p.strange(a); why != "" && (!req.assumed || !addr.Reachable(a)) {
		req.lost = append(req.lost, lost{addr: a, why: why})
		return
	}
	if holder, why := p.obstacle(a, req.owner); holder != "" && !req.assumed {
		req.lost = append(req.lost, lost{a, holder, why})
		return
	}
	p.take(a, req.owner)
	req.kept = append(req.kept, a)
}

// strange says why no allocator can have given the address, "" if one can: k3s' ServiceLB writes the addresses of
// nodes. What is or was of a pool counts as given, for any kubelet may list it as its node's.
func (p *planner) strange(a netip.Addr) string {
	if !addr.Reachable(a) {
		return "no Service can have"
	}
	if p.free.countsFor(a) != nil {
		return ""
	}
	if a.IsLinkLocalUnicast() {
		return "is link-local and of no IPAddressPool"
	}
	if use, used := p.useOf(a); used {
		return "is of no IPAddressPool and " + use.String()
	}
	return ""
}

// useOf is what the cluster itself uses an address for, whether a pool has it or not.
func (p *planner) useOf(a netip.Addr) (view.Use, bool) {
	if p.free.poolOf(a) != nil {
		return p.free.used.Use(a)
	}
	if p.free.beyond == nil {
		beyond := p.Beyond()
		p.free.beyond = &beyond
	}
	return p.free.beyond.Use(a)
}

// block keeps an address that the owner still shows, or is about to show, from being given,
// even if the owner is leaving it.
func (p *planner) block(req *request) {
	for _, held := range [][]netip.Addr{req.held, req.shown} {
		for _, a := range held {
			p.take(a, req.owner)
		}
	}
}
