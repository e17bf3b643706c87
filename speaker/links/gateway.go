package links

import (
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Gateway is the next hop of a default route.
type Gateway struct {
	Address netip.Addr // IPv6 ones are link-local as a rule; without a zone
	Link    int        // index of the interface behind which it is
}

// far has an address of each family to which no route leads but a default one: the IPv4
// dummy address (RFC 7600), and one of the block that global unicast begins with, since a
// default route of IPv6 may be written as 2000::/3.
func far() []net.IP { return []net.IP{net.IPv4(192, 0, 0, 8), net.ParseIP("2000::8")} }

// Gateways asks the kernel for the default routes' next hops, at most one of each family. It
// costs the same with any number of routes. Without such a route there are none.
func (w *Watcher) Gateways() []Gateway {
	var found []Gateway
	for _, to := range far() {
		routes, err := netlink.RouteGet(to)
		if err != nil {
			continue // the network is unreachable
		}
		for _, r := range routes {
			if a, ok := netip.AddrFromSlice(r.Gw); ok && r.LinkIndex > 0 {
				found = append(found, Gateway{a.Unmap(), r.LinkIndex})
				break
			}
		}
	}
	return found
}

// Own is the address by which the link speaks to a neighbour: one of a subnet that holds it,
// or else any of its family; invalid if the link has none.
func (l Link) Own(neighbour netip.Addr) netip.Addr {
	var own netip.Addr
	for _, p := range l.Prefixes {
		switch {
		case p.Addr().Is4() != neighbour.Is4():
		case p.Contains(neighbour):
			return p.Addr()
		case !own.IsValid():
			own = p.Addr()
		}
	}
	return own
}

func (l Link) holds(a netip.Addr) bool { return contain(l.Prefixes, a) }

func contain(subnets []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Holding are the links, of those given, with a subnet that holds the address.
func Holding(a netip.Addr, of []Link) []Link {
	return slices.DeleteFunc(slices.Clone(of), func(l Link) bool { return !l.holds(a) })
}
