package forwarding

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// localAddresses are those of the node: of its interfaces, and all that its routes deliver to itself.
type localAddresses struct {
	interfaces map[netip.Addr]bool
	routes     []netip.Prefix // of more than one address
}

// readLocalAddresses asks the kernel for them. The errors are the kernel's.
func readLocalAddresses() (*localAddresses, error) {
	own, err := ownAddresses()
	if err != nil {
		return nil, err
	}
	l := &localAddresses{interfaces: own}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("list the node's local routes: %w", err)
	}
	defer h.Close()
	if err := h.SetStrictCheck(true); err != nil { // so that the kernel tells of no other table, which may be large
		return nil, fmt.Errorf("list the node's local routes: %w", err)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		err := h.RouteListFilteredIter(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE, func(r netlink.Route) bool {
				l.take(r.Dst)
				return true
			})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("list the node's local routes: %w", err)
		}
	}
	return l, nil
}

func (l *localAddresses) take(to *net.IPNet) {
	if to == nil {
		return
	}
	a, _ := netip.AddrFromSlice(to.IP)
	ones, bits := to.Mask.Size()
	switch a = a.Unmap(); {
	case !a.IsValid() || a.IsLoopback():
	case ones == bits:
		l.interfaces[a] = true
	default:
		l.routes = append(l.routes, netip.PrefixFrom(a, ones))
	}
}

// have tells whether an address is the node's. Of loopback ones it has more than any interface lists.
func (l *localAddresses) have(a netip.Addr) bool {
	return l.interfaces[a] || a.IsLoopback() || within(l.routes, a)
}

// ownAddresses are those of the node's interfaces, loopback ones excepted.
func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, each := range all {
		if prefix, err := netip.ParsePrefix(each.String()); err == nil && !prefix.Addr().IsLoopback() {
			own[prefix.Addr()] = true
		}
	}
	return own, nil
}
