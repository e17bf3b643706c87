package allocation

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// quota is what one namespace holds of one pool.
type quota struct {
	pool, namespace string
}

// lowestFree finds the lowest free address of the family in the first of the pools that
// the Service asks for that has one; if it asks for none, in the first pool that gives
// addresses by itself. A reason and a message say why there is none.
func (p *planner) lowestFree(s *view.Service, f addr.Family) (free netip.Addr, reason, message string) {
	for _, name := range s.Request.Pools {
		a, why, text := p.lowestFreeOf(s, name, f)
		if why == "" {
			return a, "", ""
		}
		if reason == "" || reason == ReasonNoPool {
			reason, message = why, text // a pool of the other family explains nothing
		}
	}
	if len(s.Request.Pools) > 0 {
		return netip.Addr{}, reason, message
	}
	var full []string
	for _, sh := range p.stock.shelves {
		if !sh.pool.AutoAssign || !sh.has(f) {
			continue
		}
		switch why, text := p.closed(sh, s); {
		case why == ReasonQuotaExceeded:
			reason, message = why, text
			continue
		case why != "":
			continue
		}
		if a := sh.lowestFree(f, p.taken); a.IsValid() {
			return a, "", ""
		}
		full = append(full, sh.pool.Name)
	}
	switch {
	case reason != "":
		return netip.Addr{}, reason, message
	case len(full) == 0:
		return netip.Addr{}, ReasonNoPool, fmt.Sprintf("no IPAddressPool gives this Service %s addresses without being asked: create one, "+
			"or look at autoAssign, disabled and serviceAllocation of those that there are", f)
	}
	return netip.Addr{}, ReasonPoolExhausted, fmt.Sprintf("no %s address is free in IPAddressPool %s: add addresses to a pool, or create one", f, list(full))
}

func (p *planner) lowestFreeOf(s *view.Service, name string, f addr.Family) (free netip.Addr, reason, message string) {
	sh := p.stock.shelf(name)
	if sh == nil {
		return netip.Addr{}, ReasonPoolNotFound, fmt.Sprintf("the requested IPAddressPool %q does not exist", name)
	}
	if !sh.has(f) {
		return netip.Addr{}, ReasonNoPool, fmt.Sprintf("the requested IPAddressPool %q has no %s addresses", name, f)
	}
	if reason, message = p.closed(sh, s); reason != "" {
		return netip.Addr{}, reason, message
	}
	if a := sh.lowestFree(f, p.taken); a.IsValid() {
		return a, "", ""
	}
	return netip.Addr{}, ReasonPoolExhausted, fmt.Sprintf("no %s address is free in the requested IPAddressPool %q", f, name)
}

// occupied are the addresses of pools that the cluster itself uses, and what for.
func (st *stock) occupied(c *view.Cluster) map[netip.Addr]string {
	found := map[netip.Addr]string{}
	note := func(addrs []netip.Addr, what string) {
		for _, a := range addrs {
			if st.poolOf(a) != nil {
				found[a] = what
			}
		}
	}
	for _, n := range c.Nodes {
		note(n.Addresses, "an address of a node")
	}
	for _, s := range c.Services {
		note(s.ClusterIPs, "a ClusterIP")
	}
	return found
}

// closed says why a pool gives the Service no new address, whichever; an empty reason
// means that it would.
func (p *planner) closed(sh *shelf, s *view.Service) (reason, message string) {
	pool := sh.pool
	switch {
	case sh.rival != nil:
		return ReasonPoolBlocked, fmt.Sprintf("IPAddressPool %q gives no addresses while it overlaps pool %q", pool.Name, sh.rival.Name)
	case pool.Disabled:
		return ReasonPoolDisabled, fmt.Sprintf("IPAddressPool %q gives no new addresses (disabled: true)", pool.Name)
	case !pool.Serves(s, p.namespaces[s.Namespace]):
		return ReasonPoolNotAllowed, fmt.Sprintf("IPAddressPool %q is not for this Service: its serviceAllocation does not choose it", pool.Name)
	case pool.MaxPerNamespace > 0 && p.holds(s, pool) >= pool.MaxPerNamespace:
		return ReasonQuotaExceeded, fmt.Sprintf("namespace %q has %d addresses of IPAddressPool %q, and maxPerNamespace allows %d",
			s.Namespace, p.holds(s, pool), pool.Name, pool.MaxPerNamespace)
	}
	return "", ""
}

// closedFor says why the Service cannot get this address of the pool. One that its
// namespace has already costs it nothing.
func (p *planner) closedFor(sh *shelf, s *view.Service, a netip.Addr) (reason, message string) {
	reason, message = p.closed(sh, s)
	if reason == ReasonQuotaExceeded && p.tenants[a].of(s.Namespace) {
		return "", ""
	}
	return reason, message
}

// offers tells whether the Service may get the address without asking for it.
func (p *planner) offers(s *view.Service, a netip.Addr) bool {
	open := func(sh *shelf) bool {
		reason, _ := p.closedFor(sh, s, a)
		return reason == ""
	}
	if len(s.Request.Pools) == 0 {
		pool := p.stock.poolOf(a)
		return pool != nil && pool.AutoAssign && open(p.stock.shelf(pool.Name))
	}
	return slices.ContainsFunc(s.Request.Pools, func(name string) bool {
		sh := p.stock.shelf(name)
		return sh != nil && sh.pool.Contains(a) && open(sh)
	})
}

// returning finds an address that the Service, or one of its name, has left a short time
// ago and may have again; the zero Addr for none.
func (p *planner) returning(s *view.Service, f addr.Family) netip.Addr {
	var lowest netip.Addr
	for _, a := range p.left[s.Ref] {
		if addr.FamilyOf(a) == f && (!lowest.IsValid() || a.Less(lowest)) && p.tenants[a].first == nil && p.offers(s, a) {
			lowest = a
		}
	}
	return lowest
}

// move is what the Service that is being settled gives up and has newly chosen.
type move struct {
	giving, taking []netip.Addr
}

// holds counts the addresses of the pool that the namespace of the Service has, as it
// will be when the Service has moved.
func (p *planner) holds(s *view.Service, pool *view.Pool) int {
	count := p.held[quota{pool.Name, s.Namespace}]
	of := func(a netip.Addr) bool { from := p.stock.poolOf(a); return from != nil && from.Name == pool.Name }
	for _, a := range p.move.giving {
		if of(a) && !p.tenants[a].without(s).of(s.Namespace) {
			count--
		}
	}
	for _, a := range p.move.taking {
		if of(a) && !p.tenants[a].of(s.Namespace) {
			count++
		}
	}
	return count
}

// countQuota notes that the Service became a tenant of the address.
func (p *planner) countQuota(a netip.Addr, before tenants, s *view.Service) {
	if !p.stock.quotas || before.of(s.Namespace) {
		return
	}
	if pool := p.stock.poolOf(a); pool != nil && pool.MaxPerNamespace > 0 {
		p.held[quota{pool.Name, s.Namespace}]++
	}
}
