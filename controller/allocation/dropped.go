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
func (st *stock) formerPool(a netip.Addr) *view.Pool {
	if !st.edited || st.poolOf(a) != nil {
		return nil
	}
	var oldest *shelf
	for _, sh := range st.shelves {
		if (oldest == nil || sh.age < oldest.age) && sh.pool.Had(a) {
			oldest = sh
		}
	}
	if oldest == nil {
		return nil
	}
	return oldest.pool
}

// countsFor is the pool that the address counts for: the one that has it, or if none does,
// that had it. nil for none.
func (st *stock) countsFor(a netip.Addr) *view.Pool {
	if pool := st.poolOf(a); pool != nil {
		return pool
	}
	return st.formerPool(a)
}

// holding is an address and who holds it.
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
		p.problems = append(p.problems, problem.Advice(p.stock.shelf(name).pool.Object(), ReasonUsedAddressesDropped,
			"spec.addresses has no more what is still held (onPoolChange: Keep): %s; add them back, or have these ask for others",
			problem.List(told, ", ")))
	}
}

// Extent tells, by pool, which addresses count as the pool's: its ranges, and what
// Services and reservations hold or show of that which an edit has taken out. It is what the status of
// the pool is to say, so that it is known after the edit where an address is from.
func Extent(c *view.Cluster, assigned Assignments) map[string][]netipx.IPRange {
	return allAwake(c).extent(assigned)
}

func (sc *scene) extent(assigned Assignments) map[string][]netipx.IPRange {
	dropped := map[string][]netip.Addr{}
	note := func(addrs []netip.Addr) {
		for _, a := range addrs {
			if pool := sc.stock.formerPool(a); pool != nil {
				dropped[pool.Name] = append(dropped[pool.Name], a)
			}
		}
	}
	if sc.stock.edited {
		for ref, s := range sc.awake {
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
		if len(dropped[name]) == 0 {
			continue
		}
		var all netipx.IPSetBuilder
		for _, r := range pool.Ranges {
			all.AddRange(r)
		}
		for _, a := range dropped[name] {
			all.AddPrefix(addr.HostPrefix(a))
		}
		if set, err := all.IPSet(); err == nil {
			extent[name] = set.Ranges()
		}
	}
	return extent
}
