package nftables

import (
	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// link is the socket to nf_tables, and what is known of tables that it may own.
type link struct {
	*nftable.Socket
	persists bool                          // the kernel knows tables that persist
	unsure   bool                          // it is not known whether it does
	keeping  bool                          // others are to be kept from our tables
	owned    map[addr.Family]*netlink.Conn // of the socket that the table is
}

// newLink returns a socket that is not open yet.
func newLink(g *kernelwatch.Generation) *link {
	return &link{Socket: nftable.NewSocket(g), owned: map[addr.Family]*netlink.Conn{}}
}

// probe makes a table that does not stay, to see whether the kernel takes anything. That
// is one transaction.
func (k *link) probe(l *layout) error {
	table := l.as(probeTable).NFT
	return k.Commit(func(b *batch) {
		b.Conn.AddTable(table)
		b.Conn.DelTable(table)
	})
}

// addSets adds all sets and maps.
func (l *layout) addSets(b *batch) {
	for id, s := range l.sets {
		b.AddSet(s, l.userData(setID(id)))
	}
}

// change makes a delta true. rules knows the chains that come.
func (l *layout) change(b *batch, d delta, rules func(name string) (chain, bool)) {
	gone, come := l.room(d)
	var unused []string
	var needed []chain
	for i, c := range d {
		switch {
		case i.set != chains:
			if c.had {
				gone[i.set] = l.elements(gone[i.set], element{i, c.was}, "")
			}
			if c.has {
				come[i.set] = l.elements(come[i.set], element{i, c.is}, c.comment)
			}
		case !c.has:
			unused = append(unused, i.key)
		default:
			if own, ok := rules(i.key); ok { // the static ones are there
				needed = append(needed, own)
			}
		}
	}
	b.Chains(&l.Table, needed)
	for id, s := range l.sets {
		b.InMessages(gone[id], func(e []nft.SetElement) error { return b.Conn.SetDeleteElements(s, e) })
	}
	for id, s := range l.sets {
		b.InMessages(come[id], func(e []nft.SetElement) error { return b.Conn.SetAddElements(s, e) })
	}
	for _, name := range unused { // first all rules: they may lead to each other
		b.Conn.FlushChain(&nft.Chain{Name: name, Table: l.NFT})
	}
	for _, name := range unused {
		b.Conn.DelChain(&nft.Chain{Name: name, Table: l.NFT})
	}
}

// room is for what leaves each set and what comes into it. An element takes hundreds of bytes,
// so that lists that grow would be a third of the time in which all Services are programmed.
func (l *layout) room(d delta) (gone, come [setCount][]nft.SetElement) {
	var had, has [setCount]int
	for i, c := range d {
		if i.set == chains {
			continue
		}
		n := 1
		if l.sets[i.set].Interval {
			n = 2
		}
		if c.had {
			had[i.set] += n
		}
		if c.has {
			has[i.set] += n
		}
	}
	for id := range l.sets {
		gone[id], come[id] = make([]nft.SetElement, 0, had[id]), make([]nft.SetElement, 0, has[id])
	}
	return gone, come
}

// elements adds an element to all as the kernel takes it: an interval is two.
func (l *layout) elements(all []nft.SetElement, e element, comment string) []nft.SetElement {
	s := l.sets[e.set]
	out := nft.SetElement{Key: []byte(e.key), Comment: comment}
	switch {
	case s.Interval:
		last := e.value[:len(e.key)]
		out.Val = []byte(e.value[len(e.key):])
		if behind := neighbor(last, +1); behind != "" {
			return append(all, out, nft.SetElement{Key: []byte(behind), IntervalEnd: true})
		}
	case s.DataType.Name == nft.TypeVerdict.Name:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.value}
	case s.IsMap:
		out.Val = []byte(e.value)
	}
	return append(all, out)
}
