package allocation

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

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

// holding is an address that a Service holds.
type holding struct {
	addr   netip.Addr
	holder view.Ref
}

// tellDropped has a problem for each pool of which Services keep addresses that an edit
// has taken out.
func (p *planner) tellDropped() {
	for _, name := range slices.Sorted(maps.Keys(p.dropped)) {
		holdings := p.dropped[name]
		slices.SortFunc(holdings, func(a, b holding) int { return a.addr.Compare(b.addr) })
		const most = 8
		var told []string
		for _, h := range holdings[:min(len(holdings), most)] {
			told = append(told, fmt.Sprintf("%s of Service %s", h.addr, h.holder))
		}
		text := strings.Join(told, ", ")
		if more := len(holdings) - most; more > 0 {
			text = fmt.Sprintf("%s and %d more", text, more)
		}
		p.problems = append(p.problems, problem.New(p.stock.shelf(name).pool.Object(), ReasonUsedAddressesDropped,
			"spec.addresses has no more what Services keep (onPoolChange: Keep): %s; add them back, or have the Services ask for others", text))
	}
}

// Extent tells, by pool, which addresses count as the pool's: its ranges, and what
// Services hold or show of that which an edit has taken out. It is what the status of
// the pool is to say, so that it is known after the edit where an address is from.
func Extent(c *view.Cluster, assigned map[view.Ref]Assignment) map[string][]netipx.IPRange {
	st := newStock(c.Pools)
	dropped := map[string][]netip.Addr{}
	if st.edited {
		for ref, s := range c.Services {
			for _, a := range slices.Concat(s.Ingress, assigned[ref].Addresses) {
				if pool := st.formerPool(a); pool != nil {
					dropped[pool.Name] = append(dropped[pool.Name], a)
				}
			}
		}
	}
	extent := make(map[string][]netipx.IPRange, len(c.Pools))
	for name, pool := range c.Pools {
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
