package allocation

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// resting are Services that no plan needs to look at: alone on the addresses that they
// show, and content with them. They keep these whatever becomes of the others, there is
// nothing to say about them, and all that the others see of them is here. The zero value
// has none.
type resting struct {
	services map[view.Ref]*view.Service
	on       map[netip.Addr]*view.Service
	tallies  map[string]tally // by pool
	held     map[quota]int
}

// tally counts addresses of one pool by family: those assigned, and how many of them the
// pool would otherwise give.
type tally struct{ assigned, taken map[addr.Family]int64 }

func newResting() *resting {
	return &resting{
		services: map[view.Ref]*view.Service{}, on: map[netip.Addr]*view.Service{},
		tallies: map[string]tally{}, held: map[quota]int{},
	}
}

// has tells whether a Service at rest has the address.
func (r *resting) has(a netip.Addr) bool { return r.on[a] != nil }

// add puts a Service to rest.
func (r *resting) add(s *view.Service, st *stock) {
	r.services[s.Ref] = s
	for _, a := range s.Ingress {
		r.on[a] = s
	}
	r.count(s, st, 1)
}

// remove wakes a Service.
func (r *resting) remove(s *view.Service, st *stock) {
	delete(r.services, s.Ref)
	for _, a := range s.Ingress {
		delete(r.on, a)
		st.lower(a)
	}
	r.count(s, st, -1)
}

func (r *resting) count(s *view.Service, st *stock, by int) {
	for _, a := range s.Ingress {
		if pool := st.poolOf(a); pool != nil {
			t, known := r.tallies[pool.Name]
			if !known {
				t = tally{map[addr.Family]int64{}, map[addr.Family]int64{}}
				r.tallies[pool.Name] = t
			}
			t.assigned[addr.FamilyOf(a)] += int64(by)
			if st.shelf(pool.Name).gives(a) {
				t.taken[addr.FamilyOf(a)] += int64(by)
			}
		}
		if pool := st.countsFor(a); pool != nil && pool.MaxPerNamespace > 0 {
			r.held[quota{pool.Name, s.Namespace}] += by
		}
	}
}

// restful tells whether a Service that is alone on the addresses that its status shows may
// rest. ours: Plan decides what it holds.
func (st *stock) restful(s *view.Service, ours bool) bool {
	if s.Request.ShareKey != "" {
		return false // others may join it
	}
	for _, a := range s.Ingress {
		// One that an edit has taken out of a pool is told of, and belongs to its Extent.
		pool := st.poolOf(a)
		if (ours || st.edited) && pool == nil || ours && (!addr.Reachable(a) || pool.Avoids(a)) {
			return false
		}
	}
	return !ours || st.content(s)
}

// content tells whether the addresses that the status of a Service shows are what it asks
// for. Those of two families may be in any order, which Plan keeps.
func (st *stock) content(s *view.Service) bool {
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
		} else if len(shown) != 1 || len(r.Pools) > 0 && !st.inAny(r.Pools, shown[0]) {
			return false
		}
		rest -= len(shown)
	}
	return rest == 0
}
