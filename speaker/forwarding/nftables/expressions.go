package nftables

import (
	"encoding/binary"
	"net"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// Keys begin in register 0, and values are looked up to it. Endpoints go elsewhere
// where the key of affinity takes its place.
const endpointAt = 8

// reg is one of the 16 registers of a word. The kernel keeps nothing in them from one
// rule to the next.
func reg(at uint32) uint32 { return unix.NFT_REG32_00 + at }

func flat(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// words is how many registers an address takes.
func (l *layout) words() uint32 {
	if l.Family == addr.IPv6 {
		return 4
	}
	return 1
}

func (l *layout) destination(w matchKind) []expr.Any {
	if w == byNodePort {
		return transport(0, destinationPort)
	}
	return flat(l.destinationAddress(0), transport(l.words(), destinationPort))
}

// behind is the register behind a destination.
func (l *layout) behind(w matchKind) uint32 {
	if w == byNodePort {
		return 2
	}
	return l.words() + 2
}

// Where a transport header has its ports.
const (
	sourcePort      = 0
	destinationPort = 2
)

func transport(at, which uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg(at)},
		&expr.Payload{DestRegister: reg(at + 1), Base: expr.PayloadBaseTransportHeader, Offset: which, Len: 2},
	}
}

func (l *layout) source(at uint32) []expr.Any             { return l.address(at, 12, 8) }
func (l *layout) destinationAddress(at uint32) []expr.Any { return l.address(at, 16, 24) }

func (l *layout) address(at, offset4, offset6 uint32) []expr.Any {
	offset := offset4
	if l.Family == addr.IPv6 {
		offset = offset6
	}
	return []expr.Any{&expr.Payload{
		DestRegister: reg(at), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4 * l.words(),
	}}
}

// lookup finds the value of a key, or ends the rule.
func (l *layout) lookup(in setID, value uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{
		SourceRegister: reg(0), DestRegister: reg(value), IsDestRegSet: true, SetName: l.sets[in].Name,
	}}
}

// find ends the rule unless the key is in the set, or with none if it is.
func (l *layout) find(in setID, none bool) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg(0), SetName: l.sets[in].Name, Invert: none}}
}

// findNone ends the rule if a Service has the destination that was loaded.
func (l *layout) findNone(w matchKind) (all []expr.Any) {
	for as := range byLink {
		all = append(all, l.find(w.known(as), true)...)
	}
	return all
}

// follow goes to the chain that a map has for the key.
func (l *layout) follow(in setID) []expr.Any {
	return []expr.Any{&expr.Lookup{
		SourceRegister: reg(0), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: l.sets[in].Name,
	}}
}

func goTo(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

// leave goes on behind where this chain was entered from.
func leave() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}} }

// counter counts the packets that come so far in a rule, see counted.
func counter() []expr.Any { return []expr.Any{&expr.Counter{}} }

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

// reject is the answer that an address without a host behind it gives.
func (l *layout) reject() expr.Any {
	const portUnreachable4, portUnreachable6 = 3, 4
	code := uint8(portUnreachable4)
	if l.Family == addr.IPv6 {
		code = portUnreachable6
	}
	return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}
}

// ifNode ends the rule unless the destination is where NodePorts answer, and is this
// node's own.
func (l *layout) ifNode() []expr.Any {
	return flat(l.destinationAddress(0), l.find(nodes, false), ifLocal(&expr.Fib{FlagDADDR: true}))
}

// ifLoopback ends the rule unless the IPv4 address that was loaded is in 127.0.0.0/8.
func ifLoopback() []expr.Any {
	lo := addr.Loopback()
	return []expr.Any{
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: net.CIDRMask(lo.Bits(), 32), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: lo.Addr().AsSlice()},
	}
}

// ifFromElsewhere ends the rule if this host sent to itself, over a loopback interface.
func ifFromElsewhere() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: reg(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_LOOPBACK)},
	}
}

// ifNotLocal ends the rule if the destination is this node's own.
func ifNotLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{FlagDADDR: true, Register: reg(0), ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: number(unix.RTN_LOCAL)},
	}
}

// fromNode ends the rule unless this node sends.
func fromNode() []expr.Any { return ifLocal(&expr.Fib{FlagSADDR: true}) }

func ifLocal(of *expr.Fib) []expr.Any {
	of.Register, of.ResultADDRTYPE = reg(0), true
	return []expr.Any{of, &expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: number(unix.RTN_LOCAL)}}
}

// ifPod ends the rule unless a pod sends, ifNoPod if one does, or may as far as is known.
func (l *layout) ifPod(links desired.Links) []expr.Any {
	if links == (desired.Links{}) {
		return flat(l.source(0), l.find(pods, false))
	}
	return ifArrivedBy(links, expr.CmpOpEq)
}

func (l *layout) ifNoPod(links desired.Links) []expr.Any {
	if links == (desired.Links{}) {
		return flat(l.source(0), l.find(pods, true), l.find(perhapsPods, true))
	}
	return ifArrivedBy(links, expr.CmpOpNeq)
}

// ifArrivedBy ends the rule unless a packet came in by one of these interfaces, or with
// CmpOpNeq if it did. What this node sends came in by the name "".
func ifArrivedBy(links desired.Links, op expr.CmpOp) []expr.Any {
	name := []byte(links.Name)
	if !links.Prefix { // with all that is behind it in the register
		name = append(name, make([]byte, unix.IFNAMSIZ-len(name))...)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg(0)},
		&expr.Cmp{Op: op, Register: reg(0), Data: name},
	}
}

// toItself ends the rule unless an endpoint is its own client, toServer unless an endpoint receives.
func (l *layout) toItself() []expr.Any {
	return flat(l.source(0), l.destinationAddress(l.words()), transport(2*l.words(), destinationPort), l.find(servers, false))
}

