package allocation

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sort"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// freeList has the pools by address and by name, and the lowest free addresses of each.
type freeList struct {
	pools  []*freePool // in the order in which pools give addresses
	byName map[string]*freePool
	spans  []span // every range of every pool, by first address
	quotas bool   // some pool has one
	edited bool   // some pool had addresses that it has no more
	labels bool   // some pool chooses namespaces by their labels
	// used is what the cluster itself uses of the pools, and beyond all that it uses; nil: nothing has asked yet.
	used   view.Occupied
	beyond *view.Occupied
	// lost counts the addresses that a pool would give were they not used.
	lost map[quantity]int64
}

// freePool is one pool and how far its ranges are known to be taken.
type freePool struct {
	pool *view.Pool
	age  int // place among all pools, the oldest first
	// rival is the oldest of the older pools that this one overlaps, and
	// overlap where: such a pool gives nothing, because the rival's
	// advertisements and settings hold for the shared addresses.
	rival   *view.Pool
	overlap netipx.IPRange
	// ranges are those of the pool but for what ClusterIPs and pods are from.
	ranges []netipx.IPRange
	// next has, for each of ranges, an address below which none is free; the
	// zero Addr: the whole range is taken. low is the same with regard to the settled
	// Services alone.
	next, low []netip.Addr
}

// span is one range of a pool. last is the greatest last address of this and
// all spans before it, so that a look-up knows when to stop going back.
type span struct {
	pool *freePool
	r    netipx.IPRange
	last netip.Addr
}

func newFreeList(c *view.Cluster) *freeList {
	fl := &freeList{pools: make([]*freePool, 0, len(c.Pools)), byName: make(map[string]*freePool, len(c.Pools))}
	for age, pool := range c.PoolsByAge() {
		fp := &freePool{pool: pool, age: age}
		for _, r := range pool.Ranges {
			fl.spans = append(fl.spans, span{pool: fp, r: r})
		}
		fl.pools = append(fl.pools, fp)
		fl.byName[pool.Name] = fp
		fl.edited = fl.edited || !slices.Equal(pool.Former, pool.Ranges) && len(pool.Former) > 0
		fl.labels = fl.labels || len(pool.NamespaceSelectors) > 0
		fl.quotas = fl.quotas || pool.MaxPerNamespace > 0
	}
	slices.SortFunc(fl.pools, inOrder)
	slices.SortFunc(fl.spans, func(a, b span) int {
		return cmp.Or(a.r.From().Compare(b.r.From()), cmp.Compare(a.pool.age, b.pool.age))
	})
	var last netip.Addr
	for i := range fl.spans {
		if to := fl.spans[i].r.To(); last.Less(to) {
			last = to
		}
		fl.spans[i].last = last
	}
	fl.findRivals()
	fl.used.Ranges = fl.overlapping(c.UsedRanges())
	taken := make([]netip.Prefix, 0, len(fl.used.Ranges))
	for _, use := range fl.used.Ranges {
		taken = append(taken, use.Prefix)
	}
	for _, fp := range fl.pools {
		fp.ranges = addr.Join(fp.pool.Ranges, taken...)
		for _, r := range fp.ranges {
			fp.next = append(fp.next, r.From())
		}
		fp.low = slices.Clone(fp.next)
	}
	fl.use(c)
	return fl
}

// overlapping are those of the ranges that have an address of a pool.
func (fl *freeList) overlapping(ranges []view.Use) []view.Use {
	return slices.DeleteFunc(ranges, func(use view.Use) bool {
		r := netipx.RangeOfPrefix(use.Prefix)
		before := sort.Search(len(fl.spans), func(i int) bool { return r.To().Less(fl.spans[i].r.From()) })
		return before == 0 || fl.spans[before-1].last.Less(r.From())
	})
}

// quantity are the addresses of one family of a pool.
type quantity struct {
	pool   string
	family addr.Family
}

// lose counts addresses that are used, or used no more.
func (fl *freeList) lose(addresses iter.Seq[netip.Addr], by int64) {
	for a := range addresses {
		if pool := fl.poolOf(a); pool != nil && fl.pool(pool.Name).gives(a) {
			fl.lost[quantity{pool.Name, addr.FamilyOf(a)}] += by
		}
	}
}

// use finds the addresses of pools that the cluster itself uses.
func (fl *freeList) use(c *view.Cluster) {
	fl.used, fl.beyond, fl.lost = c.Occupied(fl.poolOf, fl.used.Ranges), nil, map[quantity]int64{}
	fl.lose(maps.Keys(fl.used.Addresses), 1)
}

// useAnew finds those that one Service uses by now, and tells of those that this changes. ok is false where that is not known.
func (fl *freeList) useAnew(c *view.Cluster, ref view.Ref) (changed []netip.Addr, ok bool) {
	gone, come, ok := fl.used.Follow(c, fl.poolOf, ref)
	fl.lose(slices.Values(gone), -1)
	fl.lose(slices.Values(come), 1)
	return slices.Concat(gone, come), ok
}

