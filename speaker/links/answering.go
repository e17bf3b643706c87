package links

import (
	"net/netip"
	"slices"
)

// Answering returns the links on which this node may answer for the address,
// sorted by index:
//
//   - those named, if any are named;
//   - else those with a subnet that holds the address: its neighbours live there. Of several with
//     the same subnet, which are on one segment, it is the one by which the kernel routes it: on
//     two, clients would see two MACs, and with rp_filter one of them is dead;
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
	chosen = slices.DeleteFunc(chosen, func(l Link) bool { return !l.carries() })
	if len(named) == 0 {
		chosen = one(chosen, address)
	}
	return chosen
}

// one leaves of the links with the same subnet for the address the one by which the kernel routes it, or the first
// where that one is down.
func one(all []Link, a netip.Addr) []Link {
	kept := map[netip.Prefix]int{} // the index of the link
	for _, l := range all {
		subnet := l.subnet(a)
		if _, known := kept[subnet]; !known || !slices.Contains(l.Aside, subnet) {
			kept[subnet] = l.Index
		}
	}
	return slices.DeleteFunc(all, func(l Link) bool {
		subnet := l.subnet(a)
		return subnet.IsValid() && len(l.Aside) > 0 && kept[subnet] != l.Index
	})
}

// subnet is the longest of a link with the address; invalid if it has none.
func (l Link) subnet(a netip.Addr) (longest netip.Prefix) {
	for _, p := range l.Prefixes {
		if p.Contains(a) && (!longest.IsValid() || p.Bits() > longest.Bits()) {
			longest = p.Masked()
		}
	}
	return longest
}
