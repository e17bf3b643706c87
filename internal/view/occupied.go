package view

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
)

// Use is what the cluster itself uses an address for, as messages say it.
type Use string

// The uses.
const (
	UsedByNode    Use = "the address of a node"
	UsedClusterIP Use = "a ClusterIP"
)

// Occupied visits the single addresses that the cluster itself uses, some of them again.
// No Service can have one, nor one of ServiceRanges, as its external address.
func (c *Cluster) Occupied() iter.Seq2[netip.Addr, Use] {
	return func(yield func(netip.Addr, Use) bool) {
		for _, n := range c.Nodes {
			for _, a := range slices.Concat(n.Addresses, n.ExternalIPs) {
				if !yield(a, UsedByNode) {
					return
				}
			}
		}
		for _, s := range c.Services {
			if !c.each(s.ClusterIPs, yield) {
				return
			}
		}
		for _, addresses := range c.ClusterIPs {
			if !c.each(addresses, yield) {
				return
			}
		}
	}
}

// each yields those ClusterIPs that no range says already, until told to stop.
func (c *Cluster) each(addresses []netip.Addr, yield func(netip.Addr, Use) bool) bool {
	for _, a := range addresses {
		if !c.ServiceRange(a).IsValid() && !yield(a, UsedClusterIP) {
			return false
		}
	}
	return true
}

// ServiceRange is the range of ClusterIPs that has the address; the zero Prefix for none.
func (c *Cluster) ServiceRange(a netip.Addr) netip.Prefix {
	for _, r := range c.ServiceRanges {
		if r.Contains(a) {
			return r
		}
	}
	return netip.Prefix{}
}

// JoinRanges are the ranges of all ServiceCIDRs, by whatever names, sorted, each once.
func JoinRanges(of map[string][]netip.Prefix) []netip.Prefix {
	all := slices.Concat(slices.Collect(maps.Values(of))...)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}
