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
	// Addresses are in the order of the Service's families: one of each, or as
	// many as are asked for. Empty: the Service holds nothing.
	Addresses []netip.Addr
}

// Plan decides over every Service of type LoadBalancer of the given classes. The result has an entry for each of
// them, except those that are being deleted: these are left as they are.
//
// A Service holds the addresses in its status, or those in assumed, which has
// the decisions that the snapshot does not show yet. The rules, in this order:
//
//   - An address belongs to one Service, or to several that share it: they have one
//     share key, and no port in common. Where two hold it that cannot share it, the
//     older one keeps it and the other gets a new one.
//   - What is held stays, whoever wrote it, and whatever becomes of the pools, until
//     the Service no longer wants the family or asks for something else, or the pool
//     has dropped the address and says Renumber. What no Service can have, such as a
//     loopback address, is not taken over from a status.
//   - An address that a Service leaves is free once no status shows it any more. What is
//     assumed is not left before a status shows it.
//   - Addresses of nodes and ClusterIPs are given to nobody.
//   - An address that is cooling down is for nobody but the Service that left it.
//   - Older Services choose before younger ones.
//
// The problems name Services that lack what they ask for, and pools that claim
// addresses of an older pool.
func Plan(c *view.Cluster, assumed map[view.Ref]Assignment, classes view.Classes) (map[view.Ref]Assignment, []problem.Problem) {
	claims := claimsByAge(c, assumed, classes)
	p := &planner{
		classes: classes,
		stock:   newStock(c.Pools),
		tenants: make(map[netip.Addr]tenants, len(claims)),
		shared:  map[string][]netip.Addr{},
		result:  make(map[view.Ref]Assignment, len(claims)),

		namespaces: c.Namespaces,
		held:       map[quota]int{},
		dropped:    map[string][]holding{},
		cooling:    c.Cooling,
		left:       map[view.Ref][]netip.Addr{},
	}
	for a, ref := range c.Cooling {
		p.left[ref] = append(p.left[ref], a)
	}
	p.occupied = p.stock.occupied(c)
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
	p.tellDropped()
	problem.Sort(p.problems)
	return p.result, slices.Compact(p.problems)
}

// planner is the state of one run of Plan.
type planner struct {
	classes  view.Classes
	stock    *stock
	tenants  map[netip.Addr]tenants
	shared   map[string][]netip.Addr // by share key
	result   map[view.Ref]Assignment
	problems []problem.Problem

	namespaces map[string]map[string]string // their labels
	occupied   map[netip.Addr]string        // what the cluster itself uses of the pools, and for what
	held       map[quota]int                // of pools with a quota
	dropped    map[string][]holding         // by pool, what Services keep after an edit
	move       move
	cooling    map[netip.Addr]view.Ref   // who left it a short time ago
	left       map[view.Ref][]netip.Addr // the same the other way round
}

// claim is a Service that holds addresses or wants some.
type claim struct {
	service *view.Service
	ours    bool         // Plan decides what it holds; otherwise it holds what it holds
	held    []netip.Addr // in its status, or assumed
	assumed bool         // no status shows held yet
	kept    []netip.Addr // those of held that it may keep, in the order of its families
	lost    []lost
}

// lost is an address that a Service holds and cannot keep, because of an older one, or
// for itself.
type lost struct {
	addr  netip.Addr
	older *view.Service
	why   string
}

func claimsByAge(c *view.Cluster, assumed map[view.Ref]Assignment, classes view.Classes) []*claim {
	all := make([]claim, 0, len(c.Services)) // never grows: claims points into it
	claims := make([]*claim, 0, len(c.Services))
	for ref, s := range c.Services {
		ours := s.Type == view.LoadBalancer && classes.Serves(s.Class) && !s.Deleting
		held := s.Ingress
		a, unseen := assumed[ref]
		if unseen {
			held = a.Addresses
		}
		if ours || len(held) > 0 || len(s.Ingress) > 0 {
			all = append(all, claim{service: s, ours: ours, held: held, assumed: unseen})
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
// each wanted family, or all where it asks for certain ones; of others everything.
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
			if !addr.Reachable(a) {
				cl.lost = append(cl.lost, lost{addr: a})
				continue
			}
			if older, why := p.obstacle(a, cl.service); older != nil {
				cl.lost = append(cl.lost, lost{a, older, why})
				continue
			}
			p.settleOn(a, cl.service)
			cl.kept = append(cl.kept, a)
			if request := &cl.service.Request; request.Invalid == nil && !asksFor(cl.service, f) {
				break
			}
		}
	}
}

