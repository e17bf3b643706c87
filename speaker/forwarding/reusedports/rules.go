package reusedports

import (
	"encoding/binary"
	"slices"
	"time"

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
		rule("a SYN of a flow, or its answer", ifProtocol(unix.IPPROTO_TCP), ifByte(13, synFlags, expr.CmpOpEq, syn), ifAnswered(), goTo(ofTCP)),
		rule("an INIT of a flow, or its answer", ifProtocol(unix.IPPROTO_SCTP), ifByte(12, 0xff, expr.CmpOpGte, sctpInit), ifByte(12, 0xff, expr.CmpOpLte, sctpInitAck),
			ifAnswered(), goTo(ofSCTP)),
	}
}

// Chains of such packets; tcp alone is a word of nft.
const (
	ofTCP  = "of-tcp"
	ofSCTP = "of-sctp"
)

// known are the rules for such a packet. The first one of an established connection is dropped: the endpoint's address may be
// another pod's by now, which must not get it. The client sends it again after a second, and that goes where the flow goes,
// unless this was deleted. An answer ends the wait: the next one is of yet another connection.
func known(family addr.Family, protocol byte) []nftable.Rule {
	tuple := loadTuple(family, protocol)
	noted := append(slices.Clone(tuple), &expr.Lookup{SourceRegister: register(0), SetName: begun})
	return []nftable.Rule{
		rule("an answer", ifDirection(reply), noted, write(unix.NFT_DYNSET_OP_UPDATE, forgotten)),
		rule("nothing waits for it any more", ifDirection(reply), verdict(expr.VerdictReturn, "")),
		rule("sent again", noted, write(unix.NFT_DYNSET_OP_UPDATE, 0), verdict(expr.VerdictReturn, "")),
		rule("the first one", ifStatus(assured), tuple, write(unix.NFT_DYNSET_OP_ADD, 0), verdict(expr.VerdictDrop, "")),
		rule("not established yet", tuple, write(unix.NFT_DYNSET_OP_ADD, 0)),
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

// TCP flags (RFC 9293, 3.1) that are looked at: an answer has an ACK besides; and the chunks that begin an association and answer
// that (RFC 9260, 3.2).
const (
	syn         = 0x02
	synFlags    = 0x07 // RST, SYN, FIN
	sctpInit    = 1
	sctpInitAck = 2
)

func ifProtocol(number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{number}},
	}
}

// ifByte ends the rule unless a byte of the transport header, masked, is to this one as the operator says.
func ifByte(offset uint32, mask byte, op expr.CmpOp, than byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register(0), Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1},
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: op, Register: register(0), Data: []byte{than}},
	}
}

// Bits of the state and the status of a flow.
const (
	established = 1 << 1 // of ct state: there was an answer
	assured     = 1 << 2 // IPS_ASSURED: and the client took it
	translated  = 1 << 5 // IPS_DST_NAT
)

// ifAnswered ends the rule unless the packet is of a flow that is translated and was answered.
func ifAnswered() []expr.Any {
	return append(ifBit(expr.CtKeySTATE, established), ifStatus(translated)...)
}

const reply = 1 // IP_CT_DIR_REPLY

func ifDirection(is byte) []expr.Any {
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register(0)}, &expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{is}}}
}

func ifStatus(bit uint32) []expr.Any { return ifBit(expr.CtKeySTATUS, bit) }

func ifBit(key expr.CtKey, bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: register(0)},
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: make([]byte, 4)},
	}
}

// loadTuple loads the key of the set: where the client sends from and to, whichever way the packet goes. nft refuses rules that it
// shows of ports unless they tell the protocol, which is known.
func loadTuple(family addr.Family, protocol byte) []expr.Any {
	size := words(family)
	return append(ifProtocol(protocol),
		&expr.Ct{Key: expr.CtKeySRC, Register: register(0)},
		&expr.Ct{Key: expr.CtKeyPROTOSRC, Register: register(size)},
		&expr.Ct{Key: expr.CtKeyDST, Register: register(size + 1)},
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: register(2*size + 1)},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register(2*size + 2)},
	)
}

// forgotten is how much longer a tuple is noted that was answered: the kernel's deletion by packets leaks memory before Linux 6.5,
// and what is less than a tick of its clock, of 10 ms at most, is no time to it before 6.12.
const forgotten = 100 * time.Millisecond

// write notes the tuple, for as long as the set has it or another time, and ends the rule where there is no room.
func write(how uint32, lasting time.Duration) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: register(0), SetName: begun, Operation: how, Timeout: lasting}}
}

func verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

func goTo(chain string) []expr.Any { return verdict(expr.VerdictGoto, chain) }
