package allocation

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons of the problems that Plan finds. On a Service, and most of them on an
// IPReservation, too:
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
	// want is requested. Where there is no other request, the Service gets nothing new.
	ReasonRequestFamily = "RequestFamily"
	// ReasonRequestConflict: annotations of one meaning, or an annotation and
	// spec.loadBalancerIP, say different things. One of them is followed.
	ReasonRequestConflict = "RequestConflict"
	// ReasonAddressDuplicate: the Service held an address that an older Service
	// holds as well and does not share with it, and had to give it up.
	ReasonAddressDuplicate = "AddressDuplicate"
	// ReasonSharingNotAgreed: the Service shares an address with Services of another namespace, to
	// which both have not agreed.
	ReasonSharingNotAgreed = "SharingNotAgreed"
	// ReasonFamilyMissing: a Service with ipFamilyPolicy PreferDualStack has an
	// address of one family only. It has all that it insists on.
	ReasonFamilyMissing = "FamilyMissing"
	// ReasonOutsidePools: no pool holds the Service's address any more. The
	// Service keeps it.
	ReasonOutsidePools = "OutsidePools"
	// ReasonAddressDropped: an edit has taken the Service's address out of its pool.
	// The Service keeps it, with onPoolChange Renumber until there is another.
	ReasonAddressDropped = "AddressDropped"
	// ReasonAddressAvoided: the pool avoids the Service's address by now (avoidBuggyIPs).
	// The Service keeps it.
	ReasonAddressAvoided = "AddressAvoided"
	// ReasonReservationNotFound: the IPReservation that the Service asks for does not
	// exist in its namespace.
	ReasonReservationNotFound = "ReservationNotFound"
	// ReasonReservationExhausted: the IPReservation that the Service asks for has no
	// address for it: it holds none of the family, or other Services have them.
	ReasonReservationExhausted = "ReservationExhausted"
	// ReasonRequestOutsideReservation: the requested address is not held by the
	// IPReservation that is requested as well.
	ReasonRequestOutsideReservation = "RequestOutsideReservation"
	// ReasonAddressRefused: the status had an address that no Service can have, or one of no pool that the
	// cluster itself uses.
	ReasonAddressRefused = "AddressRefused"
	// ReasonAddressInUse: the cluster itself uses the Service's address by now, or another Service lists it in
	// spec.externalIPs. The Service keeps it.
	ReasonAddressInUse = "AddressInUse"
)

// ReasonUsedAddressesDropped is on a pool: an edit has taken addresses out of it that
// Services have and keep. The pool is in use all the same.
const ReasonUsedAddressesDropped = "UsedAddressesDropped"

// ReasonPoolOverlap is on a pool: it claims addresses of an older pool, and
// gives none until that is resolved.
const ReasonPoolOverlap = "PoolOverlap"

// refuseStrangers reports the requested addresses that can never be given, and tells whether
// these are all that are requested.
func (p *planner) refuseStrangers(req *request, wanted []addr.Family) (all bool) {
	asked := req.service.Request.Addresses
	if len(asked) == 0 {
		return false
	}
	all = !slices.ContainsFunc(wanted, func(f addr.Family) bool { return asksFor(req.service, f) })
	meanwhile := ""
	switch {
	case all && len(req.kept) > 0:
		meanwhile = "; the Service keeps " + join(req.kept) + " meanwhile"
	case all:
		meanwhile = "; the Service gets no other address in its place"
	}
	for _, a := range asked {
		if f := addr.FamilyOf(a); !slices.Contains(wanted, f) {
			p.add(req, ReasonRequestFamily, "%s is requested, but spec.ipFamilies has no %s: add the family or take the address out of the request%s", a, f, meanwhile)
		}
	}
	return all
}

// refusal says why the owner cannot have the address that it asks for; an
// empty reason means that it can.
func (p *planner) refusal(o owner, a netip.Addr) (reason, message string) {
	if holder, why := p.obstacle(a, o); holder != "" {
		return ReasonRequestTaken, fmt.Sprintf("the requested address %s is held by %s (%s)", a, holder, why)
	}
	if use, used := p.useOf(a); used && use.Kind != view.UsedExternalIP {
		return ReasonRequestUnusable, fmt.Sprintf("the requested address %s is %s: request another one", a, use)
	}
	if s := o.service; s != nil {
		if len(s.Request.Reservations) > 0 && !p.offeredTo(s, a) {
			return ReasonRequestOutsideReservation, fmt.Sprintf("the requested address %s is not held by the requested IPReservation %s: correct one of the two", a, list(s.Request.Reservations))
		}
		if p.reservedBy(a, s.Namespace, nil) {
			return p.refusedReserved(s, a)
		}
	}
	if former, cooling := p.Cooling[a]; cooling && former != o.ref() && (o.service != nil || former.Namespace != o.ref().Namespace) {
		return ReasonAddressCooling, fmt.Sprintf("the requested address %s is kept back for %s, which left it, until it has cooled down", a, former)
	}
	pool := p.free.poolOf(a)
	if len(o.pools()) > 0 {
		asked, reason, message := p.askedPoolOf(o, a)
		if asked == nil {
			return reason, message
		}
		pool = asked
	}
	if pool == nil {
		return ReasonRequestOutsidePools, fmt.Sprintf("the requested address %s is in no IPAddressPool: add it to a pool, or request another address", a)
	}
	if reason, message := p.closedFor(p.free.pool(pool.Name), o, a); reason != "" {
		return reason, fmt.Sprintf("the requested address %s cannot be given: %s", a, message)
	}
	if pool.Avoids(a) {
		return ReasonRequestUnusable, fmt.Sprintf("the requested address %s is one that IPAddressPool %q avoids (avoidBuggyIPs: true)", a, pool.Name)
	}
	return "", ""
}

