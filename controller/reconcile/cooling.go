package reconcile

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/ledger"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

const maxCooling = 256

// ReasonLedgerUnwritten is on a pool with a cool-down: the holders of its addresses cannot be
// recorded. The addresses are given all the same.
const ReasonLedgerUnwritten = "LedgerUnwritten"

// record is what is known of the ledger as it is stored.
type record interface {
	// Records reports whether this is stored of an address, or cannot be.
	Records(a netip.Addr, e ledger.Entry) bool
	// Faults says why pages cannot be stored, by shard; of the zero Prefix, why none can.
	Faults() map[netip.Prefix]string
}

// cooled are the pools with a cool-down, by age.
type cooled []*view.Pool

func withCoolDown(all []*view.Pool) cooled {
	return slices.DeleteFunc(slices.Clone(all), func(p *view.Pool) bool { return p.CoolDown == 0 })
}

// coolDown is that of the pool of the address, 0 for none.
func (c cooled) coolDown(a netip.Addr) time.Duration {
	if p := view.PoolOf(c, a); p != nil {
		return p.CoolDown
	}
	return 0
}

// unwritten returns a problem for each pool whose addresses are on a page that cannot be stored.
func (c cooled) unwritten(faults map[netip.Prefix]string) []problem.Problem {
	var problems []problem.Problem
	for _, p := range c {
		for _, shard := range slices.SortedFunc(maps.Keys(faults), netip.Prefix.Compare) {
			on := func(r netipx.IPRange) bool { return !shard.IsValid() || r.Overlaps(netipx.RangeOfPrefix(shard)) }
			if slices.ContainsFunc(p.Ranges, on) {
				problems = append(problems, problem.Advice(p.Object(), ReasonLedgerUnwritten,
					"who has addresses of the pool cannot be recorded, so coolDown holds only while this controller runs; it is tried again: %s", faults[shard]))
				break
			}
		}
	}
	return problems
}

// recorded reports whether the addresses that are given and not shown yet are in the ledger,
// as far as they have to be.
func (w *statusPlanner) recorded(given, shown []netip.Addr) bool {
	return !slices.ContainsFunc(given, func(a netip.Addr) bool {
		e, cools := w.book.At(a)
		return cools && !slices.Contains(shown, a) && !w.stored.Records(a, e)
	})
}

// coolingDown is what the statuses of pools list, by name: the addresses of each that
// rest, the latest ones if there are too many.
func coolingDown(resting map[netip.Addr]ledger.Entry, pools cooled) map[string][]v1beta1.CoolingAddress {
	byPool := map[string][]netip.Addr{}
	for a := range resting {
		if p := view.PoolOf(pools, a); p != nil {
			byPool[p.Name] = append(byPool[p.Name], a)
		}
	}
	lists := make(map[string][]v1beta1.CoolingAddress, len(byPool))
	for name, own := range byPool {
		lists[name] = latest(own, resting)
	}
	return lists
}

// latest lists those of a pool's addresses that rest longest, in order of address.
func latest(own []netip.Addr, resting map[netip.Addr]ledger.Entry) []v1beta1.CoolingAddress {
	slices.SortFunc(own, func(a, b netip.Addr) int {
		if late := resting[b].Until.Compare(resting[a].Until); late != 0 {
			return late
		}
		return a.Compare(b)
	})
	own = own[:min(len(own), maxCooling)]
	slices.SortFunc(own, netip.Addr.Compare)
	var entries []v1beta1.CoolingAddress
	for _, a := range own {
		entries = append(entries, v1beta1.CoolingAddress{Address: a.String(), Service: resting[a].Owner.String(), Until: metav1.NewTime(resting[a].Until)})
	}
	return entries
}
