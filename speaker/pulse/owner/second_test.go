package owner

import (
	"net/netip"
)

// on4 and on6 are hosts of it.
func on4(host int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(host)}) }
