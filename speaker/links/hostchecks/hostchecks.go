// Package hostchecks finds settings of this node's kernel that keep clients on the local
// network from an address although a node answers for it, or that make this kernel answer
// for an address that another node answers for. Nothing else reports these: frames are
// dropped, or come from two stations.
//
// Read reads the settings and Find decides; Answering is for callers that check few addresses
// often.
package hostchecks

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/links"
)

// Kind is what an obstacle is.
type Kind uint8

// The kinds.
const (
	// ReversePath: rp_filter is strict on the interface, and answers to clients beyond its
	// network leave by another one, Via, so that the kernel drops what these clients send.
	// IPv4 only.
	ReversePath Kind = iota + 1
	// ByAddress: the interface is an ipvlan, which is given frames for the addresses that it
	// has, and for no other.
	ByAddress
	// Selective: the interface is a wireless one, and not promiscuous. The firmware of some
	// answers ARP requests itself, and passes on none for an address that it does not know.
	Selective
	// Held: the interface Via has the address, so that the kernel answers for it on the
	// interface.
	Held
	// Proxied: the kernel answers for the address on the interface as a proxy, by the sysctl
	// proxy_arp or an entry of "ip neigh add proxy".
	Proxied
	// BareReversePath is ReversePath on an interface without an IPv4 address, where any rp_filter but 0 is strict.
	BareReversePath
)

// Obstacle is one on this node.
type Obstacle struct {
	Kind      Kind
	Interface string // on which clients ask
	Via       string // another interface, see Kind; else empty
}

// Address is how this node has to do with an address.
type Address struct {
	// On are the interfaces on which it answers; none if it is another node that does.
	On []string
	// Asked are the links on which clients may ask this node for it.
	Asked []links.Link
}

// Kernel is what the kernel does on its own account.
type Kernel struct {
	Links *links.Snapshot
	// Interfaces has what matters of those that clients ask on, by name.
	Interfaces map[string]Interface
}

// Interface is what the kernel does on one interface. What is set for all interfaces is
// taken in as the kernel does that.
type Interface struct {
	ARPIgnore int
	// Away is the interface by which answers leave to clients beyond the network, while a
	// strict rp_filter drops what comes from them; else empty. Bare: it has no IPv4 address, so that a loose one does, too.
	Away string
	Bare bool
	// Wireless and not promiscuous.
	Selective bool
	// Proxy: the kernel answers for what it would route by another interface; OwnSide: for
	// what it would route by this one, too.
	Proxy, OwnSide bool
	// Entries are the addresses for which it is told to answer, one by one.
	Entries []netip.Addr
	// Leaves is the interface by which it would send to an address; nil: not known, as where
	// the kernel is no proxy.
	Leaves func(netip.Addr) string
}

// holders returns the links that have each of the addresses for which wanted returns true.
func holders(s *links.Snapshot, wanted func(netip.Addr) bool) map[netip.Addr][]links.Link {
	found := map[netip.Addr][]links.Link{}
	for _, l := range s.All() {
		for _, p := range l.Prefixes {
			if wanted(p.Addr()) {
				found[p.Addr()] = append(found[p.Addr()], l)
			}
		}
	}
	return found
}

// replies returns which of the links that have an address makes the kernel answer requests for it on a link.
// With IPv6, the link itself has to have it; with IPv4, arp_ignore decides.
func replies(a netip.Addr, asked links.Link, held []links.Link, ignore int) (holder string, does bool) {
	for _, l := range held {
		switch {
		case a.Is6() || ignore == 1 || ignore == 2:
			does = l.Index == asked.Index
		case ignore == 3:
			does = !l.Loopback // its addresses have the scope of the host
		default:
			does = ignore != 8
		}
		if does {
			return l.Name, true
		}
	}
	return "", false
}