// askedPoolOf is the first of the pools that are asked for that holds the
// address, or nil and why there is none.
func (p *planner) askedPoolOf(o owner, a netip.Addr) (pool *view.Pool, reason, message string) {
	for _, name := range o.pools() {
		switch asked := p.free.pool(name); {
		case asked == nil:
			reason, message = ReasonPoolNotFound, fmt.Sprintf("the requested IPAddressPool %q does not exist", name)
		case asked.pool.Contains(a):
			return asked.pool, "", ""
		}
	}
	if reason == "" {
		reason, message = ReasonRequestOutsidePools, fmt.Sprintf("the requested address %s is not in the requested IPAddressPool %s", a, list(o.pools()))
	}
	return nil, reason, message
}

// report turns what went wrong for one Service into problems.
func (p *planner) report(req *request, chosen []netip.Addr, missing []shortage) {
	s := req.service
	for _, m := range missing {
		kept := slices.DeleteFunc(allOf(req.kept, m.family), func(a netip.Addr) bool { return !slices.Contains(chosen, a) })
		switch {
		case len(kept) > 0:
			p.add(s, m.reason, "%s; the Service keeps %s meanwhile", m.message, join(kept))
		case s.FamilyPolicy == view.PreferDualStack && len(chosen) > 0 && !m.pinned:
			p.advise(s, ReasonFamilyMissing, "no %s address: %s", m.family, m.message)
		case s.FamilyPolicy == view.RequireDualStack && len(missing) == 1 && len(chosen) == 0:
			p.add(s, m.reason, "%s; ipFamilyPolicy RequireDualStack wants both families or none", m.message)
		default:
			p.add(s, m.reason, "%s", m.message)
		}
	}
	p.tellLost(req, chosen)
	p.tellOutside(req.owner, chosen)
	p.tellUnagreed(req, chosen)
}

// tellLost has a problem for each address that the status has and the owner cannot keep.
func (p *planner) tellLost(req *request, chosen []netip.Addr) {
	this := req.Object().Kind
	for _, l := range req.lost {
		if l.to == "" {
			p.advise(req, ReasonAddressRefused, "the status has %s, which %s; it is not kept", l.addr, l.why)
			continue
		}
		what := "lost it"
		if instead := allOf(chosen, addr.FamilyOf(l.addr)); len(instead) > 0 {
			what = "has " + join(instead) + " instead"
		}
		by := l.to
		if strings.HasPrefix(by, this+" "+req.ref().Namespace+"/") {
			by = "the older " + by // of two of a kind that is what decides
		}
		p.advise(req, ReasonAddressDuplicate, "%s is held by %s as well (%s); this %s %s", l.addr, by, l.why, this, what)
	}
}

// tellOutside has a problem for each address that is held and that no pool has any more, or
// would give any more to anybody.
func (p *planner) tellOutside(o owner, chosen []netip.Addr) {
	for _, a := range chosen {
		p.tellUsed(o, a)
		if former := p.free.formerPool(a); former != nil {
			if !former.Renumber {
				p.dropped[former.Name] = append(p.dropped[former.Name], holding{a, o.String()})
			}
			p.advise(o, ReasonAddressDropped, "IPAddressPool %q has %s no more; the %s keeps it, and it stays announced: add it back, or ask for another", former.Name, a, o.Object().Kind)
			continue
		}
		pool := p.free.poolOf(a)
		if pool != nil && pool.Avoids(a) {
			p.advise(o, ReasonAddressAvoided, "IPAddressPool %q avoids %s by now (avoidBuggyIPs: true); the %s keeps it: have it ask for another, if clients cannot reach it", pool.Name, a, o.Object().Kind)
		}
		if pool == nil {
			p.advise(o, ReasonOutsidePools, "no IPAddressPool holds %s any more, so no advertisement covers it: add it to a pool, or have the %s ask for another", a, o.Object().Kind)
		}
	}
}

// tellUsed has a problem for an address of a pool that the cluster itself uses, too.
func (p *planner) tellUsed(o owner, a netip.Addr) {
	use, used := p.free.used.Use(a)
	switch listed := use.Kind == view.UsedExternalIP; {
	case !used || listed && use.Of == o.ref():
	case listed:
		p.advise(o, ReasonAddressInUse, "%s is %s, too, which gets nothing on the ports that both have: have one of the two take another", a, use)
	default:
		p.advise(o, ReasonAddressInUse, "%s is %s; the %s keeps it: have it ask for another", a, use, o.Object().Kind)
	}
}

func (p *planner) add(to interface{ Object() problem.Object }, reason, format string, args ...any) {
	p.problems = append(p.problems, problem.New(to.Object(), reason, format, args...))
}

func (p *planner) advise(to interface{ Object() problem.Object }, reason, format string, args ...any) {
	p.problems = append(p.problems, problem.Advice(to.Object(), reason, format, args...))
}

// join writes addresses for people.
func join(addrs []netip.Addr) string { return strings.Join(addr.Texts(addrs), ", ") }

// list writes pool names for people.
func list(names []string) string {
	quoted := make([]string, 0, len(names))
	for _, n := range names {
		quoted = append(quoted, strconv.Quote(n))
	}
	return problem.List(quoted, ", ")
}
