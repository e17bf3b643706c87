package pulse

import (
	"net"
	"net/netip"

	"fairlead.dev/fairlead/speaker/links"
)

// port is an interface in a subnet, with a carrier or without.
func port(index int, name, prefix string, carrier bool) links.Link {
	return links.Link{
		Index: index, Name: name, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)},
		Up: true, Running: carrier, Broadcast: true, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)},
	}
}
