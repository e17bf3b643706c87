package allocation

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sort"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// stock is all pools, ready to be asked who has an address and which is free.
type stock struct {
	shelves []*shelf // by name: the order in which pools give addresses
	spans   []span   // every range of every pool, by first address
}

// shelf is one pool and how far its ranges are known to be taken.
type shelf struct {
	pool *view.Pool
	age  int // place among all pools, the oldest first
	// rival is the oldest of the older pools that this one overlaps, and
	// overlap where: such a pool gives nothing, because the rival's
	// advertisements and settings hold for the shared addresses.
	rival   *view.Pool
	overlap netipx.IPRange
	// next has, for each range, an address below which none is free; the
	// zero Addr: the whole range is taken.
	next []netip.Addr
}

// span is one range of a pool. last is the greatest last address of this and
// all spans before it, so that a look-up knows when to stop going back.
type span struct {
	shelf *shelf
	r     netipx.IPRange
	last  netip.Addr
}

func newStock(pools map[string]*view.Pool) *stock {
	st := &stock{shelves: make([]*shelf, 0, len(pools))}
	cluster := view.Cluster{Pools: pools}
	for age, pool := range cluster.PoolsByAge() {
		sh := &shelf{pool: pool, age: age, next: make([]netip.Addr, len(pool.Ranges))}
		for i, r := range pool.Ranges {
			sh.next[i] = r.From()
			st.spans = append(st.spans, span{shelf: sh, r: r})
		}
		st.shelves = append(st.shelves, sh)
	}
	slices.SortFunc(st.shelves, func(a, b *shelf) int { return cmp.Compare(a.pool.Name, b.pool.Name) })
	slices.SortFunc(st.spans, func(a, b span) int {
		return cmp.Or(a.r.From().Compare(b.r.From()), cmp.Compare(a.shelf.age, b.shelf.age))
	})
	var last netip.Addr
	for i := range st.spans {
		if to := st.spans[i].r.To(); last.Less(to) {
			last = to
		}
		st.spans[i].last = last
	}
	st.findRivals()
	return st
}

// findRivals compares each span with those that begin inside it.
func (st *stock) findRivals() {
	for i, a := range st.spans {
		for _, b := range st.spans[i+1:] {
			if a.r.To().Less(b.r.From()) {
				break
			}
			if a.shelf == b.shelf {
				continue
			}
			older, younger := a.shelf, b.shelf
			if younger.age < older.age {
				older, younger = younger, older
			}
			if younger.rival != nil && st.shelf(younger.rival.Name).age <= older.age {
				continue
			}
			younger.rival = older.pool
			younger.overlap = netipx.IPRangeFrom(b.r.From(), minAddr(a.r.To(), b.r.To()))
		}
	}
}

// overlaps has a problem for each pool that claims addresses of an older one.
func (st *stock) overlaps() []problem.Problem {
	var problems []problem.Problem
	for _, sh := range st.shelves {
		if sh.rival == nil {
			continue
		}
		problems = append(problems, problem.New(sh.pool.Object(), ReasonPoolOverlap,
			"%s is in the older IPAddressPool %q too: this pool gives no addresses until the ranges are apart; addresses already given stay",
			rangeText(sh.overlap), sh.rival.Name))
	}
	return problems
}

// shelf finds a pool by name, nil for none.
func (st *stock) shelf(name string) *shelf {
	i, ok := slices.BinarySearchFunc(st.shelves, name, func(sh *shelf, name string) int {
		return cmp.Compare(sh.pool.Name, name)
	})
	if !ok {
		return nil
	}
	return st.shelves[i]
}

// poolOf is the oldest pool that holds the address, nil for none.
func (st *stock) poolOf(a netip.Addr) *view.Pool {
	var oldest *shelf
	i := sort.Search(len(st.spans), func(i int) bool { return a.Less(st.spans[i].r.From()) })
	for i--; i >= 0 && !st.spans[i].last.Less(a); i-- {
		s := st.spans[i]
		if s.r.Contains(a) && (oldest == nil || s.shelf.age < oldest.age) {
			oldest = s.shelf
		}
	}
	if oldest == nil {
		return nil
	}
	return oldest.pool
}

