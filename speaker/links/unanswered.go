package links

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetUnanswered has the kernel forget which neighbours on a link it asked for in vain. While a
// cable is out it asks for those to whom something is sent, once a second; and when the cable is in
// again, what is sent to them waits for the next time: hellos to other nodes and
// answers to clients, for most of a second. What is forgotten is asked for at once.
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
