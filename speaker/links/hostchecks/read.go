package hostchecks

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/links"
)

// strict is the value of rp_filter with which a packet is dropped that came by another
// interface than the answer would leave by (RFC 3704), and loose the one with which it is dropped only if there is no way
// back at all. On an interface without an IPv4 address the kernel takes loose for strict.
const (
	strict = 1
	loose  = 2
)

// Read looks at the interfaces in the network namespace of its caller. own are the addresses
// of the node. The cost grows with the interfaces that are given, and with nothing else. An error
// leaves out only what could not be read.
func Read(s *links.Snapshot, interfaces []links.Link, own []netip.Addr) (Kernel, error) {
	k := Kernel{Links: s, Interfaces: make(map[string]Interface, len(interfaces))}
	var errs []error
	for _, l := range interfaces {
		i, err := read(l, own)
		if err != nil {
			errs = append(errs, fmt.Errorf("interface %s: %w", l.Name, err))
		}
		k.Interfaces[l.Name] = i
	}
	return k, errors.Join(errs...)
}

func read(l links.Link, own []netip.Addr) (Interface, error) {
	i := Interface{ARPIgnore: setting(l.Name, "arp_ignore")}
	forwards := value("ipv4", l.Name, "forwarding") != 0
	i.Proxy = forwards && setting(l.Name, "proxy_arp") != 0
	i.OwnSide = forwards && setting(l.Name, "proxy_arp_pvlan") != 0
	filter := setting(l.Name, "rp_filter")
	bare := !slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if filter == strict || filter == loose && bare {
		i.Away, i.Bare = away(l, own), bare
	}
	var err error
	if i.Entries, err = entries(l); err != nil {
		return i, fmt.Errorf("list the addresses that the kernel is a proxy for: %w", err)
	}
	if i.Proxy || i.OwnSide || len(i.Entries) > 0 {
		i.Leaves = leaves
	}
	if _, none := os.Stat(filepath.Join("/sys/class/net", l.Name, "phy80211")); none == nil {
		link, err := netlink.LinkByIndex(l.Index)
		if err != nil {
			return i, fmt.Errorf("ask whether it is promiscuous: %w", err)
		}
		i.Selective = link.Attrs().Promisc == 0
	}
	return i, nil
}

// setting is the value of a sysctl of IPv4 on an interface, or that for all of them if that is
// greater: so the kernel has it with all that are read here. 0 if there is none.
func setting(name, of string) int { return max(value("ipv4", name, of), value("ipv4", "all", of)) }

func value(family, name, of string) int {
	text, err := os.ReadFile(filepath.Join("/proc/sys/net", family, "conf", name, of))
	if err != nil {
		return 0 // the interface is gone, or this kernel has no such setting
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // the kernel prints numbers
	return n
}

// beyond is an address to which no route leads but a default one: the IPv4 dummy address (RFC 7600).
func beyond() net.IP { return net.IPv4(192, 0, 0, 8) }

// away is the interface by which answers to clients beyond the network leave that come by the
// link, if that is another one. The kernel is asked what it would do with a packet of theirs for
// this node. It looks up the way back by that packet, so that rules for it count.
func away(l links.Link, own []netip.Addr) string {
	for _, to := range own {
		if !to.Is4() {
			continue
		}
		if _, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Iif: l.Name, SrcAddr: beyond()}); err == nil {
			return ""
		}
		if by := leaves(netip.AddrFrom4([4]byte(beyond().To4()))); by != l.Name {
			return by // empty if there is no way back at all, which is no matter of the filter
		}
	}
	return ""
}

// leaves is the interface by which the kernel would send to an address; empty if it has no route.
func leaves(a netip.Addr) string {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type == unix.RTN_LOCAL {
		return ""
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}

// entries returns the addresses for which the kernel was told to be a proxy on a link. Of IPv6, it heeds
// them only where it forwards and proxy_ndp is on.
func entries(l links.Link) ([]netip.Addr, error) {
	families := []int{unix.AF_INET}
	if value("ipv6", l.Name, "forwarding") != 0 && max(value("ipv6", l.Name, "proxy_ndp"), value("ipv6", "all", "proxy_ndp")) != 0 {
		families = append(families, unix.AF_INET6)
	}
	var all []netip.Addr
	for _, family := range families {
		found, err := netlink.NeighProxyList(l.Index, family)
		if err != nil {
			return all, err
		}
		for _, n := range found {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				all = append(all, a.Unmap())
			}
		}
	}
	return all, nil
}
