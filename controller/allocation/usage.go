package allocation

import (
	"encoding/binary"
	"math"
	"net/netip"
	"strings"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Usage counts the addresses of one pool, by family. Counts that are too large
// for an int64 stay at the greatest one.
type Usage struct {
	AssignedIPv4, AssignedIPv6   int64
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

// Count tells how the pools are used, by name, when the given assignments are
// in place; Services that have none hold what is in their status. An address that
// several share counts once, one in two pools for the older one, and a pool that gives nothing because it
// overlaps an older one or is disabled has nothing available. What is cooling down, or used by the cluster
// itself, is not available either.
func Count(c *view.Cluster, assigned map[view.Ref]Assignment) map[string]Usage {
	st := newStock(c.Pools)
	usage := make(map[string]Usage, len(c.Pools))
	for _, sh := range st.shelves {
		var u Usage
		u.TotalIPv4, u.TotalIPv6 = capacity(sh.pool)
		switch {
		case sh.rival != nil:
			u.lacks(sh.pool, ReasonPoolOverlap, "the pool gives no addresses while it overlaps pool %q", sh.rival.Name)
		case sh.pool.Disabled:
			u.lacks(sh.pool, ReasonPoolDisabled, "the pool gives no new addresses: spec.disabled is true")
		default:
			u.AvailableIPv4, u.AvailableIPv6 = u.TotalIPv4, u.TotalIPv6
		}
		usage[sh.pool.Name] = u
	}
	counted := make(map[netip.Addr]struct{}, len(c.Services))
	for ref, s := range c.Services {
		held := s.Ingress
		if a, ok := assigned[ref]; ok {
			held = a.Addresses
		}
		for _, a := range held {
			if _, again := counted[a]; again {
				continue
			}
			counted[a] = struct{}{}
			if pool := st.poolOf(a); pool != nil {
				u := usage[pool.Name]
				u.use(a, !pool.AvoidBuggyIPs || !buggy(a))
				usage[pool.Name] = u
			}
		}
	}
	idle := st.occupied(c)
	for a, ref := range c.Cooling {
		idle[a] = "left by " + ref.String()
	}
	for a := range idle {
		if _, again := counted[a]; again {
			continue
		}
		if pool := st.poolOf(a); pool != nil && (!pool.AvoidBuggyIPs || !buggy(a)) {
			u := usage[pool.Name]
			u.take(a)
			usage[pool.Name] = u
		}
	}
	for _, sh := range st.shelves {
		u := usage[sh.pool.Name]
		u.judge(sh.pool)
		usage[sh.pool.Name] = u
	}
	return usage
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

// take counts an address as not available.
func (u *Usage) take(a netip.Addr) {
	available := &u.AvailableIPv6
	if a.Is4() {
		available = &u.AvailableIPv4
	}
	if *available > 0 && *available < math.MaxInt64 {
		*available--
	}
}

// capacity counts the addresses that the pool can give.
func capacity(p *view.Pool) (v4, v6 int64) {
	for _, r := range p.Ranges {
		size := rangeSize(r.From(), r.To())
		if !r.From().Is4() {
			v6 = saturatingAdd(v6, size)
			continue
		}
		if p.AvoidBuggyIPs {
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
