package wire

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// list is expressions, to which more are appended. The kernel does one after the other
// until one does not match.
type list struct{ nfnetlink.Attributes }

// expression appends one.
func (l *list) expression(name string, data func()) {
	var element, inside int
	l.Attributes, element = l.Open(unix.NFTA_LIST_ELEM)
	l.text(unix.NFTA_EXPR_NAME, name)
	l.Attributes, inside = l.Open(unix.NFTA_EXPR_DATA)
	data()
	l.Attributes = l.Close(inside).Close(element)
}

func (l *list) number(kind uint16, v uint32) { l.Attributes = l.Uint32(kind, v) }
func (l *list) text(kind uint16, v string)   { l.Attributes = l.Text(kind, v) }
func (l *list) bytes(kind uint16, v ...byte) { l.Attributes = l.Add(kind, v...) }
func (l *list) value(kind uint16, v ...byte) {
	var at int
	l.Attributes, at = l.Open(kind)
	l.bytes(unix.NFTA_DATA_VALUE, v...)
	l.Attributes = l.Close(at)
}

// All that is looked at goes through one register.
const register = unix.NFT_REG_1

func (l *list) load(base, offset, length uint32) {
	l.expression("payload", func() {
		l.number(unix.NFTA_PAYLOAD_DREG, register)
		l.number(unix.NFTA_PAYLOAD_BASE, base)
		l.number(unix.NFTA_PAYLOAD_OFFSET, offset)
		l.number(unix.NFTA_PAYLOAD_LEN, length)
	})
}

func (l *list) equal(to ...byte) { l.compare(unix.NFT_CMP_EQ, to...) }

func (l *list) compare(how uint32, with ...byte) {
	l.expression("cmp", func() {
		l.number(unix.NFTA_CMP_SREG, register)
		l.number(unix.NFTA_CMP_OP, how)
		l.value(unix.NFTA_CMP_DATA, with...)
	})
}

func (l *list) meta(key uint32) {
	l.expression("meta", func() {
		l.number(unix.NFTA_META_KEY, key)
		l.number(unix.NFTA_META_DREG, register)
	})
}

func (l *list) protocol(number byte) {
	l.meta(unix.NFT_META_L4PROTO)
	l.equal(number)
}

// link matches the name of an interface, which ends with a zero byte, or how it begins.
func (l *list) link(key uint32, of link) {
	if of.name == "" {
		return
	}
	name, begins := strings.CutSuffix(of.name, "+")
	if !begins {
		name += "\x00"
	}
	l.meta(key)
	l.compare(comparison(of.not), []byte(name)...)
}

func (l *list) marked(bits, mask uint32, not bool) {
	l.meta(unix.NFT_META_MARK)
	l.mask(binary.NativeEndian.AppendUint32(nil, mask)...)
	l.compare(comparison(not), binary.NativeEndian.AppendUint32(nil, bits)...)
}

// tcpFlags matches flags of TCP, of those that the mask has.
func (l *list) tcpFlags(mask, flags byte) {
	l.load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1)
	l.mask(mask)
	l.equal(flags)
}

// ports matches the port that a packet of TCP or UDP is for.
func (l *list) ports(first, last uint16) {
	l.load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
	switch first {
	case last:
		l.equal(byte(first>>8), byte(first))
	case 0:
		l.compare(unix.NFT_CMP_LTE, byte(last>>8), byte(last))
	default:
		l.expression("range", func() {
			l.number(unix.NFTA_RANGE_SREG, register)
			l.number(unix.NFTA_RANGE_OP, unix.NFT_RANGE_EQ)
			l.value(unix.NFTA_RANGE_FROM_DATA, byte(first>>8), byte(first))
			l.value(unix.NFTA_RANGE_TO_DATA, byte(last>>8), byte(last))
		})
	}
}

// Where the header of IP has its addresses.
var (
	sourceAt      = map[addr.Family]uint32{addr.IPv4: 12, addr.IPv6: 8}
	destinationAt = map[addr.Family]uint32{addr.IPv4: 16, addr.IPv6: 24}
)

