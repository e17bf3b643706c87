package arp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into an untagged Ethernet frame, and the operations.
const (
	offsetEtherType = 12
	offsetOperation = 20
	request         = 1
	reply           = 2
)

// snapLength is how much of a frame is read, in bytes: ARP needs 42.
const snapLength = 128

// filter lets the kernel pass on only ARP requests and replies that are for this
// station and carry no VLAN tag. Replies tell of stations that have our addresses. A tagged frame for a VLAN that has an interface here
// arrives on that interface; the kernel marks all others as meant for another
// host.
func filter() []bpf.Instruction {
	const drop = 10 // the index of the last instruction
	otherwise := func(at int) uint8 { return uint8(drop - at - 1) }
	return []bpf.Instruction{
		0:  bpf.LoadExtension{Num: bpf.ExtType},
		1:  bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_MULTICAST, SkipTrue: otherwise(1)},
		2:  bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		3:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: otherwise(3)},
		4:  bpf.LoadAbsolute{Off: offsetEtherType, Size: 2},
		5:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_ARP, SkipTrue: otherwise(5)},
		6:  bpf.LoadAbsolute{Off: offsetOperation, Size: 2},
		7:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: request, SkipTrue: 1},
		8:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: reply, SkipTrue: otherwise(8)},
		9:  bpf.RetConstant{Val: snapLength},
		10: bpf.RetConstant{Val: 0},
	}
}
