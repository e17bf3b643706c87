package owner

import (
	"net/netip"
)

// The gateway of a cluster that has one.
const gatewayIndex = 200

var gatewayAddress = netip.AddrFrom4([4]byte{192, 0, 2, gatewayIndex + 1})
