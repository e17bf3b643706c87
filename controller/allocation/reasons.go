package allocation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons of the problems that Plan finds. On a Service:
const (
	// ReasonPoolExhausted: every pool that the Service may use is full.
	ReasonPoolExhausted = "PoolExhausted"
	// ReasonNoPool: no pool that the Service may use has addresses of the family.
	ReasonNoPool = "NoPool"
	// ReasonPoolNotFound: the pool that the Service asks for does not exist.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonPoolBlocked: the pool that the Service asks for overlaps an older
	// pool, and gives no addresses until that is resolved.
	ReasonPoolBlocked = "PoolBlocked"
	// ReasonPoolDisabled: the pool that the Service asks for gives no new addresses.
	ReasonPoolDisabled = "PoolDisabled"
	// ReasonPoolNotAllowed: the pool that the Service asks for is for other Services.
	ReasonPoolNotAllowed = "PoolNotAllowed"
	// ReasonQuotaExceeded: the namespace has as many addresses of the pool as it may.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonRequestOutsidePools: the requested address is in no pool, or not in
	// the pool that is requested as well.
	ReasonRequestOutsidePools = "RequestOutsidePools"
	// ReasonRequestTaken: another Service holds the requested address.
	ReasonRequestTaken = "RequestTaken"
	// ReasonRequestUnusable: the pool of the requested address avoids it
	// (avoidBuggyIPs), or the cluster itself uses it.
	ReasonRequestUnusable = "RequestUnusable"
	// ReasonAddressCooling: another Service left the requested address a short time ago.
	ReasonAddressCooling = "AddressCooling"
	// ReasonRequestFamily: an address of a family that the Service does not
	// want is requested.
	ReasonRequestFamily = "RequestFamily"
	// ReasonRequestConflict: annotations of one meaning, or an annotation and
	// spec.loadBalancerIP, say different things. One of them is followed.
	ReasonRequestConflict = "RequestConflict"
	// ReasonAddressDuplicate: the Service held an address that an older Service
	// holds as well and does not share with it, and had to give it up.
	ReasonAddressDuplicate = "AddressDuplicate"
	// ReasonFamilyMissing: a Service with ipFamilyPolicy PreferDualStack has an
	// address of one family only. It has all that it insists on.
	ReasonFamilyMissing = "FamilyMissing"
	// ReasonOutsidePools: no pool holds the Service's address any more. The
	// Service keeps it.
	ReasonOutsidePools = "OutsidePools"
	// ReasonAddressDropped: an edit has taken the Service's address out of its pool.
	// The Service keeps it, with onPoolChange Renumber until there is another.
	ReasonAddressDropped = "AddressDropped"
	// ReasonAddressRefused: the status had an address that no Service can have.
	ReasonAddressRefused = "AddressRefused"
)

// ReasonUsedAddressesDropped is on a pool: an edit has taken addresses out of it that
// Services have and keep. The pool is in use all the same.
const ReasonUsedAddressesDropped = "UsedAddressesDropped"

// ReasonPoolOverlap is on a pool: it claims addresses of an older pool, and
// gives none until that is resolved.
const ReasonPoolOverlap = "PoolOverlap"

// Advisory tells whether a Service with a problem of this reason nevertheless has
// everything that it insists on, or a pool is in use.
func Advisory(reason string) bool {
	switch reason {
	case ReasonFamilyMissing, ReasonOutsidePools, ReasonAddressDuplicate, ReasonRequestConflict,
		ReasonAddressDropped, ReasonAddressRefused, ReasonUsedAddressesDropped:
		return true
	default:
		return false
	}
}

// refuseStrangers reports the requested addresses that can never be given.
func (p *planner) refuseStrangers(s *view.Service, wanted []addr.Family) {
	for _, a := range s.Request.Addresses {
		if f := addr.FamilyOf(a); !slices.Contains(wanted, f) {
			p.add(s, ReasonRequestFamily, "%s is requested, but spec.ipFamilies has no %s: add the family or take the address out of the request", a, f)
		}
	}
}

