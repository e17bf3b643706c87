// Package conntrack deletes entries of the kernel's connection table that new
// forwarding rules made stale.
package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Flow is one flow of the table.
type Flow struct {
	To      netip.AddrPort // where the client sends to
	Answers netip.AddrPort // the source of answers: the endpoint, or To itself if nothing translates
}

// Delete deletes the flows of one family and protocol that are stale, and returns how
// many they were. Of TCP and SCTP only those are looked at that wait for the first answer, of which there are few:
// the ends of all others find out by themselves, and an entry deleted under them breaks an
// orderly close.
//
// The kernel is asked to list these alone, and what is stale is then deleted by its
// identity, many flows in one message. It could also delete by addresses in one go, in a
// third of the time, but only those of one destination and one endpoint at once, and a
// Service port has three destinations as a rule. A flow that vanished meanwhile is no
// failure. The errors are the kernel's.
//
// The list takes a second where the table is full. So it is read without the lock, and what is in it may be
// out of date when it has been read: stale is asked of a flow once more with the lock held, just before a
// few flows are deleted at once.
func Delete(family addr.Family, protocol view.Protocol, lock sync.Locker, stale func(Flow) bool) (int, error) {
	parse := func(entry []byte) (Flow, bool) { return parse(family, protocol, entry) }
	n, err := remove(family, all(protocol), parse, lock, stale)
	if err != nil {
		return n, fmt.Errorf("%s: %w", protocol, err)
	}
	return n, nil
}

// DeletePings deletes the flows of pings of one family that are stale, and returns how many they were. Their ports
// are 0. The errors are the kernel's.
func DeletePings(family addr.Family, stale func(Flow) bool) (int, error) {
	protocol := uint8(unix.IPPROTO_ICMP)
	if family == addr.IPv6 {
		protocol = unix.IPPROTO_ICMPV6
	}
	parse := func(entry []byte) (Flow, bool) {
		number, to, answers := ends(family, entry)
		return Flow{netip.AddrPortFrom(to, 0), netip.AddrPortFrom(answers, 0)}, number == uint32(protocol)
	}
	return remove(family, of(protocol), parse, &sync.Mutex{}, stale)
}

func remove(family addr.Family, query nfnetlink.Attributes, parse func(entry []byte) (Flow, bool), lock sync.Locker, stale func(Flow) bool) (int, error) {
	type found struct {
		flow Flow
		id   nfnetlink.Attributes
	}
	var gone []found
	err := nfnetlink.Stream(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, family, query,
		func() { gone = nil }, func(entry []byte) {
			if flow, ok := parse(entry); ok && stale(flow) {
				gone = append(gone, found{flow, identity(entry)})
			}
		})
	if err != nil {
		return 0, fmt.Errorf("list the %s flows of the connection table: %w", family, err)
	}
	deleted := 0
	for some := range slices.Chunk(gone, atOnce) {
		lock.Lock()
		var ids []nfnetlink.Attributes
		for _, f := range some {
			if stale(f.flow) {
				ids = append(ids, f.id)
			}
		}
		n, err := nfnetlink.Batch(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_DELETE, 0, family, ids, vanished)
		lock.Unlock()
		if deleted += n; err != nil {
			return deleted, fmt.Errorf("delete stale %s flows from the connection table: %w", family, err)
		}
	}
	return deleted, nil
}

// atOnce is how many flows are deleted before others get the lock: a few milliseconds.
const atOnce = 1000
