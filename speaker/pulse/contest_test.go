package pulse

import (
	"net/netip"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

var (
	stranger  = neighbour.MAC{2, 0, 0, 0, 9, 9}
	colleague = neighbour.MAC{2, 0, 0, 0, 0, 20}
)

func says(a netip.Addr, station neighbour.MAC) neighbour.Claim {
	return neighbour.Claim{Address: a, Station: station, Interface: "eth2", Index: 2}
}
