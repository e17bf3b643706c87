package ndp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// Offsets into an untagged Ethernet frame with an IPv6 packet that has no
// extension headers.
const (
	offsetNextHeader = 14 + 6
	offsetType       = 14 + 40
)

// filter lets the kernel pass on only neighbour solicitations and advertisements
// that are for this station and carry no VLAN tag. A tagged frame for a VLAN that
// has an interface here arrives on that interface; the kernel marks all others as
// meant for another host. The first check is what most packets of a node fail.
//
// Messages behind extension headers do not pass. Nobody sends such, and fragments
// are not to be accepted (RFC 6980).
func filter() []bpf.Instruction {
	const drop = 10 // the index of the last instruction
	otherwise := func(at int) uint8 { return uint8(drop - at - 1) }
	return []bpf.Instruction{
		0:  bpf.LoadAbsolute{Off: offsetNextHeader, Size: 1},
		1:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: otherwise(1)},
		2:  bpf.LoadAbsolute{Off: offsetType, Size: 1},
		3:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ipv6.ICMPTypeNeighborSolicitation), SkipTrue: 1},
		4:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ipv6.ICMPTypeNeighborAdvertisement), SkipTrue: otherwise(4)},
		5:  bpf.LoadExtension{Num: bpf.ExtType},
		6:  bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_MULTICAST, SkipTrue: otherwise(6)},
		7:  bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		8:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: otherwise(8)},
		9:  bpf.RetConstant{Val: neighbour.MaxFrame},
		10: bpf.RetConstant{Val: 0},
	}
}