// offers tells whether a Service that asks for the named pools, or for none, may get
// the address without asking for it.
func (st *stock) offers(names []string, a netip.Addr) bool {
	if len(names) == 0 {
		pool := st.poolOf(a)
		return pool != nil && pool.AutoAssign && st.shelf(pool.Name).rival == nil
	}
	return slices.ContainsFunc(names, func(name string) bool {
		sh := st.shelf(name)
		return sh != nil && sh.rival == nil && sh.pool.Contains(a)
	})
}

// lowestFree finds the lowest free address of the family in the first of the named
// pools that has one, or with no names in the first pool, by name, that gives
// addresses by itself. A reason and a message say why there is none.
func (st *stock) lowestFree(names []string, f addr.Family, taken func(netip.Addr) bool) (free netip.Addr, reason, message string) {
	for _, name := range names {
		a, why, text := st.lowestFreeOf(name, f, taken)
		if why == "" {
			return a, "", ""
		}
		if reason == "" || reason == ReasonNoPool {
			reason, message = why, text // a pool of the other family explains nothing
		}
	}
	if len(names) > 0 {
		return netip.Addr{}, reason, message
	}
	var full []string
	for _, sh := range st.shelves {
		if !sh.pool.AutoAssign || sh.rival != nil || !sh.has(f) {
			continue
		}
		if a := sh.lowestFree(f, taken); a.IsValid() {
			return a, "", ""
		}
		full = append(full, sh.pool.Name)
	}
	if len(full) == 0 {
		return netip.Addr{}, ReasonNoPool, fmt.Sprintf("no IPAddressPool gives %s addresses without being asked: create one, or set autoAssign: true on one", f)
	}
	return netip.Addr{}, ReasonPoolExhausted, fmt.Sprintf("no %s address is free in IPAddressPool %s: add addresses to a pool, or create one", f, list(full))
}

func (st *stock) lowestFreeOf(name string, f addr.Family, taken func(netip.Addr) bool) (free netip.Addr, reason, message string) {
	sh := st.shelf(name)
	switch {
	case sh == nil:
		return netip.Addr{}, ReasonPoolNotFound, fmt.Sprintf("the requested IPAddressPool %q does not exist", name)
	case sh.rival != nil:
		return netip.Addr{}, ReasonPoolBlocked, fmt.Sprintf("the requested IPAddressPool %q gives no addresses while it overlaps pool %q", name, sh.rival.Name)
	case !sh.has(f):
		return netip.Addr{}, ReasonNoPool, fmt.Sprintf("the requested IPAddressPool %q has no %s addresses", name, f)
	}
	if a := sh.lowestFree(f, taken); a.IsValid() {
		return a, "", ""
	}
	return netip.Addr{}, ReasonPoolExhausted, fmt.Sprintf("no %s address is free in the requested IPAddressPool %q", f, name)
}

func (sh *shelf) has(f addr.Family) bool {
	return slices.ContainsFunc(sh.pool.Ranges, func(r netipx.IPRange) bool { return addr.FamilyOf(r.From()) == f })
}

// lowestFree goes on from where the last call stopped: addresses are taken
// during a plan, and never freed. So a whole plan steps over each used address once.
func (sh *shelf) lowestFree(f addr.Family, taken func(netip.Addr) bool) netip.Addr {
	for i, r := range sh.pool.Ranges {
		if addr.FamilyOf(r.From()) != f {
			continue
		}
		a := sh.next[i]
		for a.IsValid() && (taken(a) || sh.pool.AvoidBuggyIPs && buggy(a)) {
			if a == r.To() {
				a = netip.Addr{}
				break
			}
			a = a.Next()
		}
		sh.next[i] = a
		if a.IsValid() {
			return a
		}
	}
	return netip.Addr{}
}

// buggy tells whether old equipment takes the address for that of a network or
// a broadcast: IPv4 ending in .0 or .255.
func buggy(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	last := a.As4()[3]
	return last == 0 || last == 255
}

func minAddr(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}

func rangeText(r netipx.IPRange) string {
	if r.From() == r.To() {
		return r.From().String()
	}
	return r.String()
}
