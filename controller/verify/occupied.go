package verify

import (
	"net/netip"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonAddressesInUse is on a pool that holds addresses of nodes, or ClusterIPs. They
// are not given out, and the pool is in use.
const ReasonAddressesInUse = "AddressesInUse"

// occupied finds pools that hold what the cluster itself uses. Of each pool and kind of
// use one address is named, the lowest.
func occupied(c *view.Cluster) []problem.Problem {
	pools := c.PoolsByAge()
	nodes, services := map[*view.Pool]netip.Addr{}, map[*view.Pool]netip.Addr{}
	note := func(lowest map[*view.Pool]netip.Addr, a netip.Addr) {
		for _, p := range pools {
			if known := lowest[p]; p.Contains(a) && (!known.IsValid() || a.Less(known)) {
				lowest[p] = a
			}
		}
	}
	for _, n := range c.Nodes {
		for _, a := range n.Addresses {
			note(nodes, a)
		}
	}
	for _, s := range c.Services {
		for _, a := range s.ClusterIPs {
			note(services, a)
		}
	}
	var problems []problem.Problem
	for _, p := range pools {
		if a := nodes[p]; a.IsValid() {
			problems = append(problems, problem.New(p.Object(), ReasonAddressesInUse,
				"spec.addresses has %s, which is the address of a node, and is not given out: take the addresses of nodes out", a))
		}
		if a := services[p]; a.IsValid() {
			problems = append(problems, problem.New(p.Object(), ReasonAddressesInUse,
				"spec.addresses has %s, which is a ClusterIP, and is not given out: take the range of ClusterIPs out", a))
		}
	}
	return problems
}
