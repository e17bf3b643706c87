package links

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// aside fills in which subnets of links the kernel routes by other ones. It asks for those alone that
// several links have: hardly any node has such. by returns the index of the link of the route to an address; 0: it is
// not known.
func aside(all map[int]Link, by func(netip.Addr) int) map[int]Link {
	with := map[netip.Prefix][]int{}
	own := map[netip.Addr]bool{}
	for index, l := range all {
		for _, p := range l.Prefixes {
			own[p.Addr()] = true
			if subnet := p.Masked(); !p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast() && !slices.Contains(with[subnet], index) {
				with[subnet] = append(with[subnet], index)
			}
		}
	}
	for subnet, among := range with {
		if len(among) == 1 {
			continue
		}
		other := subnet.Addr().Next() // the first one is the network's
		for own[other] {
			other = other.Next()
		}
		routed := by(other)
		if !subnet.Contains(other) || !slices.Contains(among, routed) {
			continue
		}
		for _, index := range among {
			if l := all[index]; index != routed {
				l.Aside = append(l.Aside, subnet)
				slices.SortFunc(l.Aside, netip.Prefix.Compare)
				all[index] = l
			}
		}
	}
	return all
}

// shared reports whether several links have one subnet, of which the kernel routes by one.
func (s *Snapshot) shared() bool {
	for _, l := range s.links {
		if len(l.Aside) > 0 {
			return true
		}
	}
	return false
}

// routedBy is the link of the kernel's route to an address; 0: there is none.
func routedBy(a netip.Addr) int {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 {
		return 0
	}
	return routes[0].LinkIndex
}
