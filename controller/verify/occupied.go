package verify

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonAddressesInUse is on a pool that holds addresses which the cluster itself uses. They are not given out, and
// the pool is in use.
const ReasonAddressesInUse = "AddressesInUse"

// remedies are what to do about addresses of a use in a pool.
var remedies = map[view.UseKind]string{
	view.UsedByNode:      "take the addresses of nodes out",
	view.UsedByAPIServer: "take those of API servers out",
	view.UsedByRouter:    "take those of routers and nodes out",
	view.UsedClusterIP:   "take the range of ClusterIPs out",
	view.UsedByNetwork:   "take it out, or leave it so",
	view.UsedByAnycast:   "take it out, or leave it so",
	view.UsedExternalIP:  "take it out here or there, or have a Service of type LoadBalancer ask for it",
}

// kept are the addresses of a pool that are not given out for one kind of use.
type kept struct {
	count  int64
	lowest netip.Addr // of single ones
	use    view.Use   // of that
	ranges []string
}

// occupied finds pools that hold what the cluster itself uses. Of each pool and kind of use it tells how many
// addresses, and the lowest one, or each range that it overlaps.
func occupied(r *reach, used view.Occupied) {
	for _, p := range r.cluster.PoolsByAge() {
		found := map[view.UseKind]*kept{}
		for kind := range remedies {
			if list := used.In[view.PoolUse{Pool: p.Name, Kind: kind}]; len(list) > 0 {
				found[kind] = &kept{count: int64(len(list)), lowest: list[0], use: used.Addresses[list[0]]}
			}
		}
		for _, use := range used.Ranges {
			if n := within(p, netipx.RangeOfPrefix(use.Prefix)); n > 0 {
				if found[use.Kind] == nil {
					found[use.Kind] = &kept{}
				}
				k := found[use.Kind]
				k.count, k.use = max(k.count, k.count+n), use
				k.ranges = append(k.ranges, use.Prefix.String())
			}
		}
		for kind, k := range found {
			if len(k.ranges) == 0 {
				r.advise(p.Object(), ReasonAddressesInUse, "spec.addresses has %s, which is %s, and is not given out (%d such in all): %s", k.lowest, k.use, k.count, remedies[kind])
				continue
			}
			what := "ClusterIPs are from (ServiceCIDR)"
			if kind == view.UsedByPods {
				what = "pods are from (podCIDRs of nodes, the Helm value forwarding.clusterCIDRs)"
			}
			list := problem.List(k.ranges, ", ")
			r.advise(p.Object(), ReasonAddressesInUse, "spec.addresses has %d addresses of %s, which %s, and which are not given out: take %s out", k.count, list, what, list)
		}
	}
}

// within counts the addresses of a range that a pool has.
func within(p *view.Pool, r netipx.IPRange) (count int64) {
	for _, own := range p.Ranges {
		if own.Overlaps(r) {
			from, to := slices.MaxFunc([]netip.Addr{own.From(), r.From()}, netip.Addr.Compare), slices.MinFunc([]netip.Addr{own.To(), r.To()}, netip.Addr.Compare)
			n := addr.Size(netipx.IPRangeFrom(from, to))
			count = max(count+n, n, count) // which does not wrap around
		}
	}
	return count
}
