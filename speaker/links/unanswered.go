package links

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetUnanswered has the kernel forget the neighbours on a link that did not answer. While a cable is out,
// the kernel tries to resolve destinations once a second; when the cable is in again, packets to them wait for
// the next try: hellos to other nodes and answers to clients, for most of a second. A forgotten neighbour is
// resolved at once.
func forgetUnanswered(index int) error {
	var failed []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		all, err := netlink.NeighList(index, family)
		if err != nil {
			return fmt.Errorf("list the neighbours on link %d: %w", index, err)
		}
		for _, n := range all {
			if n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 {
				continue
			}
			// One that has answered meanwhile is asked again: that costs a question.
			if err := netlink.NeighDel(&netlink.Neigh{LinkIndex: index, IP: n.IP}); err != nil && !errors.Is(err, unix.ENOENT) {
				failed = append(failed, fmt.Errorf("forget neighbour %s on link %d: %w", n.IP, index, err))
			}
		}
	}
	return errors.Join(failed...)
}
