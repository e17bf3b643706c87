package reusedports

import (
	"encoding/binary"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// beforeTranslation is a priority between those of connection tracking (-200) and of DNAT (-100): the flow of a packet
// is known, and its destination is what the client sends to.
const beforeTranslation = -150

// begins are the rules of the chains that all packets come through: few of them get past the first comparisons.
func begins() []nftable.Rule {
	return []nftable.Rule{
		rule("a SYN of a flow", ifProtocol(unix.IPPROTO_TCP), ifByte(13, synFlags, syn), ifAnswered(), goTo("known")),
		rule("an INIT of a flow", ifProtocol(unix.IPPROTO_SCTP), ifByte(12, 0xff, sctpInit), ifAnswered(), goTo("known")),
	}
}

// known are the rules for such a packet. The first one of an established connection is dropped: the endpoint's address may be
// another pod's by now, which must not get it. The client sends it again after a second, and that goes where the flow goes,
// unless this was deleted.
func known(family addr.Family) []nftable.Rule {
	tuple := loadTuple(family)
	return []nftable.Rule{
		rule("sent again", tuple, []expr.Any{&expr.Lookup{SourceRegister: register(0), SetName: begun}}, verdict(expr.VerdictReturn, "")),
		rule("the first one", ifStatus(assured), tuple, add(), verdict(expr.VerdictDrop, "")),
		rule("not established yet", tuple, add()),
	}
}

func rule(says string, exprs ...[]expr.Any) nftable.Rule {
	r := nftable.Rule{Says: says}
	for _, e := range exprs {
		r.Exprs = append(r.Exprs, e...)
	}
	return r
}

func register(n uint32) uint32 { return unix.NFT_REG32_00 + n }

// words is how many registers an address takes.
func words(family addr.Family) uint32 {
	if family == addr.IPv6 {
		return 4
	}
	return 1
}

// TCP flags (RFC 9293, 3.1) that are looked at, and the chunk that begins an association (RFC 9260, 3.2).
const (
	syn      = 0x02
	synFlags = 0x17 // ACK, RST, SYN, FIN
	sctpInit = 1
)

func ifProtocol(number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{number}},
	}
}

// ifByte ends the rule unless a byte of the transport header, masked, is this one.
func ifByte(offset uint32, mask, is byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register(0), Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1},
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{is}},
	}
}

// Bits of the state and the status of a flow.
const (
	established = 1 << 1 // of ct state: there was an answer
	assured     = 1 << 2 // IPS_ASSURED: and the client took it
	translated  = 1 << 5 // IPS_DST_NAT
)

// ifAnswered ends the rule unless the packet is the client's, and of a flow that is translated and was answered.
func ifAnswered() []expr.Any {
	return append(append(ifBit(expr.CtKeySTATE, established), ifStatus(translated)...),
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{0}}, // IP_CT_DIR_ORIGINAL
	)
}

func ifStatus(bit uint32) []expr.Any { return ifBit(expr.CtKeySTATUS, bit) }

func ifBit(key expr.CtKey, bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: register(0)},
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: make([]byte, 4)},
	}
}

// loadTuple loads the key of the set.
func loadTuple(family addr.Family) []expr.Any {
	size, source, destination := words(family), uint32(12), uint32(16)
	if family == addr.IPv6 {
		source, destination = 8, 24
	}
	load := func(base expr.PayloadBase, offset, length, into uint32) expr.Any {
		return &expr.Payload{DestRegister: register(into), Base: base, Offset: offset, Len: length}
	}
	return []expr.Any{
		load(expr.PayloadBaseNetworkHeader, source, 4*size, 0),
		load(expr.PayloadBaseTransportHeader, 0, 2, size),
		load(expr.PayloadBaseNetworkHeader, destination, 4*size, size+1),
		load(expr.PayloadBaseTransportHeader, 2, 2, 2*size+1),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register(2*size + 2)},
	}
}

// add notes the tuple, and ends the rule where there is no room.
func add() []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: register(0), SetName: begun, Operation: unix.NFT_DYNSET_OP_ADD}}
}

func verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

func goTo(chain string) []expr.Any { return verdict(expr.VerdictGoto, chain) }
