// Package egress decides which address of this node takes the place of the sender's in what is masqueraded. The kernel
// takes one of the interface by which a packet leaves, whatever the route says. Where links between routers and nodes
// have addresses of their own, link-local ones or none, and the node's is on its loopback interface, no answer comes back
// to that one. So the source address of the route counts, as it does for what the node sends itself, or else the
// InternalIP.
//
// Read reads routes and addresses, and Sources decides.
package egress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// most bounds the sources of one family, of which each may be a rule. Nodes need a handful.
const most = 256

// Host is what the kernel has.
type Host struct {
	Links  []Link  // in the kernel's order
	Routes []Route // of the main table
}

// Link is an interface with addresses, or one that leads to routers.
type Link struct {
	Index int
	Name  string
	Addrs []Addr // in the kernel's order
	// Stub: no wire is behind it, as behind a loopback or dummy interface. Tunnel: other nodes know its addresses,
	// and routers need not.
	Stub, Tunnel, Bridge bool
}

// Addr is an address of an interface in its network.
type Addr struct {
	netip.Prefix
	// Secondary: masquerade never takes it, as those that are secondary, or deprecated, or of the link's scope.
	Secondary bool
}

// Route is a unicast route.
type Route struct {
	To     netip.Prefix
	Source netip.Addr // that it prefers; may be invalid
	Hops   []Hop
}

// Hop is one of the ways of a route.
type Hop struct {
	Link int
	// Gateway: by way of a router; Via is its address, if that is of the route's family.
	Gateway bool
	Via     netip.Addr
}

// choice is the address that masquerade gives to packets of a route; invalid: not one, or unknown. kept: it stays so.
type choice struct {
	source netip.Addr
	kept   bool
}

// Sources returns where what is masqueraded gets another source than the kernel's masquerade gives it. own are the
// addresses of the node, the most important first, and pods where pods send from. It returns an error if that takes more
// rules than there may be, and leaves those of the family out.
func (h Host) Sources(own []netip.Addr, pods []netip.Prefix) ([]desired.Source, error) {
	var all []desired.Source
	var failed error
	for _, family := range addr.Families() {
		found := h.sources(family, own, pods)
		if len(found) > most {
			failed = fmt.Errorf("the routes of %s ask for %d ranges of destinations with source addresses of their own (RTA_PREFSRC), and %d are the most: "+
				"what is masqueraded gets the address of the interface; give the default route the source instead of each route", family, len(found), most)
			continue
		}
		all = append(all, found...)
	}
	return all, failed
}

func (h Host) sources(family addr.Family, own []netip.Addr, pods []netip.Prefix) []desired.Source {
	j := judge{host: h, own: own, pods: pods, internal: h.internal(family, own)}
	decided := map[netip.Prefix]choice{}
	var order []netip.Prefix
	for _, r := range h.Routes {
		if _, known := decided[r.To]; known || addr.FamilyOf(r.To.Addr()) != family { // the kernel takes the first
			continue
		}
		decided[r.To] = j.decide(r)
		order = append(order, r.To)
	}
	slices.SortFunc(order, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	found := map[netip.Prefix]netip.Addr{}
	for _, to := range order {
		c := decided[to]
		if above := enclosing(decided, to); c.kept && above.kept || c.source.IsValid() && c.source == above.source && !above.kept {
			delete(decided, to) // what holds for the route around it holds for this one
			continue
		}
		if c.kept {
			c.source = netip.Addr{}
		}
		found[to] = c.source
	}
	merge(found, family)
	var all []desired.Source
	for to, from := range found {
		all = append(all, desired.Source{To: to, From: from})
	}
	slices.SortFunc(all, func(a, b desired.Source) int { // a packet meets the longest prefix first
		return cmp.Or(cmp.Compare(b.To.Bits(), a.To.Bits()), a.To.Addr().Compare(b.To.Addr()))
	})
	return all
}

// merge makes one of two halves of a prefix with the same source: each node's pods mostly have a route of their own.
func merge(found map[netip.Prefix]netip.Addr, family addr.Family) {
	lengths := make([][]netip.Prefix, family.Bits()+1)
	for to := range found {
		lengths[to.Bits()] = append(lengths[to.Bits()], to)
	}
	for bits := family.Bits(); bits > 0; bits-- {
		for _, to := range lengths[bits] {
			whole, _ := to.Addr().Prefix(bits - 1)
			last := netipx.PrefixLastIP(whole)
			upper, _ := last.Prefix(bits)
			from, lower := found[netip.PrefixFrom(whole.Addr(), bits)]
			other, both := found[upper]
			if !lower || !both || from != other {
				continue
			}
			delete(found, netip.PrefixFrom(whole.Addr(), bits))
			delete(found, upper)
			if _, has := found[whole]; !has {
				lengths[bits-1] = append(lengths[bits-1], whole)
			}
			found[whole] = from
		}
	}
}

// enclosing is what was decided for the longest prefix around a prefix.
func enclosing(decided map[netip.Prefix]choice, p netip.Prefix) choice {
	for bits := p.Bits() - 1; bits >= 0; bits-- {
		around, _ := p.Addr().Prefix(bits)
		if c, known := decided[around]; known {
			return c
		}
	}
	return choice{kept: true}
}

// internal is the first address of the node that an interface has.
func (h Host) internal(family addr.Family, own []netip.Addr) home {
	for _, a := range own {
		if addr.FamilyOf(a) != family {
			continue
		}
		for _, l := range h.Links {
			if l.Has(a) {
				return home{a, l.Stub}
			}
		}
	}
	return home{}
}

// home is the node's address, and whether no wire is behind it, so that routers must know it from elsewhere.
type home struct {
	netip.Addr
	stub bool
}

// Has reports whether the interface has an address.
func (l Link) Has(a netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(p Addr) bool { return p.Addr() == a })
}

