// Package allocation decides which Service holds which external addresses. Plan
// is a pure function of the cluster: it keeps what Services hold, oldest first,
// and gives the rest the lowest free address of the pools that suit them. What
// it costs depends on how many addresses are in use, never on how large pools are.
package allocation

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Assignment is what one Service holds.
type Assignment struct {
	// Addresses has at most one address of each family, in the order of the
	// Service's families. Empty: the Service holds nothing.
	Addresses []netip.Addr
}

// Plan decides over every Service of type LoadBalancer whose class is the given
// one ("" means Services without a class). The result has an entry for each of
// them, except those that are being deleted: these are left as they are.
//
// A Service holds the addresses in its status, or those in assumed, which has
// the decisions that the snapshot does not show yet. The rules, in this order:
//
//   - An address belongs to one Service. Where two hold it, the older one keeps
//     it and the other gets a new one.
//   - What is held stays, whatever becomes of the pools, until the Service no
//     longer wants the family or asks for something else.
//   - An address that a Service leaves is free once no status shows it any more.
//   - Older Services choose before younger ones.
//
// The problems name Services that lack what they ask for, and pools that claim
// addresses of an older pool.
func Plan(c *view.Cluster, assumed map[view.Ref]Assignment, class string) (map[view.Ref]Assignment, []problem.Problem) {
	claims := claimsByAge(c, assumed, class)
	p := &planner{
		stock:  newStock(c.Pools),
		owners: make(map[netip.Addr]view.Ref, len(claims)),
		result: make(map[view.Ref]Assignment, len(claims)),
	}
	p.problems = p.stock.overlaps()
	for _, cl := range claims {
		p.keep(cl)
	}
	for _, cl := range claims {
		p.reserve(cl)
	}
	for _, cl := range claims {
		if cl.ours {
			p.settle(cl)
		}
	}
	problem.Sort(p.problems)
	return p.result, slices.Compact(p.problems)
}

// planner is the state of one run of Plan.
type planner struct {
	stock    *stock
	owners   map[netip.Addr]view.Ref
	result   map[view.Ref]Assignment
	problems []problem.Problem
}

// claim is a Service that holds addresses or wants some.
type claim struct {
	service *view.Service
	ours    bool         // Plan decides what it holds; otherwise it holds what it holds
	held    []netip.Addr // in its status, or assumed
	kept    []netip.Addr // those of held that it may keep, in the order of its families
	lost    []netip.Addr // those of held that an older Service holds as well
}

func claimsByAge(c *view.Cluster, assumed map[view.Ref]Assignment, class string) []*claim {
	all := make([]claim, 0, len(c.Services)) // never grows: claims points into it
	claims := make([]*claim, 0, len(c.Services))
	for ref, s := range c.Services {
		ours := s.Type == view.LoadBalancer && s.Class == class && !s.Deleting
		held := s.Ingress
		if a, ok := assumed[ref]; ok {
			held = a.Addresses
		}
		if ours || len(held) > 0 || len(s.Ingress) > 0 {
			all = append(all, claim{service: s, ours: ours, held: held})
			claims = append(claims, &all[len(all)-1])
		}
	}
	slices.SortFunc(claims, func(a, b *claim) int {
		if byAge := a.service.Created.Compare(b.service.Created); byAge != 0 {
			return byAge // most of the time, and names take longer to compare
		}
		return a.service.Compare(b.service.Ref)
	})
	return claims
}

// keep settles what the claim keeps of what it holds: of ours one address for
// each wanted family, of others everything.
func (p *planner) keep(cl *claim) {
	if !cl.ours {
		p.reserve(cl)
		return
	}
	for _, f := range families(cl.service) {
		for _, a := range cl.held {
			if addr.FamilyOf(a) != f {
				continue
			}
			if _, taken := p.owners[a]; taken {
				cl.lost = append(cl.lost, a)
				continue
			}
			p.owners[a] = cl.service.Ref
			cl.kept = append(cl.kept, a)
			break
		}
	}
}

// reserve sees to it that nobody is given an address that the Service still
// shows, or is about to show, even if it is leaving it.
func (p *planner) reserve(cl *claim) {
	for _, held := range [][]netip.Addr{cl.held, cl.service.Ingress} {
		for _, a := range held {
			if _, taken := p.owners[a]; !taken {
				p.owners[a] = cl.service.Ref
			}
		}
	}
}

// settle decides what one Service gets.
func (p *planner) settle(cl *claim) {
	s := cl.service
	if s.Request.Invalid != nil {
		p.problems = append(p.problems, *s.Request.Invalid)
		p.result[s.Ref] = Assignment{Addresses: cl.kept}
		return
	}
	wanted := families(s)
	if len(s.Request.Addresses) > 0 {
		p.refuseStrangers(s, wanted)
	}

	chosen := make([]netip.Addr, 0, len(wanted))
	var missing []shortage
	for _, f := range wanted {
		a, short := p.choose(cl, f)
		if short != nil {
			missing = append(missing, *short)
		}
		if a.IsValid() {
			chosen = append(chosen, a)
		}
	}
	if s.FamilyPolicy == view.RequireDualStack && len(chosen) < len(wanted) {
		chosen = cl.kept
	}
	for _, a := range chosen {
		p.owners[a] = s.Ref
	}
	p.result[s.Ref] = Assignment{Addresses: chosen}
	p.report(cl, chosen, missing)
}

// shortage says why a family did not get the address that is wanted for it.
type shortage struct {
	family  addr.Family
	reason  string
	message string
	pinned  bool // the user asked for one certain address
}

// choose finds the address of one family. With a shortage, the address is the
// one that the Service keeps meanwhile, if any.
func (p *planner) choose(cl *claim, f addr.Family) (netip.Addr, *shortage) {
	s := cl.service
	kept := ofFamily(cl.kept, f)
	if pinned := ofFamily(s.Request.Addresses, f); pinned.IsValid() {
		if pinned == kept {
			return kept, nil
		}
		if reason, message := p.refusal(s, pinned); reason != "" {
			return kept, &shortage{f, reason, message, true}
		}
		return pinned, nil
	}
	if kept.IsValid() && !p.mustLeave(s, kept) {
		return kept, nil
	}
	a, reason, message := p.stock.lowestFree(s.Request.Pool, f, p.taken)
	if reason != "" {
		return kept, &shortage{f, reason, message, false}
	}
	return a, nil
}

func (p *planner) taken(a netip.Addr) bool {
	_, taken := p.owners[a]
	return taken
}

// mustLeave tells whether the Service asks for another pool than the one its
// address is from. An address that no pool holds any more may stay: the pool
// was edited, and nobody asked the Service to move.
func (p *planner) mustLeave(s *view.Service, held netip.Addr) bool {
	if s.Request.Pool == "" {
		return false
	}
	asked := p.stock.shelf(s.Request.Pool)
	if asked != nil && asked.pool.Contains(held) {
		return false
	}
	return p.stock.poolOf(held) != nil
}

func families(s *view.Service) []addr.Family {
	if len(s.Families) > 0 {
		return s.Families
	}
	wanted := make([]addr.Family, 0, len(s.ClusterIPs))
	for _, a := range s.ClusterIPs {
		wanted = append(wanted, addr.FamilyOf(a))
	}
	return wanted
}

// ofFamily is the first address of the family, or the zero Addr.
func ofFamily(addrs []netip.Addr, f addr.Family) netip.Addr {
	for _, a := range addrs {
		if addr.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}
