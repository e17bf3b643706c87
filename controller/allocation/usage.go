package allocation

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Usage counts the addresses of one pool, by family. Counts that are too large
// for an int64 stay at the greatest one.
type Usage struct {
	AssignedIPv4, AssignedIPv6   int64
	ReservedIPv4, ReservedIPv6   int64 // those of the assigned that reservations hold
	AvailableIPv4, AvailableIPv6 int64 // what the pool could still give
	TotalIPv4, TotalIPv6         int64 // what it could give were none assigned
	// Lack is why the pool can give no address of one of its families; nil when it can.
	Lack *problem.Problem
}

// judge sets Lack of an open pool by the counts.
func (u *Usage) judge(p *view.Pool) {
	var empty []string
	for _, f := range []struct {
		name             string
		available, total int64
	}{{"IPv4", u.AvailableIPv4, u.TotalIPv4}, {"IPv6", u.AvailableIPv6, u.TotalIPv6}} {
		if f.total > 0 && f.available == 0 {
			empty = append(empty, f.name)
		}
	}
	switch {
	case u.Lack != nil:
	case u.TotalIPv4 == 0 && u.TotalIPv6 == 0:
		u.lacks(p, ReasonPoolExhausted, "the pool has no addresses to give: look at spec.addresses")
	case len(empty) > 0:
		u.lacks(p, ReasonPoolExhausted, "no %s address is free: add addresses", strings.Join(empty, " and no "))
	}
}

func (u *Usage) lacks(p *view.Pool, reason, format string, args ...any) {
	lack := problem.New(p.Object(), reason, format, args...)
	u.Lack = &lack
}

func (sc *scene) count(assigned Assignments) map[string]Usage {
	n := &counting{scene: sc, usage: make(map[string]*Usage, len(sc.Pools)), counted: make(map[netip.Addr]struct{}, len(sc.active))}
	for _, fp := range sc.free.pools {
		n.usage[fp.pool.Name] = sc.opening(fp)
	}
	for ref, r := range sc.Reservations {
		for _, a := range holdsNow(r.Held, assigned.Reservations, ref) {
			n.hold(a, true)
		}
	}
	for ref, s := range sc.active {
		for _, a := range holdsNow(s.Ingress, assigned.Services, ref) {
			n.hold(a, false)
		}
	}
	for a := range sc.occupied {
		n.idle(a)
	}
	for a := range sc.Cooling {
		n.idle(a)
	}
	usage := make(map[string]Usage, len(n.usage))
	for _, fp := range sc.free.pools {
		u := n.usage[fp.pool.Name]
		u.judge(fp.pool)
		usage[fp.pool.Name] = *u
	}
	return usage
}

// opening is the usage of one pool by the settled Services alone.
func (sc *scene) opening(fp *freePool) *Usage {
	u := &Usage{}
	u.TotalIPv4, u.TotalIPv6 = capacity(fp)
	switch {
	case fp.rival != nil:
		u.lacks(fp.pool, ReasonPoolOverlap, "the pool gives no addresses while it overlaps pool %q", fp.rival.Name)
	case fp.pool.Disabled:
		u.lacks(fp.pool, ReasonPoolDisabled, "the pool gives no new addresses: spec.disabled is true")
	default:
		u.AvailableIPv4, u.AvailableIPv6 = u.TotalIPv4, u.TotalIPv6
	}
	t := sc.settled.tallies[fp.pool.Name]
	u.AssignedIPv4, u.AssignedIPv6 = t.assigned[addr.IPv4], t.assigned[addr.IPv6]
	u.AvailableIPv4 = less(u.AvailableIPv4, t.taken[addr.IPv4])
	u.AvailableIPv6 = less(u.AvailableIPv6, t.taken[addr.IPv6])
	return u
}

// counting counts each address once.
type counting struct {
	*scene
	usage   map[string]*Usage
	counted map[netip.Addr]struct{}
}

// of is the usage that the address counts for, and its pool; nil for one of no pool.
func (n *counting) of(a netip.Addr) (*Usage, *freePool) {
	pool := n.free.countsFor(a)
	if pool == nil {
		return nil, nil
	}
	return n.usage[pool.Name], n.free.pool(pool.Name)
}