// proxies reports whether the kernel answers for an address as a proxy.
func (i Interface) proxies(a netip.Addr, asked links.Link) bool {
	entry := slices.Contains(i.Entries, a)
	if a.Is6() {
		return entry
	}
	if !entry && !i.Proxy && !i.OwnSide || i.Leaves == nil {
		return false
	}
	switch i.Leaves(a) {
	case "":
		return false // nowhere
	case asked.Name:
		return i.OwnSide
	}
	return entry || i.Proxy
}

// Find returns the obstacles, each with the addresses that it is in the way of, sorted.
func Find(k Kernel, addresses map[netip.Addr]Address) map[Obstacle][]netip.Addr {
	held := holders(k.Links, func(a netip.Addr) bool { _, ours := addresses[a]; return ours })
	found := map[Obstacle][]netip.Addr{}
	for a, how := range addresses {
		for _, name := range how.On {
			for _, o := range k.inTheWay(a, name) {
				found[o] = append(found[o], a)
			}
		}
		for _, l := range how.Asked {
			if slices.Contains(how.On, l.Name) {
				continue // the kernel says there what this node says
			}
			i := k.Interfaces[l.Name]
			holder, does := replies(a, l, held[a], i.ARPIgnore)
			switch {
			case does:
				o := Obstacle{Held, l.Name, holder}
				found[o] = append(found[o], a)
			case i.proxies(a, l):
				o := Obstacle{Proxied, l.Name, ""}
				found[o] = append(found[o], a)
			}
		}
	}
	for _, of := range found {
		slices.SortFunc(of, netip.Addr.Compare)
	}
	return found
}

// Filters reports whether the kernel drops what clients beyond the network of an interface send there to IPv4 addresses, and how.
func (k Kernel) Filters(name string) (o Obstacle, drops bool) {
	i := k.Interfaces[name]
	o = Obstacle{ReversePath, name, i.Away}
	if i.Bare {
		o.Kind = BareReversePath
	}
	return o, i.Away != ""
}

// Filter says why the kernel drops what comes by an interface with a reverse path filter, and what to do about it.
func (o Obstacle) Filter() string {
	if o.Kind == BareReversePath {
		return fmt.Sprintf("%s has no IPv4 address, so that the kernel filters there with any rp_filter but 0, and answers leave by %s; "+
			"set the sysctls net.ipv4.conf.%s.rp_filter=0 and net.ipv4.conf.all.rp_filter=0, or give %s an address", o.Interface, o.Via, o.Interface, o.Interface)
	}
	return fmt.Sprintf("rp_filter is strict there, and answers to them leave by %s; "+
		"set the sysctl net.ipv4.conf.%s.rp_filter=2 (and net.ipv4.conf.all.rp_filter to 0 or 2), or give %s the way back", o.Via, o.Interface, o.Interface)
}

// inTheWay returns what keeps clients from an address that is answered for on an interface.
func (k Kernel) inTheWay(a netip.Addr, name string) []Obstacle {
	var found []Obstacle
	if o, drops := k.Filters(name); drops && a.Is4() {
		found = append(found, o)
	}
	if k.Interfaces[name].Selective {
		found = append(found, Obstacle{Selective, name, ""})
	}
	for _, l := range k.Links.All() {
		if l.Name == name && l.Kind == "ipvlan" {
			found = append(found, Obstacle{ByAddress, name, ""})
		}
	}
	return found
}

// Answering returns the addresses for which the kernel would answer on one of the links of each, and the
// interface that makes it do so. It leaves out proxies. It reads settings in the network namespace of its caller.
func Answering(s *links.Snapshot, asked map[netip.Addr][]links.Link) map[netip.Addr]string {
	found := map[netip.Addr]string{}
	if s == nil {
		return found
	}
	held := holders(s, func(a netip.Addr) bool { return asked[a] != nil })
	for a, by := range held {
		for _, l := range asked[a] {
			if holder, does := replies(a, l, by, setting(l.Name, "arp_ignore")); does {
				found[a] = holder
				break
			}
		}
	}
	return found
}
