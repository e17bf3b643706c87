package allocation

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// formerPool is the oldest pool that had the address before an edit, nil for none or if
// a pool has it now.
func (fl *freeList) formerPool(a netip.Addr) *view.Pool {
	if !fl.edited || fl.poolOf(a) != nil {
		return nil
	}
	var oldest *freePool
	for _, fp := range fl.pools {
		if (oldest == nil || fp.age < oldest.age) && fp.pool.Had(a) {
			oldest = fp
		}
	}
	if oldest == nil {
		return nil
	}
	return oldest.pool
}

// countsFor is the pool that the address counts for: the one that has it, or if none does,
// that had it. nil for none.
func (fl *freeList) countsFor(a netip.Addr) *view.Pool {
	if pool := fl.poolOf(a); pool != nil {
		return pool
	}
	return fl.formerPool(a)
}

// holding is an address and its owner.
type holding struct {
	addr   netip.Addr
	holder string
}

// tellDropped has a problem for each pool of which addresses that an edit has taken out
// are still held.
func (p *planner) tellDropped() {
	for _, name := range slices.Sorted(maps.Keys(p.dropped)) {
		holdings := p.dropped[name]
		slices.SortFunc(holdings, func(a, b holding) int { return a.addr.Compare(b.addr) })
		var told []string
		for _, h := range holdings {
			told = append(told, fmt.Sprintf("%s of %s", h.addr, h.holder))
		}
		p.problems = append(p.problems, problem.Advice(p.free.pool(name).pool.Object(), ReasonUsedAddressesDropped,
			"spec.addresses has no more what is still held (onPoolChange: Keep): %s; add them back, or have these ask for others",
			problem.List(told, ", ")))
	}
}

func (sc *scene) extent(assigned Assignments) map[string][]netipx.IPRange {
	dropped := map[string][]netipx.IPRange{}
	note := func(addrs []netip.Addr) {
		for _, a := range addrs {
			if pool := sc.free.formerPool(a); pool != nil {
				dropped[pool.Name] = append(dropped[pool.Name], netipx.IPRangeFrom(a, a))
			}
		}
	}
	if sc.free.edited {
		for ref, s := range sc.active {
			note(s.Ingress)
			note(assigned.Services[ref].Addresses)
		}
		for ref, r := range sc.Reservations {
			note(r.Held)
			note(assigned.Reservations[ref].Addresses)
		}
	}
	extent := make(map[string][]netipx.IPRange, len(sc.Pools))
	for name, pool := range sc.Pools {
		extent[name] = pool.Ranges
		if len(dropped[name]) > 0 {
			extent[name] = addr.Join(slices.Concat(pool.Ranges, dropped[name]))
		}
	}
	return extent
}
