package allocation

import (
	"cmp"
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
	shelves []*shelf // in the order in which pools give addresses
	byName  map[string]*shelf
	spans   []span // every range of every pool, by first address
	quotas  bool   // some pool has one
	edited  bool   // some pool had addresses that it has no more
	labels  bool   // some pool chooses namespaces by their labels
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
	// ranges are those of the pool but for what ClusterIPs are from.
	ranges []netipx.IPRange
	// next has, for each of ranges, an address below which none is free; the
	// zero Addr: the whole range is taken. low is the same with regard to the Services at
	// rest alone.
	next, low []netip.Addr
}

// span is one range of a pool. last is the greatest last address of this and
// all spans before it, so that a look-up knows when to stop going back.
type span struct {
	shelf *shelf
	r     netipx.IPRange
	last  netip.Addr
}

func newStock(c *view.Cluster) *stock {
	st := &stock{shelves: make([]*shelf, 0, len(c.Pools)), byName: make(map[string]*shelf, len(c.Pools))}
	for age, pool := range c.PoolsByAge() {
		sh := &shelf{pool: pool, age: age, ranges: without(pool.Ranges, c.ServiceRanges)}
		for _, r := range sh.ranges {
			sh.next = append(sh.next, r.From())
		}
		sh.low = slices.Clone(sh.next)
		for _, r := range pool.Ranges {
			st.spans = append(st.spans, span{shelf: sh, r: r})
		}
		st.shelves = append(st.shelves, sh)
		st.byName[pool.Name] = sh
		st.edited = st.edited || !slices.Equal(pool.Former, pool.Ranges) && len(pool.Former) > 0
		st.labels = st.labels || len(pool.NamespaceSelectors) > 0
		st.quotas = st.quotas || pool.MaxPerNamespace > 0
	}
	slices.SortFunc(st.shelves, inOrder)
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

// without are the ranges but for what the prefixes cover.
func without(ranges []netipx.IPRange, prefixes []netip.Prefix) []netipx.IPRange {
	overlaps := func(p netip.Prefix) bool { return slices.ContainsFunc(ranges, netipx.RangeOfPrefix(p).Overlaps) }
	if !slices.ContainsFunc(prefixes, overlaps) {
		return ranges
	}
	var rest netipx.IPSetBuilder
	for _, r := range ranges {
		rest.AddRange(r)
	}
	for _, p := range prefixes {
		rest.RemovePrefix(p)
	}
	set, err := rest.IPSet()
	if err != nil {
		return ranges // only invalid ranges err, and pools have none
	}
	return set.Ranges()
}

// gives tells whether the pool would give the address to somebody.
func (sh *shelf) gives(a netip.Addr) bool {
	return !sh.pool.Avoids(a) && slices.ContainsFunc(sh.ranges, func(r netipx.IPRange) bool { return r.Contains(a) })
}

// inOrder is the order in which pools give addresses: by priority, those for certain
// Services before those for all, and by name.
func inOrder(a, b *shelf) int {
	return cmp.Or(byRank(a, b), cmp.Compare(a.pool.Name, b.pool.Name))
}

// byRank is that order but for the names.
func byRank(a, b *shelf) int {
	rank := func(p *view.Pool) uint32 { return uint32(p.Priority) - 1 } // 0 comes last
	general := func(p *view.Pool) int {
		if p.Chooses() {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(rank(a.pool), rank(b.pool)),
		cmp.Compare(general(a.pool), general(b.pool)),
	)
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
func (st *stock) shelf(name string) *shelf { return st.byName[name] }

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

func (sh *shelf) has(f addr.Family) bool {
	return slices.ContainsFunc(sh.pool.Ranges, func(r netipx.IPRange) bool { return addr.FamilyOf(r.From()) == f })
}

// lowestFree goes on from where the last call stopped: addresses are taken
// during a plan, and never freed. So a whole plan steps over each used address once.
func (sh *shelf) lowestFree(f addr.Family, taken func(netip.Addr) bool) netip.Addr {
	for i, r := range sh.ranges {
		if addr.FamilyOf(r.From()) != f {
			continue
		}
		sh.next[i] = sh.stepOver(sh.next[i], r.To(), taken)
		if sh.next[i].IsValid() {
			return sh.next[i]
		}
	}
	return netip.Addr{}
}

// stepOver finds the first address from one on that is not taken and that the pool does not
// avoid, the zero Addr for none.
func (sh *shelf) stepOver(from, last netip.Addr, taken func(netip.Addr) bool) netip.Addr {
	for a := from; a.IsValid(); a = a.Next() {
		if !taken(a) && !sh.pool.Avoids(a) {
			return a
		}
		if a == last {
			break
		}
	}
	return netip.Addr{}
}

// rewind has lowestFree begin with the first addresses again that no Service at rest has.
func (st *stock) rewind(rest *resting) {
	for _, sh := range st.shelves {
		for i, r := range sh.ranges {
			sh.low[i] = sh.stepOver(sh.low[i], r.To(), rest.has)
		}
		copy(sh.next, sh.low)
	}
}

// lower notes that no Service at rest has the address any more.
func (st *stock) lower(a netip.Addr) {
	for _, sh := range st.shelves {
		for i, r := range sh.ranges {
			if r.Contains(a) && (!sh.low[i].IsValid() || a.Less(sh.low[i])) {
				sh.low[i] = a
			}
		}
	}
}

// inAny tells whether one of the pools of these names has the address.
func (st *stock) inAny(names []string, a netip.Addr) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		sh := st.shelf(name)
		return sh != nil && sh.pool.Contains(a)
	})
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
