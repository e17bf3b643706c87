// Package ledger has the owners of the addresses of pools with a cool-down, and which
// addresses have been freed and are cooling down. An entry is stored before the address
// appears in a status, so that a Service that is deleted while no controller runs leaves a
// trace of what it had. This package decides what the ledger says; configmaps stores it.
package ledger

import (
	"iter"
	"maps"
	"net/netip"
	"time"

	"fairlead.dev/fairlead/internal/view"
)

// Entry is the owner of an address, or the last one.
type Entry struct {
	// Owner is the Service or IPReservation that has the address, or that left it.
	Owner view.Ref
	// Until is the end of the rest of an address that was freed, in whole seconds, UTC:
	// before, only its owner may have it. Zero: the owner has it.
	Until time.Time
}

// Rests reports whether the address was freed.
func (e Entry) Rests() bool { return !e.Until.IsZero() }

// Page is the part of a Book of which one object is made. It never changes, so comparing
// pointers finds what did.
type Page struct {
	entries map[netip.Addr]Entry
	resting map[netip.Addr]struct{} // those of them that rest
}

// Book has an entry for each address that is held or cools down. It never changes: a
// changed copy shares the other pages. The zero value is empty.
type Book struct {
	pages map[netip.Prefix]*Page
}

// At is the entry of an address. ok: there is one.
func (b Book) At(a netip.Addr) (e Entry, ok bool) { return b.pages[Shard(a)].At(a) }

// At is the entry of an address. ok: there is one. A nil page has none.
func (p *Page) At(a netip.Addr) (e Entry, ok bool) {
	if p == nil {
		return Entry{}, false
	}
	e, ok = p.entries[a]
	return e, ok
}

// All are the entries of the page by address, in no order.
func (p *Page) All() iter.Seq2[netip.Addr, Entry] { return maps.All(p.entries) }

// Pages are those of the Book, none of them empty, by what Shard says of their addresses.
func (b Book) Pages() iter.Seq2[netip.Prefix, *Page] { return maps.All(b.pages) }

// Page is one of the pages, nil for one without entries.
func (b Book) Page(of netip.Prefix) *Page { return b.pages[of] }

// All are the entries by address, in no order.
func (b Book) All() iter.Seq2[netip.Addr, Entry] {
	return func(yield func(netip.Addr, Entry) bool) {
		for _, p := range b.pages {
			for a, e := range p.entries {
				if !yield(a, e) {
					return
				}
			}
		}
	}
}

// Resting are the entries of addresses that rest, in no order. It costs these, and a little for each page.
func (b Book) Resting() iter.Seq2[netip.Addr, Entry] {
	return func(yield func(netip.Addr, Entry) bool) {
		for _, p := range b.pages {
			for a := range p.resting {
				if !yield(a, p.entries[a]) {
					return
				}
			}
		}
	}
}

// With is the Book with other entries for these addresses, and none where the new one is
// the zero Entry. It costs the pages that change.
func (b Book) With(changes map[netip.Addr]Entry) Book {
	if len(changes) == 0 {
		return b
	}
	next := Book{maps.Clone(b.pages)}
	if next.pages == nil {
		next.pages = map[netip.Prefix]*Page{}
	}
	for a, e := range changes {
		p := next.page(b, Shard(a))
		p.entries[a] = e
		if e == (Entry{}) {
			delete(p.entries, a)
		}
		if delete(p.resting, a); e.Rests() {
			p.resting[a] = struct{}{}
		}
	}
	for a := range changes {
		if shard := Shard(a); next.pages[shard] != nil && len(next.pages[shard].entries) == 0 {
			delete(next.pages, shard)
		}
	}
	return next
}

// page is one that may be written to: not that of the former Book.
func (b Book) page(former Book, shard netip.Prefix) *Page {
	p := b.pages[shard]
	switch p {
	case nil:
		p = &Page{map[netip.Addr]Entry{}, map[netip.Addr]struct{}{}}
	case former.pages[shard]:
		p = &Page{maps.Clone(p.entries), maps.Clone(p.resting)}
	}
	b.pages[shard] = p
	return p
}

// Recall is the Book with what another one has of addresses that this one has no entry
// for.
func (b Book) Recall(other Book) Book {
	found := map[netip.Addr]Entry{}
	for a, e := range other.All() {
		if _, known := b.At(a); !known {
			found[a] = e
		}
	}
	return b.With(found)
}

// Next is the Book for the present. looked are the addresses of which something may have
// changed but for the time; held returns the holder of an address of a pool with a cool-down,
// and coolDown is that of the pool of an address, 0 for none. An address with an owner in the
// Book and no holder begins to cool down, also if it was left while no controller ran.
func (b Book) Next(looked iter.Seq[netip.Addr], held func(netip.Addr) (view.Ref, bool), coolDown func(netip.Addr) time.Duration, now time.Time) Book {
	changes := map[netip.Addr]Entry{}
	look := func(a netip.Addr, e Entry) {
		after := Entry{}
		if owner, has := held(a); has {
			after.Owner = owner
		} else if e != (Entry{}) {
			after = e.left(coolDown(a), now)
		}
		if after != e {
			changes[a] = after
		}
	}
	for a := range looked {
		e, _ := b.At(a)
		look(a, e)
	}
	for a, e := range b.Resting() {
		look(a, e)
	}
	return b.With(changes)
}

// left is the entry of an address without a holder, the zero Entry when it is free. It cools
// down no longer than the pool says now: it may have been edited, or a clock wrong.
func (e Entry) left(coolDown time.Duration, now time.Time) Entry {
	end := now.Add(coolDown).Truncate(time.Second).Add(time.Second).UTC()
	switch {
	case coolDown == 0:
		return Entry{}
	case !e.Rests(), e.Until.After(end):
		return Entry{e.Owner, end}
	case !e.Until.After(now):
		return Entry{}
	}
	return e
}
