package links

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// table is the state behind the snapshots: the kernel's lists with every
// notice since applied.
type table struct {
	links     map[int]Link                // without Prefixes and Peered
	addresses map[int]map[address]address // by link index and key
	carriers  map[int]uint32              // how often each link had got its carrier, by its last notice
	seen      uint64                      // links, those that are gone included
}

func newTable() *table {
	return &table{links: map[int]Link{}, addresses: map[int]map[address]address{}, carriers: map[int]uint32{}}
}

func (t *table) list() error {
	all, err := ask(unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), unix.RTM_NEWLINK, read)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	addrs, err := ask(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC), unix.RTM_NEWADDR, readAddress)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	t.replace(all, addrs)
	return nil
}

// replace takes over what was listed. The counts of ups go on, and a link that lost its carrier and got it
// back between two subscriptions has come up: the kernel counts that. All others stay as they were; for
// them to come up would move the addresses of all interfaces whenever notices were lost.
func (t *table) replace(all []notice, addrs []addressNotice) {
	there := make(map[int]bool, len(all))
	for _, n := range all {
		there[n.link.Attrs().Index] = true
	}
	for index := range t.links {
		if !there[index] {
			t.remove(index)
		}
	}
	for _, n := range all {
		index := n.link.Attrs().Index
		before, carriers := t.links[index], t.carriers[index]
		t.link(n)
		if now := t.links[index]; before.carries() && now.carries() && n.carriers != carriers {
			now.Ups++
			t.links[index] = now
		}
	}
	clear(t.addresses)
	for _, a := range addrs {
		t.address(a)
	}
}

func (t *table) remove(index int) {
	delete(t.links, index)
	delete(t.addresses, index)
	delete(t.carriers, index)
}

// Read takes a snapshot of the network namespace of its caller, without a Watcher. Ups counts nothing in it. The
// error is that of netlink.
func Read() (*Snapshot, error) {
	t := newTable()
	if err := t.list(); err != nil {
		return nil, err
	}
	return t.snapshot(), nil
}

// link applies one notice about a link. Those of family AF_BRIDGE are about a
// port's membership in a bridge (a "deleted" one lives on), not of the link.
func (t *table) link(n notice) {
	if n.family == unix.AF_BRIDGE {
		return
	}
	l, attrs := n.link, n.link.Attrs()
	if n.deleted {
		t.remove(attrs.Index)
		return
	}
	if attrs.Name == "" {
		return // an event of a wireless driver, which describes nothing
	}
	before, known := t.links[attrs.Index]
	if !known {
		t.seen++
		before.Nth = t.seen
	}
	now := Link{
		Index:     attrs.Index,
		Nth:       before.Nth,
		Name:      attrs.Name,
		MAC:       slices.Clone(attrs.HardwareAddr),
		Kind:      l.Type(),
		Master:    attrs.MasterIndex,
		Below:     below(l),
		Up:        attrs.RawFlags&unix.IFF_UP != 0,
		Running:   attrs.RawFlags&unix.IFF_RUNNING != 0,
		Broadcast: attrs.RawFlags&unix.IFF_BROADCAST != 0,
		NoARP:     attrs.RawFlags&unix.IFF_NOARP != 0,
		Loopback:  attrs.RawFlags&unix.IFF_LOOPBACK != 0,
		Ups:       before.Ups,
		Failovers: before.Failovers,
	}
	if bond, is := l.(*netlink.Bond); is {
		now.Active = max(bond.ActiveSlave, 0)
	}
	switch {
	case !now.carries():
	case !before.carries():
		now.Ups++
	case now.Active != before.Active:
		now.Failovers++
	}
	t.links[now.Index], t.carriers[now.Index] = now, n.carriers
	if now.Failovers > before.Failovers {
		t.failOver(now.Index)
	}
}

// below returns the index of the link that carries the frames of another one; 0: none. The link of a
// veth is its other end, that of a tunnel only where its packets leave, and one in another network
// namespace has its index there.
func below(l netlink.Link) int {
	attrs := l.Attrs()
	switch l.Type() {
	case "vlan", "macvlan", "macvtap", "ipvlan", "macsec":
		if attrs.NetNsID < 0 {
			return attrs.ParentIndex
		}
	}
	return 0
}

// failOver counts a failover of a link for all that is on top of it: VLANs and the like, and the
// bridge that it is a port of. The kernel sends no notice for these, as nothing about them changes.
func (t *table) failOver(index int) {
	passed := map[int]bool{index: true}
	for next := []int{index}; len(next) > 0; next = next[1:] {
		lower := t.links[next[0]]
		for at, upper := range t.links {
			if passed[at] || upper.Below != lower.Index && (at != lower.Master || upper.Kind != "bridge") {
				continue
			}
			passed[at] = true
			next = append(next, at)
			upper.Failovers++
			t.links[at] = upper
		}
	}
}

func (t *table) address(n addressNotice) {
	if n.deleted || !n.own.IsValid() {
		delete(t.addresses[n.link], n.key())
		return
	}
	if t.addresses[n.link] == nil {
		t.addresses[n.link] = map[address]address{}
	}
	t.addresses[n.link][n.key()] = n.address
}

func (t *table) snapshot() *Snapshot {
	all := make(map[int]Link, len(t.links))
	for index, l := range t.links {
		l.Prefixes, l.Peered = prefixes(t.addresses[index])
		all[index] = l
	}
	return snapshotOf(all)
}
