package reconcile

import (
	"context"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/controller/ledger"
	"fairlead.dev/fairlead/controller/ledger/configmaps"
	"fairlead.dev/fairlead/internal/view"
)

// roll has the Services and reservations that hold or show addresses of pools with a
// cool-down. It is brought up to date from pass to pass, at the cost of what has changed.
type roll struct {
	revision uint64 // of the last snapshot
	pools    cooled

	of       map[view.Ref][]netip.Addr // what a Service has
	on       view.Index                // the same the other way round, by name
	reserved map[netip.Addr]view.Ref   // by the first reservation by name
	// changed are the addresses that others may hold than when the ledger was made.
	changed map[netip.Addr]struct{}
}

// follow is the roll for a snapshot, as far as that tells, and which Services it does not
// know any more; book is the ledger of the last one. nil: no pool has a cool-down.
func (r *roll) follow(c *view.Cluster, pools cooled, book ledger.Book) (*roll, iter.Seq[view.Ref]) {
	if len(pools) == 0 {
		return nil, nil
	}
	known := r != nil && c.Revision != 0 && (c.Revision == r.revision || c.Since == r.revision) && slices.Equal(pools, r.pools)
	if known {
		r.revision = c.Revision
		return r, maps.Keys(c.Touched)
	}
	r = &roll{
		revision: c.Revision, pools: pools,
		of: map[view.Ref][]netip.Addr{}, on: view.Index{}, changed: map[netip.Addr]struct{}{},
	}
	for a := range book.All() { // another pool, or none, may have it
		r.changed[a] = struct{}{}
	}
	return r, maps.Keys(c.Services)
}

// look notes what these Services have, with these assignments, and all reservations.
func (r *roll) look(c *view.Cluster, assigned allocation.Assignments, services iter.Seq[view.Ref]) {
	if r == nil {
		return
	}
	for ref := range services {
		var shown []netip.Addr
		if s := c.Services[ref]; s != nil {
			shown = s.Ingress
		}
		r.note(ref, slices.Concat(shown, assigned.Services[ref].Addresses))
	}
	reserved := map[netip.Addr]view.Ref{}
	for ref, reservation := range c.Reservations {
		for _, a := range slices.Concat(reservation.Held, assigned.Reservations[ref].Addresses) {
			if other, twice := reserved[a]; (!twice || ref.Compare(other) < 0) && view.PoolOf(r.pools, a) != nil {
				reserved[a] = ref
			}
		}
	}
	for _, side := range []map[netip.Addr]view.Ref{r.reserved, reserved} {
		for a := range side {
			if reserved[a] != r.reserved[a] {
				r.changed[a] = struct{}{}
			}
		}
	}
	r.reserved = reserved
}

func (r *roll) note(ref view.Ref, addresses []netip.Addr) {
	var now []netip.Addr
	for _, a := range addresses {
		if !slices.Contains(now, a) && view.PoolOf(r.pools, a) != nil {
			now = append(now, a)
		}
	}
	before := r.of[ref]
	for _, a := range before {
		if !slices.Contains(now, a) {
			r.changed[a] = struct{}{}
			r.on.Remove(a, ref)
		}
	}
	for _, a := range now {
		if !slices.Contains(before, a) {
			r.changed[a] = struct{}{}
			r.on.Add(a, ref)
		}
	}
	if r.of[ref] = now; len(now) == 0 {
		delete(r.of, ref)
	}
}

// holder is the object that holds an address: the first Service by name, or the first
// reservation.
func (r *roll) holder(a netip.Addr) (ref view.Ref, ok bool) {
	if on := r.on[a]; len(on) > 0 {
		return on[0], true
	}
	ref, ok = r.reserved[a]
	return ref, ok
}

// next is the ledger for the present, made of that of before. A pool that has no cool-down
// any more ends the rest of its addresses.
func (r *roll) next(book ledger.Book, now time.Time) ledger.Book {
	if r == nil {
		return ledger.Book{}
	}
	defer clear(r.changed)
	return book.Next(maps.Keys(r.changed), r.holder, r.pools.coolDown, now)
}

// recall is the ledger, and whether the leader knows what its predecessor wrote there.
type recall struct {
	*configmaps.Keeper
	done  bool
	pause time.Duration // after a failure
	next  time.Time     // when to try again; zero: not at all
}

// recall reads the ledger once a pool has a cool-down, before anything is decided with it:
// addresses without a holder cool down. Without an answer the addresses are given all the
// same, and what is read later holds from then on.
func (l *Loop) recall(ctx context.Context, s *snapshot, now time.Time) {
	r := &l.ledger
	if r.done || now.Before(r.next) || len(withCoolDown(s.cluster.PoolsByAge())) == 0 {
		return
	}
	book, err := r.Read(ctx)
	if err != nil {
		r.pause = min(max(2*r.pause, listRetry), lastRetry)
		if r.next.IsZero() && ctx.Err() == nil {
			l.Logger.Warn("cannot read the ledger; trying again", "error", err)
		}
		r.next = now.Add(r.pause)
		return
	}
	if !r.next.IsZero() {
		l.Logger.Info("the ledger is read")
	}
	r.done, r.next = true, time.Time{}
	l.last.book, l.last.roll = l.last.book.Recall(book), nil
}