// address matches a prefix, of which it looks at no more than the bytes that it has if it ends
// with one.
func (l *list) address(p netip.Prefix, offset uint32, not bool) {
	if !p.IsValid() || p.Bits() == 0 {
		return
	}
	bytes := p.Addr().AsSlice()
	if p.Bits()%8 == 0 {
		bytes = bytes[:p.Bits()/8]
	}
	l.load(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, uint32(len(bytes)))
	if p.Bits()%8 != 0 {
		mask := make([]byte, len(bytes))
		for i := range p.Bits() {
			mask[i/8] |= 1 << (7 - i%8)
		}
		l.mask(mask...)
	}
	l.compare(comparison(not), bytes...)
}

// mask leaves some bits of what was loaded.
func (l *list) mask(bits ...byte) {
	l.expression("bitwise", func() {
		l.number(unix.NFTA_BITWISE_SREG, register)
		l.number(unix.NFTA_BITWISE_DREG, register)
		l.number(unix.NFTA_BITWISE_LEN, uint32(len(bits)))
		l.value(unix.NFTA_BITWISE_MASK, bits...)
		l.value(unix.NFTA_BITWISE_XOR, make([]byte, len(bits))...)
	})
}

func comparison(not bool) uint32 {
	if not {
		return unix.NFT_CMP_NEQ
	}
	return unix.NFT_CMP_EQ
}

func (l *list) counter() { l.expression("counter", func() {}) }

// What matches and targets of iptables are told has the form of a struct of the kernel,
// with its numbers in the order of this machine, and is filled up to eight bytes.

func (l *list) match(name string, revision uint32, info []byte) {
	l.expression("match", func() {
		l.text(unix.NFTA_MATCH_NAME, name)
		l.number(unix.NFTA_MATCH_REV, revision)
		l.bytes(unix.NFTA_MATCH_INFO, info...)
	})
}

func (l *list) target(name string, revision uint32, info []byte) {
	l.expression("target", func() {
		l.text(unix.NFTA_TARGET_NAME, name)
		l.number(unix.NFTA_TARGET_REV, revision)
		l.bytes(unix.NFTA_TARGET_INFO, info...)
	})
}

// chance is struct xt_statistic_info.
func (l *list) chance(probability uint32) {
	var info [24]byte
	binary.NativeEndian.PutUint32(info[4:], probability)
	binary.NativeEndian.PutUint32(info[12:], probability) // of no use; the place is another one's in another mode
	l.match("statistic", 0, info[:])
}

const commentSize = 256

// comment is struct xt_comment_info.
func (l *list) comment(text string) {
	var info [commentSize]byte
	copy(info[:], text)
	l.match("comment", 0, info[:])
}

