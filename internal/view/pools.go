package view

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
)

// PoolsByAge lists the pools oldest first (by name where ages are equal). The
// order decides whenever two pools claim one address: the older keeps it.
func (c *Cluster) PoolsByAge() []*Pool {
	return slices.SortedFunc(maps.Values(c.Pools), func(a, b *Pool) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// PoolOf is the oldest of the given pools (as PoolsByAge lists them) that holds the
// address; if none does, the oldest that held it before an edit, or nil.
func PoolOf(pools []*Pool, a netip.Addr) *Pool {
	for _, p := range pools {
		if p.Contains(a) {
			return p
		}
	}
	for _, p := range pools {
		if p.Had(a) {
			return p
		}
	}
	return nil
}

// Matches reports whether the advertisement covers addresses of this pool.
func (m PoolMatch) Matches(p *Pool) bool {
	if len(m.Selectors) == 0 {
		return len(m.Names) == 0 || slices.Contains(m.Names, p.Name)
	}
	return slices.Contains(m.Names, p.Name) || MatchesAny(m.Selectors, p.Labels)
}

// Aggregate is the prefix by which the advertisement announces an address of this pool:
// one of the length that it asks for if the pool holds all of it, or else the address alone.
func (a *BGPAdvertisement) Aggregate(address netip.Addr, p *Pool) netip.Prefix {
	alone := addr.HostPrefix(address)
	length := a.AggregationLength[addr.FamilyOf(address)]
	if length <= 0 || length >= alone.Bits() {
		return alone
	}
	if whole := netip.PrefixFrom(address, length).Masked(); p.Holds(whole) {
		return whole
	}
	return alone
}

// Open reports whether the pool gives addresses to any Service, any number of them, at any time. By spec.externalIPs
// users can have these without a Service of type LoadBalancer, and no others.
func (p *Pool) Open() bool {
	return !p.Disabled && !p.Chooses() && p.MaxPerNamespace == 0 && p.CoolDown == 0
}

// Chooses reports whether the pool is not for all Services.
func (p *Pool) Chooses() bool {
	return len(p.Namespaces)+len(p.NamespaceSelectors)+len(p.ServiceSelectors) > 0
}

// Serves reports whether the Service may have new addresses of the pool. namespace are the
// labels of its namespace.
func (p *Pool) Serves(s *Service, namespace map[string]string) bool {
	return p.ServesNamespace(s.Namespace, namespace) && MatchesAny(p.ServiceSelectors, s.Labels)
}

// ServesNamespace reports whether the namespace of that name and these labels may have new
// addresses of the pool, as far as that does not depend on the Service.
func (p *Pool) ServesNamespace(name string, labels map[string]string) bool {
	everywhere := len(p.Namespaces)+len(p.NamespaceSelectors) == 0
	return everywhere || slices.Contains(p.Namespaces, name) ||
		len(p.NamespaceSelectors) > 0 && MatchesAny(p.NamespaceSelectors, labels)
}

// Avoids reports whether the pool never gives the address, since old equipment takes it for
// that of a network or a broadcast: IPv4 ending in .0 or .255.
func (p *Pool) Avoids(a netip.Addr) bool {
	if !p.AvoidBuggyIPs || !a.Is4() {
		return false
	}
	last := a.As4()[3]
	return last == 0 || last == 255
}

// Reservation is an IPReservation: addresses that are held for a namespace, whether or
// not a Service of it has them.
type Reservation struct {
	Ref
	Created time.Time
	// Addresses are those to hold, no duplicates; none: Count of each of Families.
	Addresses []netip.Addr
	Count     int
	Families  []addr.Family
	Pool      string // the name of the pool to take them from; "": any
	// Held are the addresses in its status.
	Held []netip.Addr
	// Deleting: the object has a deletion timestamp.
	Deleting bool
	// Invalid says what of the spec cannot be read: it gets nothing new then, and loses
	// nothing.
	Invalid *problem.Problem
	// Stray tells of annotations and labels that only Services ask by; nil for none.
	Stray *problem.Problem
}

// Object is the reservation as problems name it.
func (r *Reservation) Object() problem.Object {
	return problem.Object{Kind: "IPReservation", Namespace: r.Namespace, Name: r.Name}
}
