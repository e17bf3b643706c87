package conntrack

import (
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// DeleteEnded deletes the entries of TCP connections to some addresses of one family that have ended, by a close or a
// reset, and returns how many they were. The kernel keeps them for two minutes and for ten seconds. The errors are the
// kernel's.
//
// The kernel is asked for all of TCP: where it compares addresses itself and few match, it looks through its whole table at
// once, in which time that CPU takes in no packets.
func DeleteEnded(family addr.Family, to func(netip.Addr) bool) (int, error) {
	parse := func(entry []byte) (Flow, bool) {
		if !hasEnded(entry) {
			return Flow{}, false
		}
		return flowOf(family, view.TCP, entry)
	}
	return remove(family, of(unix.IPPROTO_TCP), parse, &sync.Mutex{}, func(flow Flow) bool { return to(flow.To.Addr()) })
}

// hasEnded tells whether an entry is that of a TCP connection that both sides have closed, or one has reset.
func hasEnded(entry []byte) bool {
	state, ok := nfnetlink.Number(entry, nl.CTA_PROTOINFO, nl.CTA_PROTOINFO_TCP, nl.CTA_PROTOINFO_TCP_STATE)
	return ok && (state == nl.TCP_CONNTRACK_TIME_WAIT || state == nl.TCP_CONNTRACK_CLOSE)
}