// translate is struct nf_nat_range2.
func (l *list) translate(to netip.AddrPort) {
	const address, port = 1, 2 // NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_SPECIFIED
	var info [48]byte
	parts := uint32(address)
	if to.Port() != 0 {
		parts |= port
	}
	binary.NativeEndian.PutUint32(info[:], parts)
	copy(info[4:20], to.Addr().AsSlice())
	copy(info[20:36], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(info[36:], to.Port())
	binary.BigEndian.PutUint16(info[38:], to.Port())
	l.target("DNAT", 2, info[:])
}

// mark is struct xt_mark_tginfo2.
func (l *list) mark(bits, mask uint32) {
	var info [8]byte
	binary.NativeEndian.PutUint32(info[:], bits)
	binary.NativeEndian.PutUint32(info[4:], mask)
	l.target("MARK", 2, info[:])
}

// refuse is struct ipt_reject_info, and ip6t_reject_info.
func (l *list) refuse(with uint32) {
	var info [8]byte
	binary.NativeEndian.PutUint32(info[:], with)
	l.target("REJECT", 0, info[:])
}

// set is struct xt_set_info: a set by its index, and which of a packet's addresses and ports
// it is asked for.
type set struct {
	index      uint16
	dimensions uint8
	flags      uint8 // for each dimension whether it is the source's, and whether the match is inverted
}

// noSet stands where a rule could have one more.
var noSet = set{index: 0xffff}

func (s set) bytes() []byte {
	return append(binary.NativeEndian.AppendUint16(nil, s.index), s.dimensions, s.flags)
}

// in is struct xt_set_info_match_v4.
func (l *list) in(s set) {
	var info [48]byte
	copy(info[:], s.bytes())
	l.match("set", 4, info[:])
}

// addTo is struct xt_set_info_target_v3. An element that is in the set begins its time anew.
func (l *list) addTo(s set, seconds uint32) {
	const exist = 1 // IPSET_FLAG_EXIST
	var info [24]byte
	copy(info[:], s.bytes())
	copy(info[4:], noSet.bytes())
	copy(info[8:], noSet.bytes())
	binary.NativeEndian.PutUint32(info[12:], exist)
	binary.NativeEndian.PutUint32(info[16:], seconds)
	l.target("SET", 3, info[:])
}

// isLocal is struct xt_addrtype_info_v1: an address is one of this node.
func (l *list) isLocal(source, not bool) {
	var info [8]byte
	at, invert := 2, uint32(2)
	if source {
		at, invert = 0, 1
	}
	binary.NativeEndian.PutUint16(info[at:], 1<<unix.RTN_LOCAL)
	if not {
		binary.NativeEndian.PutUint32(info[4:], invert)
	}
	l.match("addrtype", 1, info[:])
}

// connection is struct xt_conntrack_mtinfo3.
func (l *list) connection(states uint16, not, confirmed bool) {
	const state, status, isConfirmed = 1, 64, 8 // XT_CONNTRACK_STATE, XT_CONNTRACK_STATUS, IPS_CONFIRMED
	var info [168]byte
	match, invert := uint16(state), uint16(0)
	if not {
		invert = state
	}
	if confirmed {
		match |= status
		binary.NativeEndian.PutUint16(info[152:], isConfirmed)
	}
	binary.NativeEndian.PutUint16(info[146:], match)
	binary.NativeEndian.PutUint16(info[148:], invert)
	binary.NativeEndian.PutUint16(info[150:], states)
	l.match("conntrack", 3, info[:])
}

// sctpPorts is struct xt_sctp_info.
func (l *list) sctpPorts(first, last uint16) {
	var info [296]byte
	binary.NativeEndian.PutUint16(info[:], first)
	binary.NativeEndian.PutUint16(info[2:], last)
	for i := range 4 {
		info[268+3*i] = 0xff // no chunks are asked for
	}
	binary.NativeEndian.PutUint32(info[284:], 2) // XT_SCTP_DEST_PORTS
	l.match("sctp", 0, info[:])
}

// icmp is struct ipt_icmp, and ip6t_icmp: of a type all codes.
func (l *list) icmp(match string, kind uint8) {
	l.match(match, 0, []byte{kind, 0, 0xff, 0, 0, 0, 0, 0})
}

// masquerade is struct nf_nat_ipv4_multi_range_compat, for IPv6 struct nf_nat_range. An invalid address stands for that
// of the interface.
func (l *list) masquerade(family addr.Family, as netip.Addr) {
	const address, randomFully = 1, 16 // NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_RANDOM_FULLY
	how, target, revision := uint32(randomFully), "MASQUERADE", uint32(0)
	if as.IsValid() {
		how, target = how|address, "SNAT"
	}
	if family == addr.IPv6 {
		var info [40]byte
		binary.NativeEndian.PutUint32(info[:], how)
		copy(info[4:20], as.AsSlice())
		copy(info[20:36], as.AsSlice())
		if as.IsValid() {
			revision = 1
		}
		l.target(target, revision, info[:])
		return
	}
	var info [24]byte
	binary.NativeEndian.PutUint32(info[:], 1) // one range
	binary.NativeEndian.PutUint32(info[4:], how)
	copy(info[8:12], as.AsSlice())
	copy(info[12:16], as.AsSlice())
	l.target(target, revision, info[:])
}

// verdict leads to a chain, or is final with none.
func (l *list) verdict(code int32, chain string) {
	l.expression("immediate", func() {
		l.number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		var data, inside int
		l.Attributes, data = l.Open(unix.NFTA_IMMEDIATE_DATA)
		l.Attributes, inside = l.Open(unix.NFTA_DATA_VERDICT)
		l.number(unix.NFTA_VERDICT_CODE, uint32(code))
		if chain != "" {
			l.text(unix.NFTA_VERDICT_CHAIN, chain)
		}
		l.Attributes = l.Close(inside).Close(data)
	})
}
