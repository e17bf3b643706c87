// Package links knows the network interfaces of this node and their addresses,
// as an immutable snapshot that the kernel's netlink notices keep up to date,
// and has the rule that says which of them answer for an address.
package links

import (
	"bytes"
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
)

// Link is one network interface. Treat it as immutable.
type Link struct {
	Index int
	// Nth tells a link from a former one that had its index, as where an interface is moved to another
	// network namespace and back: sockets that were opened on the former hear nothing on this one.
	Nth  uint64
	Name string
	MAC  net.HardwareAddr // empty where the link has none
	Kind string           // as the kernel names it: "veth", "bridge", "vrf"; "device" for hardware
	// Master is the index of the link that this one is enslaved to; 0: none.
	Master int
	// Below is the index of the link that this one is on top of, as a VLAN is; 0: none.
	Below int
	// Active is the index of the port that a bond sends by; 0: none, or it sends by several.
	Active int

	Up        bool // switched on (IFF_UP)
	Running   bool // and with a carrier (IFF_RUNNING)
	Broadcast bool
	NoARP     bool
	Loopback  bool

	// Prefixes are the addresses of the link with the lengths of their
	// subnets, both families, sorted.
	Prefixes []netip.Prefix
	// Peered are the IPv6 addresses that have a peer, with the length of its subnet, sorted. Connects
	// goes by them; they have all bits in Prefixes, as the link answers for no network of theirs.
	Peered []netip.Prefix
	// Aside are the subnets of the link that another link has, too, and by which the kernel routes them, sorted.
	Aside []netip.Prefix
	// Ups counts how often the link came up since it was first seen. Stations on it
	// must be told again what they were told before when it changes.
	Ups uint64
	// Failovers counts how often a bond with a carrier went on by another port, be it this link or
	// one below it. Switches know the MAC behind the former one, until they are told.
	Failovers uint64
}

// Equal compares two links by value.
func (l Link) Equal(o Link) bool {
	return l.Index == o.Index && l.Nth == o.Nth && l.Name == o.Name && l.Kind == o.Kind && l.Master == o.Master && l.Below == o.Below && l.Active == o.Active &&
		l.Up == o.Up && l.Running == o.Running && l.Broadcast == o.Broadcast &&
		l.NoARP == o.NoARP && l.Loopback == o.Loopback && l.Ups == o.Ups && l.Failovers == o.Failovers &&
		bytes.Equal(l.MAC, o.MAC) && slices.Equal(l.Prefixes, o.Prefixes) && slices.Equal(l.Peered, o.Peered) && slices.Equal(l.Aside, o.Aside)
}

func (l Link) carries() bool { return l.Up && l.Running }

// speaks6 reports whether the link has an IPv6 address, a link-local one at least. The
// kernel takes them away with IPv6 itself, and gives them back once no other station
// has them.
func (l Link) speaks6() bool {
	return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// Snapshot is all links at one moment. It never changes.
type Snapshot struct {
	links map[int]Link
	asked []Link // those that answer, sorted by index
}

// NewSnapshot makes a snapshot of the links given.
func NewSnapshot(all ...Link) *Snapshot {
	byIndex := make(map[int]Link, len(all))
	for _, l := range all {
		byIndex[l.Index] = l
	}
	return snapshotOf(byIndex)
}

// snapshotOf finds those that answer once for all addresses: there may be thousands of these.
func snapshotOf(all map[int]Link) *Snapshot {
	s := &Snapshot{links: all}
	for _, l := range all {
		if s.answers(l) {
			s.asked = append(s.asked, l)
		}
	}
	slices.SortFunc(s.asked, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })
	return s
}

// Only has of the links those that keep wants. Whether one of them answers still goes by all.
func (s *Snapshot) Only(keep func(Link) bool) *Snapshot {
	some := &Snapshot{links: map[int]Link{}}
	for index, l := range s.links {
		if keep(l) {
			some.links[index] = l
		}
	}
	for _, l := range s.asked {
		if _, kept := some.links[l.Index]; kept {
			some.asked = append(some.asked, l)
		}
	}
	return some
}

// Link returns the link with the index.
func (s *Snapshot) Link(index int) (Link, bool) {
	l, ok := s.links[index]
	return l, ok
}

// All returns the links sorted by index.
func (s *Snapshot) All() []Link {
	return slices.SortedFunc(maps.Values(s.links), func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })
}

// Equal compares two snapshots by value.
func (s *Snapshot) Equal(o *Snapshot) bool {
	return maps.EqualFunc(s.links, o.links, Link.Equal) && slices.EqualFunc(s.asked, o.asked, Link.Equal)
}

// Connects reports whether the address is in a subnet of an interface of the node. The interface may be
// down; one in a VRF does not count, as what the node sends goes by routes of another table. As in FRR, an
// IPv4 address with a peer has no subnet, an IPv6 one has that of its own by the length of the peer's, and
// routes do not count: by another rule than the router's, the two ends of a BFD session would differ.
func (s *Snapshot) Connects(a netip.Addr) bool {
	for _, l := range s.links {
		if s.links[l.Master].Kind != "vrf" && (l.holds(a) || contain(l.Peered, a)) {
			return true
		}
	}
	return false
}

// Networks returns the subnets of the links that other hosts may have addresses in, sorted, each once.
func (s *Snapshot) Networks() []netip.Prefix {
	var networks []netip.Prefix
	for _, l := range s.links {
		for _, p := range l.Prefixes {
			if !p.IsSingleIP() && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
				networks = append(networks, p.Masked())
			}
		}
	}
	slices.SortFunc(networks, netip.Prefix.Compare)
	return slices.Compact(networks)
}

// answers reports whether the link is of a kind on which neighbours ask for
// addresses: Ethernet with ARP that belongs to the node itself. The ports of a
// bridge, bond or switch are left out, since their master gets the frames; a
// member of a VRF is an interface of its own.
func (s *Snapshot) answers(l Link) bool {
	if l.Loopback || l.NoARP || !l.Broadcast || len(l.MAC) != 6 {
		return false
	}
	return l.Master == 0 || s.links[l.Master].Kind == "vrf"
}