// reserve sees to it that nobody is given an address that the Service still
// shows, or is about to show, even if it is leaving it.
func (p *planner) reserve(cl *claim) {
	for _, held := range [][]netip.Addr{cl.held, cl.service.Ingress} {
		for _, a := range held {
			p.settleOn(a, cl.service)
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
	p.refuseStrangers(s, wanted)
	for _, conflict := range s.Request.Conflicts {
		p.add(s, ReasonRequestConflict, "%s", conflict)
	}

	chosen := make([]netip.Addr, 0, len(wanted))
	var missing []shortage
	served := 0
	p.move = move{}
	for _, f := range wanted {
		found, short := p.choose(cl, f)
		p.move.taking = append(p.move.taking, found...)
		missing = append(missing, short...)
		chosen = append(chosen, found...)
		if len(found) > 0 {
			served++
		}
	}
	if s.FamilyPolicy == view.RequireDualStack && served < len(wanted) {
		chosen = cl.kept
	}
	for _, a := range chosen {
		p.settleOn(a, s)
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

// choose finds the addresses of one family. What is assumed is not left before a status
// shows it: the write that gives it is on its way, and may land after the address was
// given to another Service.
func (p *planner) choose(cl *claim, f addr.Family) ([]netip.Addr, []shortage) {
	found, missing := p.prefer(cl, f)
	if !cl.assumed {
		return found, missing
	}
	kept := allOf(cl.kept, f)
	if slices.ContainsFunc(kept, func(a netip.Addr) bool { return !slices.Contains(found, a) }) {
		p.move.giving = nil
		return kept, missing
	}
	return found, missing
}

// prefer finds the addresses of one family that the Service is to have in the end. With a
// shortage, they include those that the Service keeps meanwhile: as long as one of several that it asks for cannot
// be had, all that it has beside them.
func (p *planner) prefer(cl *claim, f addr.Family) ([]netip.Addr, []shortage) {
	s := cl.service
	kept := allOf(cl.kept, f)
	if asksFor(s, f) {
		asked := allOf(s.Request.Addresses, f)
		p.move.giving = slices.DeleteFunc(slices.Clone(kept), func(a netip.Addr) bool { return slices.Contains(asked, a) })
		if found, missing := p.chooseAsked(s, asked, kept); len(missing) == 0 {
			return found, nil
		}
		p.move.giving = nil // it gives up nothing before it gets all
		found, missing := p.chooseAsked(s, asked, kept)
		for _, a := range kept {
			if !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
		return found, missing
	}
	p.move.giving = nil
	if len(kept) > 0 && !p.mustLeave(s, kept[0]) {
		return kept, nil
	}
	p.move.giving = kept
	if s.Request.ShareKey != "" {
		if a := p.together(s, f); a.IsValid() {
			return []netip.Addr{a}, nil
		}
	}
	if a := p.returning(s, f); a.IsValid() {
		return []netip.Addr{a}, nil
	}
	a, reason, message := p.lowestFree(s, f)
	if reason != "" {
		return kept, []shortage{{f, reason, message, false}}
	}
	return []netip.Addr{a}, nil
}

// chooseAsked finds those addresses of one family that are asked for by themselves.
func (p *planner) chooseAsked(s *view.Service, asked, kept []netip.Addr) (found []netip.Addr, missing []shortage) {
	before := len(p.move.taking)
	for _, a := range asked {
		if !slices.Contains(kept, a) {
			if reason, message := p.refusal(s, a); reason != "" {
				missing = append(missing, shortage{addr.FamilyOf(a), reason, message, true})
				continue
			}
			p.move.taking = append(p.move.taking, a)
		}
		found = append(found, a)
	}
	p.move.taking = p.move.taking[:before]
	return found, missing
}

func (p *planner) taken(a netip.Addr) bool {
	_, cooling := p.cooling[a]
	return cooling || p.occupied[a] != "" || p.tenants[a].first != nil
}

// mustLeave tells whether the Service asks for another pool than the one its
// address is from, or its pool has dropped the address and wants it to move.
// Otherwise an address that no pool holds any more may stay: the pool was
// edited, and nobody asked the Service to move.
func (p *planner) mustLeave(s *view.Service, held netip.Addr) bool {
	if former := p.stock.formerPool(held); former != nil && former.Renumber {
		return true
	}
	if len(s.Request.Pools) == 0 {
		return false
	}
	for _, name := range s.Request.Pools {
		if asked := p.stock.shelf(name); asked != nil && asked.pool.Contains(held) {
			return false
		}
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

// asksFor tells whether the Service asks for certain addresses of the family.
func asksFor(s *view.Service, f addr.Family) bool {
	return slices.ContainsFunc(s.Request.Addresses, func(a netip.Addr) bool { return addr.FamilyOf(a) == f })
}

// allOf are the addresses of the family, in their order.
func allOf(addrs []netip.Addr, f addr.Family) []netip.Addr {
	var own []netip.Addr
	for _, a := range addrs {
		if addr.FamilyOf(a) == f {
			own = append(own, a)
		}
	}
	return own
}
