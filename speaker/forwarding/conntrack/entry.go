package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// What the library has no names for.
const (
	attrFilter    = 25     // CTA_FILTER, since Linux 5.8; older kernels do not heed it
	attrOrigFlags = 1      // CTA_FILTER_ORIG_FLAGS
	flagProtocol  = 1 << 3 // CTA_FILTER_FLAG(CTA_PROTO_NUM)
)

// allUDP asks for the flows of UDP.
func allUDP() nfnetlink.Attributes {
	var none nfnetlink.Attributes
	return none.
		Nested(nl.CTA_TUPLE_ORIG, none.Nested(nl.CTA_TUPLE_PROTO, none.Add(nl.CTA_PROTO_NUM, unix.IPPROTO_UDP))).
		Nested(attrFilter, none.Add(attrOrigFlags, binary.NativeEndian.AppendUint32(nil, flagProtocol)...))
}

// parse reads an entry, if it is one of a UDP flow.
func parse(family addr.Family, entry []byte) (Flow, bool) {
	source, destination := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if family == addr.IPv6 {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	orig, reply := nfnetlink.Find(entry, nl.CTA_TUPLE_ORIG), nfnetlink.Find(entry, nl.CTA_TUPLE_REPLY)
	if protocol, ok := nfnetlink.Number(orig, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM); !ok || protocol != unix.IPPROTO_UDP {
		return Flow{}, false
	}
	to, there := end(orig, destination, nl.CTA_PROTO_DST_PORT)
	answers, here := end(reply, source, nl.CTA_PROTO_SRC_PORT)
	return Flow{to, answers}, there && here
}

// end reads one end of a tuple.
func end(tuple []byte, address, port uint16) (netip.AddrPort, bool) {
	a, ok := netip.AddrFromSlice(nfnetlink.Find(tuple, nl.CTA_TUPLE_IP, address))
	number, numbered := nfnetlink.Number(tuple, nl.CTA_TUPLE_PROTO, port)
	return netip.AddrPortFrom(a, uint16(number)), ok && numbered
}

// identity is what tells an entry from all others, also from one that took its place.
func identity(entry []byte) nfnetlink.Attributes {
	var id nfnetlink.Attributes
	nfnetlink.Each(entry, func(kind uint16, value []byte) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			id = id.Nested(kind, value)
		case nl.CTA_ID, nl.CTA_ZONE:
			id = id.Add(kind, value...)
		}
	})
	return id
}
