package reconcile

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/view"
)

// maxCooling is how many cooling addresses the status of a pool lists.
const maxCooling = 256

// rest is an address that was freed, kept from all but who left it.
type rest struct {
	left  view.Ref
	until time.Time // whole seconds, as the status of the pool has it
}

// cooling are the addresses that rest now: those of the last pass and those that the
// pools' statuses tell of, which outlive a leader, and those freed since. A pool that has
// no cool-down any more ends it. all are the pools by age.
func cooling(s *snapshot, all []*view.Pool, last *decision, now time.Time) map[netip.Addr]rest {
	pools := slices.DeleteFunc(slices.Clone(all), func(p *view.Pool) bool { return p.CoolDown == 0 })
	if len(pools) == 0 {
		return nil
	}
	resting := map[netip.Addr]rest{}
	for _, p := range pools {
		for _, entry := range s.pools[p.Name].Status.CoolingDown {
			a, err := netip.ParseAddr(entry.Address)
			namespace, name, named := strings.Cut(entry.Service, "/")
			if err == nil && named {
				resting[a] = rest{view.Ref{Namespace: namespace, Name: name}, entry.Until.Time}
			}
		}
	}
	maps.Copy(resting, last.cooling)
	if len(last.held) > 0 {
		held := holders(s.cluster, assumed(last.unseen, s), pools)
		for a, ref := range last.held {
			if _, still := held[a]; still {
				continue
			}
			if p := view.PoolOf(pools, a); p != nil {
				resting[a] = rest{ref, now.Add(p.CoolDown).Truncate(time.Second).Add(time.Second)}
			}
		}
	}
	maps.DeleteFunc(resting, func(a netip.Addr, r rest) bool {
		return !r.until.After(now) || view.PoolOf(pools, a) == nil
	})
	return resting
}

// holders are the Services and reservations that hold or show an address of the pools; of
// both on one address the Service.
func holders(c *view.Cluster, assigned allocation.Assignments, pools []*view.Pool) map[netip.Addr]view.Ref {
	held := map[netip.Addr]view.Ref{}
	note := func(ref view.Ref, shown, assigned []netip.Addr) {
		for _, addresses := range [][]netip.Addr{shown, assigned} {
			for _, a := range addresses {
				if view.PoolOf(pools, a) != nil {
					held[a] = ref
				}
			}
		}
	}
	for ref, r := range c.Reservations {
		note(ref, r.Held, assigned.Reservations[ref].Addresses)
	}
	for ref, s := range c.Services {
		note(ref, s.Ingress, assigned.Services[ref].Addresses)
	}
	return held
}

// coolingDown is what the statuses of pools list, by name: the addresses of each that
// rest, the latest ones if there are too many.
func coolingDown(resting map[netip.Addr]rest, pools []*view.Pool) map[string][]v1beta1.CoolingAddress {
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
func latest(own []netip.Addr, resting map[netip.Addr]rest) []v1beta1.CoolingAddress {
	slices.SortFunc(own, func(a, b netip.Addr) int {
		if late := resting[b].until.Compare(resting[a].until); late != 0 {
			return late
		}
		return a.Compare(b)
	})
	own = own[:min(len(own), maxCooling)]
	slices.SortFunc(own, netip.Addr.Compare)
	var entries []v1beta1.CoolingAddress
	for _, a := range own {
		entries = append(entries, v1beta1.CoolingAddress{Address: a.String(), Service: resting[a].left.String(), Until: metav1.NewTime(resting[a].until)})
	}
	return entries
}
