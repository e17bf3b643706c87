package egress

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// attempts are how often the kernel is asked while what it lists changes meanwhile.
const attempts = 3

// Read asks the kernel for the addresses and routes of this network namespace. The errors are the kernel's.
func Read() (h Host, err error) {
	for range attempts {
		if h, err = read(); !nfnetlink.Again(err) {
			break
		}
	}
	return h, err
}

func read() (Host, error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return Host{}, fmt.Errorf("list the addresses of the interfaces: %w", err)
	}
	var h Host
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return Host{}, fmt.Errorf("list the routes: %w", err)
		}
		slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
		for _, r := range routes {
			if r.Type != unix.RTN_UNICAST {
				continue
			}
			to, known := destination(r.Dst, family)
			if !known || to.Addr().IsLinkLocalUnicast() {
				continue
			}
			route := Route{To: to, Hops: hops(r)}
			if source, given := netip.AddrFromSlice(r.Src); given {
				route.Source = source.Unmap()
			}
			h.Routes = append(h.Routes, route)
		}
	}
	h.Links, err = links(addresses, h.Routes)
	return h, err
}

func destination(of *net.IPNet, family int) (netip.Prefix, bool) {
	if of == nil {
		if family == netlink.FAMILY_V4 {
			return netip.PrefixFrom(netip.IPv4Unspecified(), 0), true
		}
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0), true
	}
	return prefix(of)
}

func prefix(of *net.IPNet) (netip.Prefix, bool) {
	a, ok := netip.AddrFromSlice(of.IP)
	bits, _ := of.Mask.Size()
	if a.Is4In6() && len(of.Mask) == net.IPv4len {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits), ok && bits >= 0
}

func hops(r netlink.Route) []Hop {
	if len(r.MultiPath) == 0 {
		return []Hop{hop(r.LinkIndex, r.Gw, r.Via)}
	}
	all := make([]Hop, 0, len(r.MultiPath))
	for _, n := range r.MultiPath {
		all = append(all, hop(n.LinkIndex, n.Gw, n.Via))
	}
	return all
}

func hop(link int, gateway net.IP, via netlink.Destination) Hop {
	h := Hop{Link: link, Gateway: gateway != nil || via != nil}
	if a, ok := netip.AddrFromSlice(gateway); ok {
		h.Via = a.Unmap()
	}
	return h
}

// links are those with addresses by which other machines may reach this one, and those that lead to routers.
func links(addresses []netlink.Addr, routes []Route) ([]Link, error) {
	found := map[int]*Link{}
	for _, r := range routes {
		for _, hop := range r.Hops {
			if hop.Gateway && found[hop.Link] == nil {
				found[hop.Link] = &Link{Index: hop.Link}
			}
		}
	}
	for _, a := range addresses {
		p, ok := prefix(a.IPNet)
		if !ok || a.Scope > unix.RT_SCOPE_LINK || p.Addr().Is6() && a.Scope == unix.RT_SCOPE_LINK {
			continue
		}
		passed := unix.IFA_F_SECONDARY
		if p.Addr().Is6() { // where the flag says that an address is temporary
			passed = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
		}
		if found[a.LinkIndex] == nil {
			found[a.LinkIndex] = &Link{Index: a.LinkIndex}
		}
		l := found[a.LinkIndex]
		l.Addrs = append(l.Addrs, Addr{p, a.Scope == unix.RT_SCOPE_LINK || a.Flags&passed != 0})
	}
	all := make([]Link, 0, len(found))
	for _, index := range slices.Sorted(maps.Keys(found)) {
		l := found[index]
		link, err := netlink.LinkByIndex(index)
		if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at interface %d: %w", index, err)
		}
		l.Name, l.Tunnel = link.Attrs().Name, isTunnel(link.Type())
		l.Bridge = link.Type() == "bridge"
		l.Stub = link.Type() == "dummy" || link.Attrs().Flags&net.FlagLoopback != 0
		all = append(all, *l)
	}
	return all, nil
}

// isTunnel reports whether the far ends of interfaces of a kind are other nodes, which know the addresses of both ends.
func isTunnel(kind string) bool {
	switch kind {
	case "vxlan", "geneve", "ipip", "ip6tnl", "sit", "gre", "gretap", "ip6gre", "ip6gretap", "vti", "vti6", "xfrm", "wireguard", "tuntap", "tun":
		return true
	}
	return false
}