// gives reports whether the pool would give the address.
func (fp *freePool) gives(a netip.Addr) bool {
	return !fp.pool.Avoids(a) && slices.ContainsFunc(fp.ranges, func(r netipx.IPRange) bool { return r.Contains(a) })
}

// inOrder is the order in which pools give addresses: by priority, those for certain
// Services before those for all, and by name.
func inOrder(a, b *freePool) int {
	return cmp.Or(byRank(a, b), cmp.Compare(a.pool.Name, b.pool.Name))
}

// byRank is that order but for the names.
func byRank(a, b *freePool) int {
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
func (fl *freeList) findRivals() {
	for i, a := range fl.spans {
		for _, b := range fl.spans[i+1:] {
			if a.r.To().Less(b.r.From()) {
				break
			}
			if a.pool == b.pool {
				continue
			}
			older, younger := a.pool, b.pool
			if younger.age < older.age {
				older, younger = younger, older
			}
			if younger.rival != nil && fl.pool(younger.rival.Name).age <= older.age {
				continue
			}
			younger.rival = older.pool
			younger.overlap = netipx.IPRangeFrom(b.r.From(), slices.MinFunc([]netip.Addr{a.r.To(), b.r.To()}, netip.Addr.Compare))
		}
	}
}

// overlaps has a problem for each pool that claims addresses of an older one.
func (fl *freeList) overlaps() []problem.Problem {
	var problems []problem.Problem
	for _, fp := range fl.pools {
		if fp.rival == nil {
			continue
		}
		problems = append(problems, problem.New(fp.pool.Object(), ReasonPoolOverlap,
			"%s is in the older IPAddressPool %q too: this pool gives no addresses until the ranges are apart; addresses already given stay",
			rangeText(fp.overlap), fp.rival.Name))
	}
	return problems
}

// pool finds a pool by name, nil for none.
func (fl *freeList) pool(name string) *freePool { return fl.byName[name] }

// poolOf is the oldest pool that holds the address, nil for none.
func (fl *freeList) poolOf(a netip.Addr) *view.Pool {
	var oldest *freePool
	i := sort.Search(len(fl.spans), func(i int) bool { return a.Less(fl.spans[i].r.From()) })
	for i--; i >= 0 && !fl.spans[i].last.Less(a); i-- {
		s := fl.spans[i]
		if s.r.Contains(a) && (oldest == nil || s.pool.age < oldest.age) {
			oldest = s.pool
		}
	}
	if oldest == nil {
		return nil
	}
	return oldest.pool
}

func (fp *freePool) has(f addr.Family) bool {
	return slices.ContainsFunc(fp.pool.Ranges, func(r netipx.IPRange) bool { return addr.FamilyOf(r.From()) == f })
}

// lowestFree goes on from where the last call stopped: addresses are taken
// during a plan, and never freed. So a whole plan steps over each used address once.
func (fp *freePool) lowestFree(f addr.Family, taken func(netip.Addr) bool) netip.Addr {
	for i, r := range fp.ranges {
		if addr.FamilyOf(r.From()) != f {
			continue
		}
		fp.next[i] = fp.stepOver(fp.next[i], r.To(), taken)
		if fp.next[i].IsValid() {
			return fp.next[i]
		}
	}
	return netip.Addr{}
}

// stepOver finds the first address from one on that is not taken and that the pool does not
// avoid, the zero Addr for none.
func (fp *freePool) stepOver(from, last netip.Addr, taken func(netip.Addr) bool) netip.Addr {
	for a := from; a.IsValid(); a = a.Next() {
		if !taken(a) && !fp.pool.Avoids(a) {
			return a
		}
		if a == last {
			break
		}
	}
	return netip.Addr{}
}

// rewind has lowestFree begin again with the first addresses that no settled Service has.
func (fl *freeList) rewind(rest *settled) {
	for _, fp := range fl.pools {
		for i, r := range fp.ranges {
			fp.low[i] = fp.stepOver(fp.low[i], r.To(), rest.has)
		}
		copy(fp.next, fp.low)
	}
}

// lower notes that no settled Service has the address any more.
func (fl *freeList) lower(a netip.Addr) {
	for _, fp := range fl.pools {
		for i, r := range fp.ranges {
			if r.Contains(a) && (!fp.low[i].IsValid() || a.Less(fp.low[i])) {
				fp.low[i] = a
			}
		}
	}
}

// inAny reports whether one of the pools of these names has the address.
func (fl *freeList) inAny(names []string, a netip.Addr) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		fp := fl.pool(name)
		return fp != nil && fp.pool.Contains(a)
	})
}

func rangeText(r netipx.IPRange) string {
	if r.From() == r.To() {
		return r.From().String()
	}
	return r.String()
}
