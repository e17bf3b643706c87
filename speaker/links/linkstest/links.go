package linkstest

import (
	"fmt"
	"net"
	"net/netip"

	"fairlead.dev/fairlead/speaker/links"
)

// Ethernet is an interface in a subnet of each family, with a carrier or without.
func Ethernet(index int, up bool) links.Link {
	l := Port(index, fmt.Sprintf("eth%d", index), "192.0.2.1/24", up)
	l.Prefixes = append(l.Prefixes, netip.MustParsePrefix("2001:db8::1/64"))
	return l
}

// Port is an interface in one subnet, with a carrier or without.
func Port(index int, name, prefix string, carrier bool) links.Link {
	return links.Link{
		Index: index, Name: name, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)},
		Up: true, Running: carrier, Broadcast: true, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)},
	}
}

// PodEnd is the host's end of a pod's cable, as some network plugins set it up: it has the
// address of the pods' gateway.
func PodEnd(index int) links.Link {
	return links.Link{
		Index: index, Name: fmt.Sprintf("veth%d", index), MAC: net.HardwareAddr{2, 1, 0, 0, byte(index >> 8), byte(index)}, Kind: "veth",
		Up: true, Running: true, Broadcast: true,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/32"), netip.MustParsePrefix("fe80::1/64")},
	}
}
