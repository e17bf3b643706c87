package ipset

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

func protocol() nfnetlink.Attributes {
	return nfnetlink.Attributes(nil).Add(nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
}

func named(name string) nfnetlink.Attributes {
	return protocol().Text(nl.IPSET_ATTR_SETNAME, name)
}

func address(v netip.Addr) nfnetlink.Attributes {
	kind := uint16(nl.IPSET_ATTR_IPADDR_IPV4)
	if v.Is6() {
		kind = nl.IPSET_ATTR_IPADDR_IPV6
	}
	return nfnetlink.Attributes(nil).Add(kind|unix.NLA_F_NET_BYTEORDER, v.AsSlice()...)
}

func (e Element) attributes() nfnetlink.Attributes {
	var a nfnetlink.Attributes
	if e.Prefix.IsValid() {
		a = a.Nested(nl.IPSET_ATTR_IP, address(e.Prefix.Addr()))
		if !e.Prefix.IsSingleIP() {
			a = a.Add(nl.IPSET_ATTR_CIDR, uint8(e.Prefix.Bits()))
		}
	}
	if e.Second.IsValid() {
		a = a.Nested(nl.IPSET_ATTR_IP2, address(e.Second))
	}
	if e.Protocol != 0 {
		a = a.Add(nl.IPSET_ATTR_PROTO, e.Protocol)
	}
	if e.Port != 0 || !e.Prefix.IsValid() {
		a = a.Uint16(nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, e.Port)
	}
	return a
}

func parseHeader(data []byte) Header {
	number := func(path ...uint16) uint32 {
		n, _ := nfnetlink.Number(data, path...)
		return n
	}
	h := Header{
		Spec: Spec{
			Name: nfnetlink.Text(data, nl.IPSET_ATTR_SETNAME), Type: Type(nfnetlink.Text(data, nl.IPSET_ATTR_TYPENAME)),
			MaxElements: number(nl.IPSET_ATTR_DATA, nl.IPSET_ATTR_MAXELEM),
			Timeout:     number(nl.IPSET_ATTR_DATA, nl.IPSET_ATTR_TIMEOUT),
			ForceAdd:    number(nl.IPSET_ATTR_DATA, nl.IPSET_ATTR_CADT_FLAGS)&nl.IPSET_FLAG_WITH_FORCEADD != 0,
		},
		Elements: int(number(nl.IPSET_ATTR_DATA, nl.IPSET_ATTR_ELEMENTS)),
	}
	for _, family := range addr.Families() {
		if number(nl.IPSET_ATTR_FAMILY) == uint32(nfnetlink.Protocol(family)) {
			h.Family = family
		}
	}
	return h
}

// eachElement calls f for each element in an answer.
func eachElement(answer []byte, f func(Element)) {
	nfnetlink.Each(nfnetlink.Find(answer, nl.IPSET_ATTR_ADT), func(kind uint16, data []byte) {
		if kind == nl.IPSET_ATTR_DATA {
			f(parseElement(data))
		}
	})
}

func parseElement(data []byte) (e Element) {
	var prefix netip.Addr
	bits := -1
	nfnetlink.Each(data, func(kind uint16, value []byte) {
		number, _ := nfnetlink.Number(value)
		switch kind {
		case nl.IPSET_ATTR_IP:
			prefix = parseAddress(value)
		case nl.IPSET_ATTR_IP2:
			e.Second = parseAddress(value)
		case nl.IPSET_ATTR_CIDR:
			bits = int(number)
		case nl.IPSET_ATTR_PROTO:
			e.Protocol = uint8(number)
		case nl.IPSET_ATTR_PORT:
			e.Port = uint16(number)
		}
	})
	switch {
	case bits >= 0:
		e.Prefix = netip.PrefixFrom(prefix, bits)
	case prefix.IsValid():
		e.Prefix = addr.HostPrefix(prefix)
	}
	return e
}

// parseAddress reads the address in a nest of either family, the zero Addr if there is none.
func parseAddress(nest []byte) (a netip.Addr) {
	nfnetlink.Each(nest, func(_ uint16, v []byte) { a, _ = netip.AddrFromSlice(v) })
	return a
}

// request is how to send a command: nfnetlink.Request, or one over a Conn.
type request func(subsystem, command, flags int, family addr.Family, body nfnetlink.Attributes, f func(answer []byte)) error

func call(command, flags int, body nfnetlink.Attributes, f func(answer []byte)) error {
	return put(nfnetlink.Request, command, flags, body, f)
}

// put is call in a way to send it.
func put(over request, command, flags int, body nfnetlink.Attributes, f func(answer []byte)) error {
	err := over(unix.NFNL_SUBSYS_IPSET, command, nl.GetIpsetFlags(command)|flags, addr.IPv4, body, f)
	var errno unix.Errno
	if errors.As(err, &errno) && kernelErrors[errno] != nil {
		return kernelErrors[errno]
	}
	return err
}
