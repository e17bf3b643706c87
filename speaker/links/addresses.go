package links

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// address is one of a link.
type address struct {
	own  netip.Prefix // with the length of its subnet; with all bits if it has a peer
	peer netip.Prefix // the other end, with the length of its subnet; invalid: none
}

// key is the same for addresses of which a link has one at a time: IPv4 has the same address towards
// several peers, and IPv6 once, with a peer that may change without the former one being deleted.
func (a address) key() address {
	if a.own.Addr().Is6() {
		return address{own: netip.PrefixFrom(a.own.Addr(), a.own.Addr().BitLen())}
	}
	return a
}

// addressNotice is a message of the kernel about an address, listed or changed.
type addressNotice struct {
	address
	link    int // its index
	deleted bool
}

// readAddress decodes a message of the kernel about an address. The library leaves the peer out of
// notices, which is why they are read here.
func readAddress(header syscall.NlMsghdr, message []byte) (addressNotice, error) {
	info := nl.DeserializeIfAddrmsg(message)
	attrs, err := nl.ParseRouteAttr(message[info.Len():])
	if err != nil {
		return addressNotice{}, err
	}
	var local, other netip.Addr
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			other, _ = netip.AddrFromSlice(a.Value)
		}
	}
	n := addressNotice{link: int(info.Index), deleted: header.Type == unix.RTM_DELADDR}
	subnet := netip.PrefixFrom(other, int(info.Prefixlen))
	// Without a peer, IPv4 has the address in both and IPv6 in the second one alone.
	if !local.IsValid() || local == other {
		n.own = subnet
	} else {
		n.own, n.peer = netip.PrefixFrom(local, local.BitLen()), subnet
	}
	return n, nil
}

// prefixes are the Prefixes and the Peered of a link with the addresses.
func prefixes(all map[address]address) (own, peered []netip.Prefix) {
	for _, a := range all {
		own = append(own, a.own)
		if a.peer.IsValid() && a.own.Addr().Is6() {
			peered = append(peered, netip.PrefixFrom(a.own.Addr(), a.peer.Bits()))
		}
	}
	slices.SortFunc(own, netip.Prefix.Compare)
	slices.SortFunc(peered, netip.Prefix.Compare)
	return slices.Compact(own), peered
}
