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
	// In lists the addresses by the pools that have them and what they are used for, sorted.
	In map[PoolUse][]netip.Addr

	of    map[Ref][]addressUse    // by Service
	again map[netip.Addr]struct{} // those of several uses
}

// PoolUse is a kind of use of the addresses of a pool, by its name.
type PoolUse struct {
	Pool string
	Kind UseKind
}

// addressUse is one of the uses of an address.
type addressUse struct {
	addr netip.Addr
	use  Use
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

// add notes a use of an address, unless one is known that comes before it. twice: one is known.
func (o *Occupied) add(a netip.Addr, use Use) (twice bool) {
	known, twice := o.Addresses[a]
	if !twice || use.Compare(known) < 0 {
		o.Addresses[a] = use
	}
	return twice
}

// Occupied returns the addresses that the cluster itself uses of those for which of returns a pool, and all ranges of
// ranges.
func (c *Cluster) Occupied(of func(netip.Addr) *Pool, ranges []Use) Occupied {
	o := Occupied{
		Addresses: map[netip.Addr]Use{}, Ranges: ranges, In: map[PoolUse][]netip.Addr{},
		of: map[Ref][]addressUse{}, again: map[netip.Addr]struct{}{},
	}
	for a, use := range c.Uses() {
		if !counts(of, a, use) {
			continue
		}
		if o.add(a, use) {
			o.again[a] = struct{}{}
		}
		if use.Kind == UsedClusterIP || use.Kind == UsedExternalIP {
			o.of[use.Of] = append(o.of[use.Of], addressUse{a, use})
		}
	}
	for a, use := range o.Addresses {
		o.list(c, addressUse{a, use}, func(list []netip.Addr) []netip.Addr { return append(list, a) })
	}
	for _, list := range o.In {
		slices.SortFunc(list, netip.Addr.Compare)
	}
	return o
}

// counts reports whether a use of an address is one of those of which Occupied tells.
func counts(of func(netip.Addr) *Pool, a netip.Addr, use Use) bool {
	pool := of(a)
	return pool != nil && (use.Kind != UsedExternalIP || pool.Open())
}

// list changes the lists that an address is on.
func (o *Occupied) list(c *Cluster, u addressUse, change func([]netip.Addr) []netip.Addr) {
	for name, pool := range c.Pools {
		if !pool.Contains(u.addr) {
			continue
		}
		key := PoolUse{name, u.use.Kind}
		if o.In[key] = change(o.In[key]); len(o.In[key]) == 0 {
			delete(o.In, key)
		}
	}
}

// Follow takes in what one Service uses now, at the cost of a change of sorted lists, and returns what is used no more
// and what is since then. ok is false, and nothing is changed, where something else uses one of these addresses as well.
func (o *Occupied) Follow(c *Cluster, of func(netip.Addr) *Pool, ref Ref) (gone, come []netip.Addr, ok bool) {
	var now []addressUse
	c.useByService(ref, c.single(func(a netip.Addr, use Use) bool {
		if counts(of, a, use) {
			now = append(now, addressUse{a, use})
		}
		return true
	}))
	before := o.of[ref]
	if slices.Equal(before, now) {
		return nil, nil, true
	}
	for _, u := range before {
		gone = append(gone, u.addr)
		if _, several := o.again[u.addr]; several {
			return nil, nil, false
		}
	}
	for _, u := range now {
		_, used := o.Addresses[u.addr]
		if used && !slices.Contains(gone, u.addr) || slices.Contains(come, u.addr) {
			return nil, nil, false
		}
		come = append(come, u.addr)
	}
	for _, u := range before {
		delete(o.Addresses, u.addr)
		o.list(c, u, func(list []netip.Addr) []netip.Addr {
			at, _ := slices.BinarySearchFunc(list, u.addr, netip.Addr.Compare)
			return slices.Delete(list, at, at+1)
		})
	}
	for _, u := range now {
		o.Addresses[u.addr] = u.use
		o.list(c, u, func(list []netip.Addr) []netip.Addr {
			at, _ := slices.BinarySearchFunc(list, u.addr, netip.Addr.Compare)
			return slices.Insert(list, at, u.addr)
		})
	}
	if o.of[ref] = now; len(now) == 0 {
		delete(o.of, ref)
	}
	return gone, come, true
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
		each := c.single(yield)
		_ = c.useByMachines(each) && c.useByServices(each)
	}
}

// single visits those addresses of a list that count by themselves.
func (c *Cluster) single(yield func(netip.Addr, Use) bool) func([]netip.Addr, Use) bool {
	return func(addresses []netip.Addr, use Use) bool {
		for _, a := range addresses {
			if addr.Reachable(a) && (use.Kind != UsedClusterIP || !c.ServiceRange(a).IsValid()) && !yield(a, use) {
				return false
			}
		}
		return true
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
	for ref := range c.Services {
		if !c.useByService(ref, each) {
			return false
		}
	}
	for ref := range c.ClusterIPs {
		if c.Services[ref] == nil && !c.useByService(ref, each) {
			return false
		}
	}
	for ref := range c.ExternalIPs {
		if _, seen := c.ClusterIPs[ref]; !seen && c.Services[ref] == nil && !c.useByService(ref, each) {
			return false
		}
	}
	return true
}

func (c *Cluster) useByService(ref Ref, each func([]netip.Addr, Use) bool) bool {
	ips, external := Use{Kind: UsedClusterIP, Of: ref}, Use{Kind: UsedExternalIP, Of: ref}
	if s := c.Services[ref]; s != nil && (!each(s.ClusterIPs, ips) || !each(s.ExternalIPs, external)) {
		return false
	}
	return each(c.ClusterIPs[ref], ips) && each(c.ExternalIPs[ref], external)
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