// refusal says why the Service cannot have the address that it asks for; an
// empty reason means that it can.
func (p *planner) refusal(s *view.Service, a netip.Addr) (reason, message string) {
	if other, why := p.obstacle(a, s); other != nil {
		return ReasonRequestTaken, fmt.Sprintf("the requested address %s is held by Service %s (%s)", a, other.Ref, why)
	}
	if former, cooling := p.cooling[a]; cooling && former != s.Ref {
		return ReasonAddressCooling, fmt.Sprintf("the requested address %s is kept back for Service %s, which left it, until it has cooled down", a, former)
	}
	if what := p.occupied[a]; what != "" {
		return ReasonRequestUnusable, fmt.Sprintf("the requested address %s is %s", a, what)
	}
	pool := p.stock.poolOf(a)
	if len(s.Request.Pools) > 0 {
		asked, reason, message := p.askedPoolOf(s, a)
		if asked == nil {
			return reason, message
		}
		pool = asked
	}
	if pool == nil {
		return ReasonRequestOutsidePools, fmt.Sprintf("the requested address %s is in no IPAddressPool: add it to a pool, or request another address", a)
	}
	if reason, message := p.closedFor(p.stock.shelf(pool.Name), s, a); reason != "" {
		return reason, fmt.Sprintf("the requested address %s cannot be given: %s", a, message)
	}
	if pool.AvoidBuggyIPs && buggy(a) {
		return ReasonRequestUnusable, fmt.Sprintf("the requested address %s is one that IPAddressPool %q avoids (avoidBuggyIPs: true)", a, pool.Name)
	}
	return "", ""
}

// askedPoolOf is the first of the pools that the Service asks for that holds the
// address, or nil and why there is none.
func (p *planner) askedPoolOf(s *view.Service, a netip.Addr) (pool *view.Pool, reason, message string) {
	for _, name := range s.Request.Pools {
		switch asked := p.stock.shelf(name); {
		case asked == nil:
			reason, message = ReasonPoolNotFound, fmt.Sprintf("the requested IPAddressPool %q does not exist", name)
		case asked.pool.Contains(a):
			return asked.pool, "", ""
		}
	}
	if reason == "" {
		reason, message = ReasonRequestOutsidePools, fmt.Sprintf("the requested address %s is not in the requested IPAddressPool %s", a, list(s.Request.Pools))
	}
	return nil, reason, message
}

// report turns what went wrong for one Service into problems.
func (p *planner) report(cl *claim, chosen []netip.Addr, missing []shortage) {
	s := cl.service
	for _, m := range missing {
		kept := slices.DeleteFunc(allOf(cl.kept, m.family), func(a netip.Addr) bool { return !slices.Contains(chosen, a) })
		switch {
		case len(kept) > 0:
			p.add(s, m.reason, "%s; the Service keeps %s meanwhile", m.message, join(kept))
		case s.FamilyPolicy == view.PreferDualStack && len(chosen) > 0 && !m.pinned:
			p.add(s, ReasonFamilyMissing, "no %s address: %s", m.family, m.message)
		case s.FamilyPolicy == view.RequireDualStack && len(missing) == 1 && len(chosen) == 0:
			p.add(s, m.reason, "%s; ipFamilyPolicy RequireDualStack wants both families or none", m.message)
		default:
			p.add(s, m.reason, "%s", m.message)
		}
	}
	for _, l := range cl.lost {
		if l.older == nil {
			p.add(s, ReasonAddressRefused, "the status has %s, which no Service can have; it is not kept", l.addr)
			continue
		}
		if instead := allOf(chosen, addr.FamilyOf(l.addr)); len(instead) > 0 {
			p.add(s, ReasonAddressDuplicate, "%s is held by the older Service %s as well (%s); this Service has %s instead", l.addr, l.older.Ref, l.why, join(instead))
		} else {
			p.add(s, ReasonAddressDuplicate, "%s is held by the older Service %s as well (%s); this Service lost it", l.addr, l.older.Ref, l.why)
		}
	}
	for _, a := range chosen {
		if former := p.stock.formerPool(a); former != nil {
			if !former.Renumber {
				p.dropped[former.Name] = append(p.dropped[former.Name], holding{a, s.Ref})
			}
			p.add(s, ReasonAddressDropped, "IPAddressPool %q has %s no more; the Service keeps it, and it stays announced: add it back, or ask for another", former.Name, a)
			continue
		}
		if p.stock.poolOf(a) == nil {
			p.add(s, ReasonOutsidePools, "no IPAddressPool holds %s any more, so no advertisement covers it: add it to a pool, or delete the Service", a)
		}
	}
}

func (p *planner) add(s *view.Service, reason, format string, args ...any) {
	p.problems = append(p.problems, problem.New(s.Object(), reason, format, args...))
}

// join writes addresses for people.
func join(addrs []netip.Addr) string {
	texts := make([]string, 0, len(addrs))
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// list writes pool names for people: quoted, and not more of them than one
// would read.
func list(names []string) string {
	const most = 8
	quoted := make([]string, 0, min(len(names), most))
	for _, n := range names[:min(len(names), most)] {
		quoted = append(quoted, fmt.Sprintf("%q", n))
	}
	text := strings.Join(quoted, ", ")
	if more := len(names) - most; more > 0 {
		text = fmt.Sprintf("%s and %d more", text, more)
	}
	return text
}
