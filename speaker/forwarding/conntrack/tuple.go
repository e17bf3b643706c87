package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

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
