package links

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A bond that fails over keeps its carrier and its MAC, and the kernel tells of another active
// port: switches have to learn behind which port the addresses are now. Notices as the kernel gives
// them, since not every kernel that tests run on has bonds.
func TestABondThatFailsOverIsCounted(t *testing.T) {
	all := &table{links: map[int]Link{}}
	notice := func(active int, running bool) Link {
		attrs := netlink.NewLinkAttrs()
		attrs.Index, attrs.Name, attrs.RawFlags = 7, "bond0", unix.IFF_UP|unix.IFF_BROADCAST
		if running {
			attrs.RawFlags |= unix.IFF_RUNNING
		}
		bond := netlink.NewLinkBond(attrs)
		bond.ActiveSlave = active
		all.link(bond, false, unix.AF_UNSPEC)
		return all.snapshot().links[7]
	}
	for _, step := range []struct {
		what           string
		active         int
		running        bool
		ups, failovers uint64
	}{
		{"it comes up", 3, true, 1, 0},
		{"nothing changes", 3, true, 1, 0},
		{"it fails over", 4, true, 1, 1},
		{"both cables are out", -1, false, 1, 1},
		{"one is in again", 4, true, 2, 1},
		{"balanced, it has no active port", -1, true, 2, 2},
		{"and stays so", -1, true, 2, 2},
	} {
		if got := notice(step.active, step.running); got.Ups != step.ups || got.Failovers != step.failovers || got.Active != max(step.active, 0) {
			t.Errorf("%s: %d ups, want %d; %d failovers, want %d; active %d", step.what, got.Ups, step.ups, got.Failovers, step.failovers, got.Active)
		}
	}
}
