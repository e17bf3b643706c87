package links

import (
	"net/netip"
	"slices"
)

// Answering returns the links on which this node may answer for the address,
// sorted by index:
//
//   - those named, if any are named;
//   - else those with a subnet that holds the address: its neighbours live there;
//   - else those with one of nodeAddrs, the addresses by which the cluster knows
//     this node: routers reach the address through them.
//
// For an IPv6 address, only links with an IPv6 address of their own are looked at: on
// others IPv6 is switched off, or not ready yet.
//
// Of these, only links that are up with a carrier count, and no rule makes up
// for a link of an earlier one that is down: an address shall not wander into
// another segment because a cable was pulled. The result is empty if this node
// cannot answer for the address now.
func (s *Snapshot) Answering(address netip.Addr, named []string, nodeAddrs []netip.Addr) []Link {
	var byName, bySubnet, byNode []Link
	for _, l := range s.asked {
		if address.Is6() && !l.speaks6() {
			continue
		}
		if slices.Contains(named, l.Name) {
			byName = append(byName, l)
		}
		if l.holds(address) {
			bySubnet = append(bySubnet, l)
		}
		if slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return slices.Contains(nodeAddrs, p.Addr()) }) {
			byNode = append(byNode, l)
		}
	}
	chosen := byNode
	switch {
	case len(named) > 0:
		chosen = byName
	case len(bySubnet) > 0:
		chosen = bySubnet
	}
	return slices.DeleteFunc(chosen, func(l Link) bool { return !l.carries() })
}
