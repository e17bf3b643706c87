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

// Usage counts the addresses of one pool, by family.
type Usage struct {
	IPv4, IPv6 Counts
	// Lack is why the pool can give no address of one of its families; nil when it can.
	Lack *problem.Problem
}

// Counts are those of one family. One that is too large for an int64 stays at the greatest.
type Counts struct {
	Assigned  int64
	Reserved  int64 // those of the assigned that reservations hold
	Available int64 // what the pool could still give
	Total     int64 // what it could give were none assigned
}

// of are the counts of a family.
func (u *Usage) of(f addr.Family) *Counts {
	if f == addr.IPv4 {
		return &u.IPv4
	}
	return &u.IPv6
}

// judge sets Lack of an open pool by the counts.
func (u *Usage) judge(p *view.Pool) {
	var empty []string
	for _, f := range addr.Families() {
		if n := u.of(f); n.Total > 0 && n.Available == 0 {
			empty = append(empty, f.String())
		}
	}
	switch {
	case u.Lack != nil:
	case u.IPv4.Total == 0 && u.IPv6.Total == 0:
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
	switch {
	case fp.rival != nil:
		u.lacks(fp.pool, ReasonPoolOverlap, "the pool gives no addresses while it overlaps pool %q", fp.rival.Name)
	case fp.pool.Disabled:
		u.lacks(fp.pool, ReasonPoolDisabled, "the pool gives no new addresses: spec.disabled is true")
	}
	settled := sc.settled.tallies[fp.pool.Name]
	for _, f := range addr.Families() {
		n := u.of(f)
		n.Total, n.Assigned = fp.capacity(f), settled.assigned[f]
		if u.Lack == nil {
			n.Available = less(n.Total, settled.taken[f]+sc.free.lost[quantity{fp.pool.Name, f}])
		}
	}
	return u
}

// counting counts each address once.
type counting struct {
	*scene
	usage   map[string]*Usage
	counted map[netip.Addr]struct{}
}

// of are the counts that the address is among, and its pool; nil for one of no pool.
func (n *counting) of(a netip.Addr) (*Counts, *freePool) {
	pool := n.free.countsFor(a)
	if pool == nil {
		return nil, nil
	}
	return n.usage[pool.Name].of(addr.FamilyOf(a)), n.free.pool(pool.Name)
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
		u.Reserved++
	}
	if n.settled.has(a) {
		return
	}
	u.Assigned++
	if fp.gives(a) && !n.used(a) {
		u.Available = less(u.Available, 1)
	}
}

// idle counts an address that is not held and cannot be given.
func (n *counting) idle(a netip.Addr) {
	if n.settled.has(a) || n.used(a) || !n.first(a) {
		return
	}
	if u, fp := n.of(a); u != nil && fp.gives(a) {
		u.Available = less(u.Available, 1)
	}
}

// used reports whether the cluster itself uses the address, which opening counts. No settled Service has such a one.
func (sc *scene) used(a netip.Addr) bool {
	_, used := sc.free.used.Addresses[a]
	return used
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

// less is how many are left of a count when some are taken; too many stay too many.
func less(count, taken int64) int64 {
	if count == math.MaxInt64 {
		return count
	}
	return max(count-taken, 0)
}

// capacity counts the addresses of a family that the pool can give.
func (fp *freePool) capacity(f addr.Family) int64 {
	var n int64
	for _, r := range fp.ranges {
		if addr.FamilyOf(r.From()) != f {
			continue
		}
		given := addr.Size(r)
		if f == addr.IPv4 && fp.pool.AvoidBuggyIPs {
			from := r.From().As4()
			first := int64(binary.BigEndian.Uint32(from[:]))
			given -= buggyBelow(first+given) - buggyBelow(first)
		}
		if n > math.MaxInt64-given {
			return math.MaxInt64
		}
		n += given
	}
	return n
}

// buggyBelow counts the IPv4 addresses ending in .0 or .255 below n, the
// address as a number.
func buggyBelow(n int64) int64 { return n/256*2 + min(n%256, 1) }