func (l *layout) toServer() []expr.Any {
	return flat(l.destinationAddress(0), l.destinationAddress(l.words()), transport(2*l.words(), destinationPort), l.find(servers, false))
}

// fromServer ends the rule unless an endpoint sends.
func (l *layout) fromServer() []expr.Any {
	return flat(l.source(0), l.source(l.words()), transport(2*l.words(), sourcePort), l.find(servers, false))
}

// States of packets of no connection: the table makes no sense of them, or was not asked.
const (
	inInvalid   = expr.CtStateBitINVALID
	inUntracked = expr.CtStateBitUNTRACKED
)

// ifState ends the rule unless the packet is in one of the states.
func ifState(states uint32) []expr.Any {
	return flat([]expr.Any{&expr.Ct{Register: reg(0), Key: expr.CtKeySTATE}}, ifBit(states))
}

// Flags of TCP, RFC 9293 section 3.1.
const (
	finFlag = 1 << 0
	synFlag = 1 << 1
	rstFlag = 1 << 2
	ackFlag = 1 << 4
)

// ifTCPFlags ends the rule unless a packet is of TCP and has all of these flags.
func ifTCPFlags(flags byte) []expr.Any {
	const at = 13 // of the flags in the header
	return flat(ifTCP(), []expr.Any{
		&expr.Payload{DestRegister: reg(0), Base: expr.PayloadBaseTransportHeader, Offset: at, Len: 1},
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 1, Mask: []byte{flags}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: []byte{flags}},
	})
}

func protocol(at uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg(at)}}
}

func ifTCP() []expr.Any { return ifProtocol(unix.IPPROTO_TCP) }

func ifProtocol(number byte) []expr.Any {
	return flat(protocol(0), []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: []byte{number}}})
}

// ifNoPorts ends the rule if a packet is of a protocol that Services have ports of.
func ifNoPorts() []expr.Any {
	all := protocol(0)
	for _, p := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		all = append(all, &expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: []byte{p}})
	}
	return all
}

// ifReply ends the rule unless a packet answers the first one of its flow.
func ifReply() []expr.Any {
	const reply = 1 // IP_CT_DIR_REPLY of the kernel
	return []expr.Any{
		&expr.Ct{Register: reg(0), Key: expr.CtKeyDIRECTION},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: []byte{reply}},
	}
}

// ifDNAT ends the rule unless the flow goes elsewhere than it was addressed to.
func ifDNAT() []expr.Any {
	const ipsDNAT = 1 << 5 // IPS_DST_NAT of the kernel
	return flat([]expr.Any{&expr.Ct{Register: reg(0), Key: expr.CtKeySTATUS}}, ifBit(ipsDNAT))
}

// ifBit ends the rule unless the first register has this bit.
func ifBit(bit uint32) []expr.Any {
	return []expr.Any{
		bitwise(0, bit, 0),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: number(0)},
	}
}

func bitwise(at, mask, xor uint32) expr.Any {
	return &expr.Bitwise{
		SourceRegister: reg(at), DestRegister: reg(at), Len: 4, Mask: number(mask), Xor: number(xor),
	}
}

// number is a number as a register holds it.
func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func masquerade() []expr.Any { return []expr.Any{&expr.Masq{FullyRandom: true}} }

// slot loads the destination and, behind it, a random slot, one of so many.
func (l *layout) slot(w matchKind, slots, first uint32) []expr.Any {
	return flat(l.destination(w), []expr.Any{
		&expr.Numgen{Register: reg(l.behind(w)), Modulus: slots, Type: unix.NFT_NG_RANDOM, Offset: first},
	})
}

// dnat sends the packet to the endpoint that was looked up.
func (l *layout) dnat(at uint32) []expr.Any {
	return []expr.Any{&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(l.NFT.Family),
		RegAddrMin: reg(at), RegProtoMin: reg(at + l.words()),
	}}
}

// dnatAddress sends the packet to the address that was looked up.
func (l *layout) dnatAddress(at uint32) []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(l.NFT.Family), RegAddrMin: reg(at)}}
}

// snat has the packet come from the address that was looked up.
func (l *layout) snat(at uint32) []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(l.NFT.Family), RegAddrMin: reg(at), FullyRandom: true}}
}

// The priority of a packet is where the rules of session affinity leave a note for
// each other: the id of the port, then the affinity slot of an endpoint. The mark would do too,
// but has other users; the priority is set anew when the packet leaves.

func loadNote(at uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: reg(at)}}
}

func storeNote(at uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: reg(at), SourceRegister: true}}
}

func clearNote(at uint32) []expr.Any {
	return flat([]expr.Any{&expr.Immediate{Register: reg(at), Data: number(0)}}, storeNote(at))
}

// client loads the key of affinity from the source and the note, and the note itself.
func (l *layout) client() []expr.Any {
	return flat(l.source(0), loadNote(l.words()), []expr.Any{bitwise(l.words(), ^uint32(slotMask), 0)}, loadNote(l.words()+1))
}

// remember has the kernel find the client in the noted affinity slot from now on. It does not
// move a client that it knows, but begins the time anew.
func (l *layout) remember(timeout time.Duration) []expr.Any {
	return l.dynset(unix.NFT_DYNSET_OP_UPDATE, timeout)
}

func (l *layout) forget() []expr.Any {
	const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE
	return l.dynset(dynsetDelete, 0)
}

func (l *layout) dynset(operation uint32, timeout time.Duration) []expr.Any {
	return flat(l.client(), []expr.Any{&expr.Dynset{
		SrcRegKey: reg(0), SrcRegData: reg(l.words() + 1),
		SetName: l.sets[affinity].Name, Operation: operation, Timeout: timeout,
	}})
}
