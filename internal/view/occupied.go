package view

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
)

// UseKind is a kind of use that the cluster itself has for an address. Of several uses of one address, the first
// kind is told.
type UseKind uint8

// The kinds of uses. Those of ranges are of all addresses of a prefix.
const (
	UsedByNode UseKind = iota + 1
	UsedByAPIServer
	UsedByRouter
	UsedClusterIP
	UsedByServices // a range of ClusterIPs
	UsedByPods     // a range
	UsedByNetwork  // the first and the last address of an IPv4 network
	UsedByAnycast  // the first address of an IPv6 network (RFC 4291, section 2.6.1)
	UsedExternalIP // an address in spec.externalIPs of a Service
)

// Use is what the cluster itself uses an address for.
type Use struct {
	Kind   UseKind
	Of     Ref          // the object that has it, by its name alone if it has no namespace
	Prefix netip.Prefix // the range or the network
}

// String is what an address of the use is, for messages: it follows "is".
func (u Use) String() string {
	switch u.Kind {
	case UsedByNode:
		return "the address of node " + u.Of.Name
	case UsedByAPIServer:
		return "the address of an API server"
	case UsedByRouter:
		return "an address of BGPPeer " + u.Of.Name
	case UsedClusterIP:
		return "the ClusterIP of Service " + u.Of.String()
	case UsedByServices:
		return "of " + u.Prefix.String() + ", which ClusterIPs are from (ServiceCIDR)"
	case UsedByPods:
		return "of " + u.Prefix.String() + ", which pods are from (podCIDRs of nodes, clusterCIDRs)"
	case UsedByNetwork:
		return "the first or the last address of " + u.Prefix.String() + ", a network of nodes"
	case UsedByAnycast:
		return "the anycast address of the routers on " + u.Prefix.String() + ", a network of nodes"
	case UsedExternalIP:
		return "in spec.externalIPs of Service " + u.Of.String()
	}
	return "in use"
}

// Compare orders uses by kind, then by what has the address.
func (u Use) Compare(o Use) int {
	return cmp.Or(cmp.Compare(u.Kind, o.Kind), u.Of.Compare(o.Of), u.Prefix.Compare(o.Prefix))
}

// Occupied are addresses that the cluster itself uses: no Service gets one as its external address, but for those in
// spec.externalIPs, which a Service may ask for.
type Occupied struct {
	Addresses map[netip.Addr]Use
	Ranges    []Use
}

// Use returns what the cluster uses an address for, and false if it does not.
func (o *Occupied) Use(a netip.Addr) (Use, bool) {
	if use, single := o.Addresses[a]; single {
		return use, true
	}
	for _, use := range o.Ranges {
		if use.Prefix.Contains(a) {
			return use, true
		}
	}
	return Use{}, false
}

// add notes a use of an address, unless one is known that comes before it.
func (o *Occupied) add(a netip.Addr, use Use) {
	if known, twice := o.Addresses[a]; !twice || use.Compare(known) < 0 {
		o.Addresses[a] = use
	}
}

// Occupied returns the addresses that the cluster itself uses of those for which of returns a pool, and all ranges of
// ranges.
func (c *Cluster) Occupied(of func(netip.Addr) *Pool, ranges []Use) Occupied {
	o := Occupied{Addresses: map[netip.Addr]Use{}, Ranges: ranges}
	for a, use := range c.Uses() {
		if pool := of(a); pool != nil && (use.Kind != UsedExternalIP || pool.Open()) {
			o.add(a, use)
		}
	}
	return o
}

// Beyond returns all that the cluster itself uses, but for spec.externalIPs.
func (c *Cluster) Beyond() Occupied {
	o := Occupied{Addresses: map[netip.Addr]Use{}, Ranges: c.UsedRanges()}
	for a, use := range c.Uses() {
		if use.Kind != UsedExternalIP {
			o.add(a, use)
		}
	}
	return o
}

// Uses visits the single addresses that the cluster itself uses, some of them again. ClusterIPs of ServiceRanges are not
// among them.
func (c *Cluster) Uses() iter.Seq2[netip.Addr, Use] {
	return func(yield func(netip.Addr, Use) bool) {
		each := func(addresses []netip.Addr, use Use) bool {
			for _, a := range addresses {
				if addr.Reachable(a) && (use.Kind != UsedClusterIP || !c.ServiceRange(a).IsValid()) && !yield(a, use) {
					return false
				}
			}
			return true
		}
		_ = c.useByMachines(each) && c.useByServices(each)
	}
}

func (c *Cluster) useByMachines(each func([]netip.Addr, Use) bool) bool {
	for name, n := range c.Nodes {
		if use := (Use{Kind: UsedByNode, Of: Ref{Name: name}}); !each(n.Addresses, use) || !each(n.ExternalIPs, use) {
			return false
		}
	}
	for name, p := range c.BGPPeers {
		if !each([]netip.Addr{p.PeerAddress, p.SourceAddress}, Use{Kind: UsedByRouter, Of: Ref{Name: name}}) {
			return false
		}
	}
	for _, p := range c.Networks {
		ends := netipx.RangeOfPrefix(p)
		use, reserved := Use{Kind: UsedByNetwork, Prefix: p}, []netip.Addr{ends.From(), ends.To()}
		if addr.FamilyOf(p.Addr()) == addr.IPv6 {
			use.Kind, reserved = UsedByAnycast, reserved[:1]
		}
		if p.Bits() < p.Addr().BitLen()-1 && !each(reserved, use) { // not of two addresses, RFC 3021 and RFC 6164
			return false
		}
	}
	return each(c.APIServers, Use{Kind: UsedByAPIServer})
}

func (c *Cluster) useByServices(each func([]netip.Addr, Use) bool) bool {
	for ref, s := range c.Services {
		if !each(s.ClusterIPs, Use{Kind: UsedClusterIP, Of: ref}) || !each(s.ExternalIPs, Use{Kind: UsedExternalIP, Of: ref}) {
			return false
		}
	}
	for ref, addresses := range c.ClusterIPs {
		if !each(addresses, Use{Kind: UsedClusterIP, Of: ref}) {
			return false
		}
	}
	for ref, addresses := range c.ExternalIPs {
		if !each(addresses, Use{Kind: UsedExternalIP, Of: ref}) {
			return false
		}
	}
	return true
}

// UsedRanges are the ranges that ClusterIPs and pods are from.
func (c *Cluster) UsedRanges() []Use {
	ranges := make([]Use, 0, len(c.ServiceRanges)+len(c.PodRanges))
	for _, p := range c.ServiceRanges {
		ranges = append(ranges, Use{Kind: UsedByServices, Prefix: p})
	}
	for _, p := range c.PodRanges {
		ranges = append(ranges, Use{Kind: UsedByPods, Prefix: p})
	}
	return ranges
}

// ServiceRange is the range of ClusterIPs that has the address; the zero Prefix for none.
func (c *Cluster) ServiceRange(a netip.Addr) netip.Prefix {
	for _, r := range c.ServiceRanges {
		if r.Contains(a) {
			return r
		}
	}
	return netip.Prefix{}
}

// JoinRanges are the ranges of all ServiceCIDRs, by whatever names, sorted, each once.
func JoinRanges(of map[string][]netip.Prefix) []netip.Prefix {
	all := slices.Concat(slices.Collect(maps.Values(of))...)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}