// judge decides for the routes of one family.
type judge struct {
	host     Host
	own      []netip.Addr
	pods     []netip.Prefix
	internal home
}

func (j judge) decide(r Route) choice {
	source := r.Source
	if source.IsLinkLocalUnicast() {
		source = netip.Addr{}
	}
	kept, poor, first := true, false, netip.Addr{}
	for i, hop := range r.Hops {
		l, a, sure := j.host.masquerade(hop, r.To)
		if i == 0 {
			first = a
		}
		if a != first {
			first = netip.Addr{} // one of several
		}
		kept = kept && sure && a == source
		poor = poor || hop.Gateway && j.poor(l, a)
	}
	switch {
	case source.IsValid() && !kept:
		return choice{source: source}
	case !source.IsValid() && poor && j.internal.IsValid() && first != j.internal.Addr:
		return choice{source: j.internal.Addr}
	}
	return choice{source: first, kept: true}
}

// poor reports whether routers do not know the address that masquerade takes from an interface: one that the interface
// does not have, a link-local one, or one of a link while the node's own is on a loopback interface.
func (j judge) poor(l *Link, a netip.Addr) bool {
	switch {
	case l == nil || a.IsLinkLocalUnicast():
		return true
	case !j.internal.stub || l.Tunnel || slices.Contains(j.own, a):
		return false
	}
	return !slices.ContainsFunc(j.pods, func(p netip.Prefix) bool { return p.Contains(a) })
}

// masquerade is the address that the kernel's masquerade takes for a hop, and the interface that has it, nil if it is not the
// one by which the packet leaves. It is not sure where the kernel chooses among several by rules of its own.
func (h Host) masquerade(hop Hop, to netip.Prefix) (l *Link, a netip.Addr, sure bool) {
	family := addr.FamilyOf(to.Addr())
	next := to.Addr()
	if hop.Via.IsValid() {
		next = hop.Via
	}
	for i := range h.Links {
		if h.Links[i].Index == hop.Link {
			l = &h.Links[i]
		}
	}
	if l != nil {
		if a, sure := l.facing(next, family); a.IsValid() {
			return l, a, sure
		}
	}
	if family == addr.IPv6 {
		return nil, netip.Addr{}, false
	}
	for _, other := range h.Links {
		if a, _ := other.facing(netip.Addr{}, family); a.IsValid() {
			return nil, a, true
		}
	}
	return nil, netip.Addr{}, false
}

// facing is the address of an interface that is in a network with the next hop, or else its first.
func (l Link) facing(next netip.Addr, family addr.Family) (a netip.Addr, sure bool) {
	count := 0
	for _, p := range l.Addrs {
		if p.Secondary || addr.FamilyOf(p.Addr()) != family {
			continue
		}
		if count++; family == addr.IPv4 && p.Contains(next) {
			return p.Addr(), true
		}
		if !a.IsValid() {
			a = p.Addr()
		}
	}
	return a, family == addr.IPv4 || count == 1
}
