package verify

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/view"
)

// ReasonAddressesInUse is on a pool that holds addresses of nodes, or of the range of
// ClusterIPs. They are not given out, and the pool is in use.
const ReasonAddressesInUse = "AddressesInUse"

// remedies are what to take out of a pool that has an address of the use.
var remedies = map[view.Use]string{
	view.UsedByNode:    "the addresses of nodes",
	view.UsedClusterIP: "the range of ClusterIPs",
}

// occupied finds pools that hold what the cluster itself uses. Of each pool and kind of
// use one address is named, the lowest, and each range of ClusterIPs that it overlaps.
func occupied(r *reach, used map[netip.Addr]view.Use) {
	pools := r.cluster.PoolsByAge()
	type kind struct {
		pool *view.Pool
		use  view.Use
	}
	lowest := map[kind]netip.Addr{}
	for a, use := range used {
		for _, p := range pools {
			k := kind{p, use}
			if known := lowest[k]; p.Contains(a) && (!known.IsValid() || a.Less(known)) {
				lowest[k] = a
			}
		}
	}
	for k, a := range lowest {
		r.advise(k.pool.Object(), ReasonAddressesInUse,
			"spec.addresses has %s, which is %s, and is not given out: take %s out", a, k.use, remedies[k.use])
	}
	for _, prefix := range r.cluster.ServiceRanges {
		for _, p := range pools {
			if slices.ContainsFunc(p.Ranges, netipx.RangeOfPrefix(prefix).Overlaps) {
				r.advise(p.Object(), ReasonAddressesInUse,
					"spec.addresses has addresses of %s, which ClusterIPs are from (ServiceCIDR), and which are not given out: take %s out", prefix, prefix)
			}
		}
	}
}