// first reports whether the address was not counted before.
func (n *counting) first(a netip.Addr) bool {
	_, again := n.counted[a]
	n.counted[a] = struct{}{}
	return !again
}

// hold counts an address that is held.
func (n *counting) hold(a netip.Addr, reserved bool) {
	if !n.first(a) {
		return
	}
	u, fp := n.of(a)
	if u == nil {
		return
	}
	if reserved {
		u.book(a)
	}
	if !n.settled.has(a) {
		u.use(a, fp.gives(a))
	}
}

// idle counts an address that is not held and cannot be given.
func (n *counting) idle(a netip.Addr) {
	if n.settled.has(a) || !n.first(a) {
		return
	}
	if u, fp := n.of(a); u != nil && fp.gives(a) {
		u.take(a)
	}
}

func (sc *scene) users(assigned Assignments) map[netip.Addr][]view.Ref {
	users := map[netip.Addr][]view.Ref{}
	for ref, r := range sc.Reservations {
		for _, a := range holdsNow(r.Held, assigned.Reservations, ref) {
			users[a] = nil
			if s := sc.settled.on[a]; s != nil {
				users[a] = []view.Ref{s.Ref}
			}
		}
	}
	if len(users) == 0 {
		return users
	}
	for ref, s := range sc.active {
		for _, a := range holdsNow(s.Ingress, assigned.Services, ref) {
			if _, reserved := users[a]; reserved {
				users[a] = append(users[a], ref)
			}
		}
	}
	for _, refs := range users {
		slices.SortFunc(refs, view.Ref.Compare)
	}
	return users
}

// holdsNow is what was decided, or if nothing was, what is shown.
func holdsNow(shown []netip.Addr, assigned map[view.Ref]Assignment, ref view.Ref) []netip.Addr {
	if a, ok := assigned[ref]; ok {
		return a.Addresses
	}
	return shown
}

// use counts an assigned address; counted: it was among the available ones.
func (u *Usage) use(a netip.Addr, counted bool) {
	if a.Is4() {
		u.AssignedIPv4++
	} else {
		u.AssignedIPv6++
	}
	if counted {
		u.take(a)
	}
}

// book counts an address as reserved.
func (u *Usage) book(a netip.Addr) {
	if a.Is4() {
		u.ReservedIPv4++
	} else {
		u.ReservedIPv6++
	}
}

// take counts an address as not available.
func (u *Usage) take(a netip.Addr) {
	if a.Is4() {
		u.AvailableIPv4 = less(u.AvailableIPv4, 1)
	} else {
		u.AvailableIPv6 = less(u.AvailableIPv6, 1)
	}
}

// less is how many are left of a count when some are taken; too many stay too many.
func less(count, taken int64) int64 {
	if count == math.MaxInt64 {
		return count
	}
	return max(count-taken, 0)
}

// capacity counts the addresses that the pool can give.
func capacity(fp *freePool) (v4, v6 int64) {
	for _, r := range fp.ranges {
		size := rangeSize(r.From(), r.To())
		if !r.From().Is4() {
			v6 = saturatingAdd(v6, size)
			continue
		}
		if fp.pool.AvoidBuggyIPs {
			size -= buggyBelow(lowBits(r.To())+1) - buggyBelow(lowBits(r.From()))
		}
		v4 = saturatingAdd(v4, size)
	}
	return v4, v6
}

// rangeSize is how many addresses there are from first to last.
func rangeSize(first, last netip.Addr) int64 {
	a, b := first.As16(), last.As16()
	high := binary.BigEndian.Uint64(b[:8]) - binary.BigEndian.Uint64(a[:8])
	low := lowBits(last) - lowBits(first)
	if lowBits(last) < lowBits(first) {
		high--
	}
	if high > 0 || low >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low) + 1
}

// buggyBelow counts the IPv4 addresses ending in .0 or .255 below n, the
// address as a number.
func buggyBelow(n uint64) int64 {
	count := int64(n/256) * 2
	if n%256 > 0 {
		count++
	}
	return count
}

// lowBits is the address as a number for IPv4, its lower half for IPv6.
func lowBits(a netip.Addr) uint64 {
	b := a.As16()
	low := binary.BigEndian.Uint64(b[8:])
	if a.Is4() {
		low &= math.MaxUint32 // As16 maps IPv4 into ::ffff:0:0/96
	}
	return low
}

func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
