package allocation

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// settled is a cache of the Services that need no planning: alone on the addresses that they
// show, which are what they ask for. They keep these whatever becomes of the others, and have
// no problems. All that the others see of them is here.
type settled struct {
	services map[view.Ref]*view.Service
	on       map[netip.Addr]*view.Service
	tallies  map[string]tally // by pool
	held     map[quota]int
}

// tally counts addresses of one pool by family: those assigned, and how many of them the
// pool would otherwise give.
type tally struct{ assigned, taken map[addr.Family]int64 }

func newSettled() *settled {
	return &settled{
		services: map[view.Ref]*view.Service{}, on: map[netip.Addr]*view.Service{},
		tallies: map[string]tally{}, held: map[quota]int{},
	}
}

// has reports whether a settled Service has the address.
func (r *settled) has(a netip.Addr) bool { return r.on[a] != nil }

func (r *settled) add(s *view.Service, fl *freeList) {
	r.services[s.Ref] = s
	for _, a := range s.Ingress {
		r.on[a] = s
	}
	r.count(s, fl, 1)
}

func (r *settled) remove(s *view.Service, fl *freeList) {
	delete(r.services, s.Ref)
	for _, a := range s.Ingress {
		delete(r.on, a)
		fl.lower(a)
	}
	r.count(s, fl, -1)
}

func (r *settled) count(s *view.Service, fl *freeList, by int) {
	for _, a := range s.Ingress {
		if pool := fl.poolOf(a); pool != nil {
			t, known := r.tallies[pool.Name]
			if !known {
				t = tally{map[addr.Family]int64{}, map[addr.Family]int64{}}
				r.tallies[pool.Name] = t
			}
			t.assigned[addr.FamilyOf(a)] += int64(by)
			if fl.pool(pool.Name).gives(a) {
				t.taken[addr.FamilyOf(a)] += int64(by)
			}
		}
		if pool := fl.countsFor(a); pool != nil && pool.MaxPerNamespace > 0 {
			r.held[quota{pool.Name, s.Namespace}] += by
		}
	}
}

// settles reports whether a Service that is alone on the addresses that its status shows needs
// no planning. ours: Plan decides what it holds.
func (fl *freeList) settles(s *view.Service, ours bool) bool {
	if s.Request.ShareKey != "" || len(s.Guest) > 0 {
		return false // others may join it, or have left it
	}
	for _, a := range s.Ingress {
		// One that an edit has taken out of a pool is told of, and belongs to its Extent.
		pool := fl.poolOf(a)
		if (ours || fl.edited) && pool == nil || ours && (!addr.Reachable(a) || pool.Avoids(a)) {
			return false
		}
		if _, used := fl.used.Use(a); used {
			return false // it is told, and counts among what is used
		}
	}
	return !ours || fl.content(s)
}

// content reports whether the addresses that the status of a Service shows are what it asks
// for. Those of two families may be in any order, which Plan keeps.
func (fl *freeList) content(s *view.Service) bool {
	r := &s.Request
	if r.Invalid != nil || len(r.Conflicts) > 0 || len(r.Reservations) > 0 {
		return false
	}
	wanted := families(s)
	if slices.ContainsFunc(r.Addresses, func(a netip.Addr) bool { return !slices.Contains(wanted, addr.FamilyOf(a)) }) {
		return false
	}
	rest := len(s.Ingress)
	for _, f := range wanted {
		shown := allOf(s.Ingress, f)
		if asked := allOf(r.Addresses, f); len(asked) > 0 {
			if !slices.Equal(shown, asked) {
				return false
			}
		} else if len(shown) != 1 || len(r.Pools) > 0 && !fl.inAny(r.Pools, shown[0]) {
			return false
		}
		rest -= len(shown)
	}
	return rest == 0
}
