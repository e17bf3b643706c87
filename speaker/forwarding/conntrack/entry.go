package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

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

// unanswered says in which states connections of a protocol wait for the first answer, and
// where in CTA_PROTOINFO the state is. UDP has none. A connection that the kernel knows from its middle on is in
// none of them. Kernels call an association that waits closed; the state after the answer may wait, too.
var unanswered = map[view.Protocol]struct {
	info, state uint16
	values      []uint32
}{
	view.TCP:  {nl.CTA_PROTOINFO_TCP, nl.CTA_PROTOINFO_TCP_STATE, []uint32{nl.TCP_CONNTRACK_SYN_SENT}},
	view.SCTP: {nl.CTA_PROTOINFO_SCTP, 1, []uint32{1, 2}}, // CTA_PROTOINFO_SCTP_STATE, SCTP_CONNTRACK_CLOSED and _COOKIE_WAIT
}

// all asks for the flows of a protocol that Delete looks at.
func all(protocol view.Protocol) nfnetlink.Attributes {
	query := of(protocol.Number())
	if protocol == view.UDP {
		return query
	}
	return query.Uint32(nl.CTA_STATUS, 0).Uint32(attrStatusMask, seenReply)
}

// of asks for the flows of a protocol.
func of(protocol uint8) nfnetlink.Attributes {
	var none nfnetlink.Attributes
	return none.
		Nested(nl.CTA_TUPLE_ORIG, none.Nested(nl.CTA_TUPLE_PROTO, none.Add(nl.CTA_PROTO_NUM, protocol))).
		Nested(attrFilter, none.Add(attrOrigFlags, binary.NativeEndian.AppendUint32(nil, flagProtocol)...))
}

// ends are the protocol of an entry's flow, where its packets are sent to, and the address that answers.
func ends(family addr.Family, entry []byte) (protocol uint32, to, answers netip.Addr) {
	source, destination := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if family == addr.IPv6 {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	protocol, _ = nfnetlink.Number(entry, nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM)
	to, _ = netip.AddrFromSlice(nfnetlink.Find(entry, nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_IP, destination))
	answers, _ = netip.AddrFromSlice(nfnetlink.Find(entry, nl.CTA_TUPLE_REPLY, nl.CTA_TUPLE_IP, source))
	return protocol, to, answers
}

// parse reads an entry, if it is one of a flow that Delete looks at.
func parse(family addr.Family, protocol view.Protocol, entry []byte) (Flow, bool) {
	if waits, connected := unanswered[protocol]; connected {
		state, ok := nfnetlink.Number(entry, nl.CTA_PROTOINFO, waits.info, waits.state)
		status, _ := nfnetlink.Number(entry, nl.CTA_STATUS)
		if !ok || !slices.Contains(waits.values, state) || status&seenReply != 0 {
			return Flow{}, false
		}
	}
	return flowOf(family, protocol, entry)
}

// flowOf reads an entry, if it is one of a flow of the protocol.
func flowOf(family addr.Family, protocol view.Protocol, entry []byte) (Flow, bool) {
	number, to, answers := ends(family, entry)
	if number != uint32(protocol.Number()) {
		return Flow{}, false
	}
	port, there := nfnetlink.Number(entry, nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_DST_PORT)
	from, here := nfnetlink.Number(entry, nl.CTA_TUPLE_REPLY, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_SRC_PORT)
	return Flow{netip.AddrPortFrom(to, uint16(port)), netip.AddrPortFrom(answers, uint16(from))},
		there && here && to.IsValid() && answers.IsValid()
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

// Tuple is where a client sends from and to.
type Tuple struct {
	Protocol view.Protocol
	From, To netip.AddrPort
}

// DeleteOf deletes those of the flows of these tuples that are stale, in whatever state they are, and returns how many
// they were. It looks each of them up: what that costs does not depend on the size of the table. A flow that vanished is no failure.
// The errors are the kernel's.
func DeleteOf(family addr.Family, tuples []Tuple, stale func(view.Protocol, Flow) bool) (int, error) {
	var gone []nfnetlink.Attributes
	for _, t := range tuples {
		// Without a receipt, no message would be the last: the kernel calls each one of many.
		err := nfnetlink.Request(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_ACK, family, t.query(family), func(entry []byte) {
			if flow, ok := flowOf(family, t.Protocol, entry); ok && stale(t.Protocol, flow) {
				gone = append(gone, identity(entry))
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return 0, fmt.Errorf("look up a %s flow in the connection table: %w", family, err)
		}
	}
	n, err := nfnetlink.Batch(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_DELETE, 0, family, gone, vanished)
	if err != nil {
		return n, fmt.Errorf("delete stale %s flows from the connection table: %w", family, err)
	}
	return n, nil
}

// query asks for the flow of a tuple.
func (t Tuple) query(family addr.Family) nfnetlink.Attributes {
	source, destination := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if family == addr.IPv6 {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	var none nfnetlink.Attributes
	return none.Nested(nl.CTA_TUPLE_ORIG, none.
		Nested(nl.CTA_TUPLE_IP, none.Add(source, t.From.Addr().AsSlice()...).Add(destination, t.To.Addr().AsSlice()...)).
		Nested(nl.CTA_TUPLE_PROTO, none.Add(nl.CTA_PROTO_NUM, t.Protocol.Number()).
			Uint16(nl.CTA_PROTO_SRC_PORT, t.From.Port()).Uint16(nl.CTA_PROTO_DST_PORT, t.To.Port())))
}

func vanished(errno unix.Errno) bool { return errors.Is(errno, unix.ENOENT) }
