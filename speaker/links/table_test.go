package links

import (
	"maps"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A bond that fails over keeps its carrier and its MAC, and the kernel tells of another active
// port: switches have to learn behind which port the addresses are now. Notices as the kernel gives
// them, since not every kernel that tests run on has bonds.
func TestABondThatFailsOverIsCounted(t *testing.T) {
	all := newTable()
	notice := func(active int, running bool) Link {
		attrs := netlink.NewLinkAttrs()
		attrs.Index, attrs.Name, attrs.RawFlags = 7, "bond0", unix.IFF_UP|unix.IFF_BROADCAST
		if running {
			attrs.RawFlags |= unix.IFF_RUNNING
		}
		bond := netlink.NewLinkBond(attrs)
		bond.ActiveSlave = active
		all.link(notice{link: bond})
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

// What is on top of a bond has another MAC or another VLAN for switches to learn, and the kernel tells
// nothing of it when the bond fails over.
func TestAFailoverCountsForAllThatIsOnTopOfTheBond(t *testing.T) {
	all := newTable()
	attrs := func(index int, name string, below, master int) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Index, a.Name, a.ParentIndex, a.MasterIndex, a.RawFlags = index, name, below, master, unix.IFF_UP|unix.IFF_RUNNING
		return a
	}
	fails := func(active int) {
		bond := netlink.NewLinkBond(attrs(7, "bond0", 0, 20))
		bond.ActiveSlave = active
		all.link(notice{link: bond})
	}
	fails(3)
	abroad := attrs(30, "eth0", 7, 0)
	abroad.NetNsID = 1
	for _, l := range []netlink.Link{
		&netlink.Bridge{LinkAttrs: attrs(20, "br0", 0, 0)},
		&netlink.Vlan{LinkAttrs: attrs(21, "br0.5", 20, 0)},
		&netlink.Vlan{LinkAttrs: attrs(22, "bond0.100", 7, 23)},
		&netlink.Bridge{LinkAttrs: attrs(23, "br100", 0, 0)},
		&netlink.Macvlan{LinkAttrs: attrs(24, "mac0", 22, 25)},
		&netlink.Vrf{LinkAttrs: attrs(25, "red", 0, 0)},
		&netlink.Vlan{LinkAttrs: attrs(26, "eth1.100", 3, 0)},
		&netlink.Veth{LinkAttrs: attrs(27, "veth0", 7, 0)},
		&netlink.Macvlan{LinkAttrs: abroad},
	} {
		all.link(notice{link: l})
	}
	fails(4)
	fails(4)
	want := map[string]uint64{"bond0": 1, "br0": 1, "br0.5": 1, "bond0.100": 1, "br100": 1, "mac0": 1}
	for _, l := range all.snapshot().All() {
		if l.Failovers != want[l.Name] {
			t.Errorf("%s: %d failovers, want %d", l.Name, l.Failovers, want[l.Name])
		}
	}
	all.link(notice{link: &netlink.Vlan{LinkAttrs: attrs(22, "bond0.100", 7, 23)}})
	if got := all.snapshot().links[22].Failovers; got != 1 {
		t.Errorf("bond0.100 has %d failovers after a notice of its own, want 1", got)
	}
}

// What is listed anew after notices were lost says of each link what happened to it meanwhile.
func TestAListSaysWhatHappenedToEachLink(t *testing.T) {
	link := func(index int, name string, flags, carriers uint32) notice {
		a := netlink.NewLinkAttrs()
		a.Index, a.Name, a.RawFlags = index, name, flags
		return notice{link: &netlink.Device{LinkAttrs: a}, carriers: carriers}
	}
	const up, runs = unix.IFF_UP, unix.IFF_UP | unix.IFF_RUNNING
	all := newTable()
	all.replace([]notice{
		link(1, "steady", runs, 3), link(2, "flapped", runs, 3), link(3, "lost", runs, 3), link(4, "found", up, 3),
		link(5, "gone", runs, 1), link(6, "again", runs, 7),
	}, nil)
	all.replace([]notice{
		link(1, "steady", runs, 3), link(2, "flapped", runs, 5), link(3, "lost", up, 3), link(4, "found", runs, 4),
		link(6, "again", runs, 1), link(7, "new", runs, 1),
	}, nil)
	want := map[string]uint64{"steady": 1, "flapped": 2, "lost": 1, "found": 1, "again": 2, "new": 1}
	got := map[string]uint64{}
	for _, l := range all.snapshot().All() {
		got[l.Name] = l.Ups
	}
	if !maps.Equal(got, want) {
		t.Errorf("links came up %v times, want %v", got, want)
	}
}

// A link may get the index of one that is gone, and its MAC: who did not see that there was none between
// the two has to know that it is another one.
func TestALinkWithTheIndexOfAFormerOneIsAnother(t *testing.T) {
	all := newTable()
	up := func(index int) notice {
		attrs := netlink.NewLinkAttrs()
		attrs.Index, attrs.Name, attrs.RawFlags = index, "eth0", unix.IFF_UP|unix.IFF_RUNNING
		return notice{link: &netlink.Device{LinkAttrs: attrs}}
	}
	gone := up(7)
	gone.deleted = true
	all.link(up(7))
	first := all.snapshot()
	all.link(up(7))
	if again := all.snapshot(); !again.Equal(first) {
		t.Errorf("nothing has happened, and %+v became %+v", first.links[7], again.links[7])
	}
	all.link(gone)
	all.link(up(7))
	second := all.snapshot()
	if second.Equal(first) {
		t.Errorf("another link is as the former one: %+v", second.links[7])
	}
	all.replace([]notice{up(8)}, nil)
	all.replace([]notice{up(7)}, nil)
	if third := all.snapshot(); third.Equal(first) || third.Equal(second) {
		t.Errorf("listed anew, another link is as a former one: %+v", third.links[7])
	}
}
