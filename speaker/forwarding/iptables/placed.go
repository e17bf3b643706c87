package iptables

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
)

// Placed reads from the kernel what Services are reached at by our rules, whichever
// process wrote them, and their endpoints. NodePorts, which are those of all protocols, have
// no address. The errors are those of ipset.Elements.
func Placed(family addr.Family, protocol view.Protocol) (services, endpoints []netip.AddrPort, err error) {
	read := func(of string) []netip.AddrPort {
		elements, failed := ipset.Elements(style{family: family}.setName(of))
		switch {
		case errors.Is(failed, ipset.ErrMissing), errors.Is(failed, unix.EINVAL): // the latter without the kernel's module
		default:
			err = errors.Join(err, failed)
		}
		var found []netip.AddrPort
		for _, e := range elements {
			if e.Protocol == 0 || e.Protocol == protocol.Number() {
				found = append(found, netip.AddrPortFrom(e.Prefix.Addr(), e.Port))
			}
		}
		return found
	}
	return append(read(ofDestinations), read(ofNodePorts)...), read(ofEndpoints), err
}
