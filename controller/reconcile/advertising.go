package reconcile

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
)

// advertising knows which pools no advertisement covers.
type advertising struct {
	pools     []*view.Pool // by age
	uncovered map[string]problem.Problem
}

// lack is the problem of a pool, nil where an advertisement covers it.
func (a advertising) lack(pool string) *problem.Problem {
	if p, is := a.uncovered[pool]; is {
		return &p
	}
	return nil
}

// unannounced tells a Service of the addresses that it gets of such pools, one of each. It is
// an Event and no condition: another program may announce them, and the pool has one.
func (a advertising) unannounced(had, has []netip.Addr) []status.Event {
	if len(a.uncovered) == 0 {
		return nil
	}
	var events []status.Event
	told := map[*view.Pool]bool{}
	for _, address := range has {
		pool := view.PoolOf(a.pools, address)
		if pool == nil || told[pool] || slices.Contains(had, address) {
			continue
		}
		if p, is := a.uncovered[pool.Name]; is {
			told[pool] = true
			events = append(events, status.Unannounced(address, p))
		}
	}
	return events
}
