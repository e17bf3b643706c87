package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// What the library has no names for.
const (
	attrFilter     = 25     // CTA_FILTER, since Linux 5.8; older kernels do not heed it
	attrOrigFlags  = 1      // CTA_FILTER_ORIG_FLAGS
	flagProtocol   = 1 << 3 // CTA_FILTER_FLAG(CTA_PROTO_NUM)
	attrStatusMask = 26     // CTA_STATUS_MASK, since Linux 5.17
	seenReply      = 1 << 1 // IPS_SEEN_REPLY
)

// unanswered says in which state connections of a protocol wait for the first answer, and
// where in CTA_PROTOINFO the state is. UDP has none.
var unanswered = map[view.Protocol]struct {
	info, state uint16
	value       uint32
}{
	view.TCP:  {nl.CTA_PROTOINFO_TCP, nl.CTA_PROTOINFO_TCP_STATE, nl.TCP_CONNTRACK_SYN_SENT},
	view.SCTP: {nl.CTA_PROTOINFO_SCTP, 1, 2}, // CTA_PROTOINFO_SCTP_STATE, SCTP_CONNTRACK_COOKIE_WAIT
}

// all asks for the flows of a protocol that Delete looks at.
func all(protocol view.Protocol) nfnetlink.Attributes {
	var none nfnetlink.Attributes
	query := none.
		Nested(nl.CTA_TUPLE_ORIG, none.Nested(nl.CTA_TUPLE_PROTO, none.Add(nl.CTA_PROTO_NUM, protocol.Number()))).
		Nested(attrFilter, none.Add(attrOrigFlags, binary.NativeEndian.AppendUint32(nil, flagProtocol)...))
	if protocol == view.UDP {
		return query
	}
	return query.Uint32(nl.CTA_STATUS, 0).Uint32(attrStatusMask, seenReply)
}

// parse reads an entry, if it is one of a flow that Delete looks at.
func parse(family addr.Family, protocol view.Protocol, entry []byte) (Flow, bool) {
	source, destination := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if family == addr.IPv6 {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	orig, reply := nfnetlink.Find(entry, nl.CTA_TUPLE_ORIG), nfnetlink.Find(entry, nl.CTA_TUPLE_REPLY)
	if number, ok := nfnetlink.Number(orig, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM); !ok || number != uint32(protocol.Number()) {
		return Flow{}, false
	}
	if waits, connected := unanswered[protocol]; connected {
		if state, ok := nfnetlink.Number(entry, nl.CTA_PROTOINFO, waits.info, waits.state); !ok || state != waits.value {
			return Flow{}, false
		}
	}
	to, there := end(orig, destination, nl.CTA_PROTO_DST_PORT)
	answers, here := end(reply, source, nl.CTA_PROTO_SRC_PORT)
	return Flow{to, answers}, there && here
}

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
