package nftables

import (
	"cmp"
	"errors"
	"fmt"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// link is the socket to nf_tables. It is opened when it is needed.
type link struct {
	generation *kernelwatch.Generation // in which its transactions are ours
	socket     *netlink.Conn
	persists   bool                 // the kernel knows tables that persist
	unsure     bool                 // it is not known whether it does
	keeping    bool                 // others are to be kept from our tables
	owned      map[addr.Family]bool // of which the table is this socket's
}

// newLink returns a socket that is not open yet.
func newLink(g *kernelwatch.Generation) *link {
	return &link{generation: cmp.Or(g, new(kernelwatch.Generation)), owned: map[addr.Family]bool{}}
}

const (
	// writeBuffer must hold a whole transaction, and readBuffer its receipts. The
	// kernel takes memory for what is there only.
	writeBuffer = 256 << 20
	readBuffer  = 16 << 20
	// messageSize bounds the elements of one message: the length of an attribute
	// has 16 bits.
	messageSize = 48 << 10
)

func (k *link) open() error {
	if k.socket != nil {
		return nil
	}
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("open a socket to nf_tables: %w", err)
	}
	if err := errors.Join(socket.SetWriteBuffer(writeBuffer), socket.SetReadBuffer(readBuffer),
		socket.SetOption(netlink.CapAcknowledge, true)); err != nil {
		return errors.Join(fmt.Errorf("make room in a socket to nf_tables: %w", err), socket.Close())
	}
	k.socket = socket
	return nil
}

func (k *link) close() {
	if k.socket != nil {
		_ = k.socket.Close() // nothing is on its way
		k.socket = nil
		clear(k.owned)
	}
}

// commit sends one transaction that the function composes: all of it comes true, or
// nothing.
func (k *link) commit(compose func(b *batch)) error {
	messages, err := record(compose)
	if err != nil {
		return err
	}
	return k.transact(messages...)
}

// probe makes a table that does not stay, to see whether the kernel takes anything. That
// is one transaction.
func (k *link) probe(l *layout) error {
	table := l.as(probeTable).table
	return k.commit(func(b *batch) {
		b.conn.AddTable(table)
		b.conn.DelTable(table)
	})
}

type batch struct {
	conn *nft.Conn
	err  error
}

func (b *batch) sets(l *layout) {
	for _, s := range l.sets {
		b.note(b.conn.AddSet(s, nil))
	}
}

// change makes a delta true. rules knows the chains that come.
func (b *batch) change(l *layout, d delta, rules func(name string) (chain, bool)) {
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
	b.chains(l, needed)
	for id, s := range l.sets {
		b.inMessages(gone[id], func(e []nft.SetElement) error { return b.conn.SetDeleteElements(s, e) })
	}
	for id, s := range l.sets {
		b.inMessages(come[id], func(e []nft.SetElement) error { return b.conn.SetAddElements(s, e) })
	}
	for _, name := range unused { // first all rules: they may lead to each other
		b.conn.FlushChain(&nft.Chain{Name: name, Table: l.table})
	}
	for _, name := range unused {
		b.conn.DelChain(&nft.Chain{Name: name, Table: l.table})
	}
}

// chains adds chains, which may lead to each other.
func (b *batch) chains(l *layout, all []chain) {
	for _, c := range all {
		added := &nft.Chain{Name: c.name, Table: l.table, Type: c.at.kind}
		if c.at.kind != "" {
			added.Hooknum, added.Priority = &c.at.number, &c.at.priority
		}
		b.conn.AddChain(added)
	}
	for _, c := range all {
		for _, r := range c.rules {
			b.conn.AddRule(&nft.Rule{
				Table: l.table, Chain: &nft.Chain{Name: c.name, Table: l.table}, Exprs: r.exprs,
				UserData: userdata.AppendString(nil, userdata.TypeComment, l.stamp(r)),
			})
		}
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
		if l.isTree(i.set) {
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

// elements adds an element to all as the kernel takes it: in a tree an interval is two.
func (l *layout) elements(all []nft.SetElement, e element, comment string) []nft.SetElement {
	s := l.sets[e.set]
	out := nft.SetElement{Key: []byte(e.key), Comment: comment}
	switch {
	case l.isTree(e.set):
		if behind := neighbor(e.value, +1); behind != "" {
			return append(all, out, nft.SetElement{Key: []byte(behind), IntervalEnd: true})
		}
	case s.Interval:
		out.KeyEnd = []byte(e.value)
	case s.DataType.Name == nft.TypeVerdict.Name:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.value}
	case s.IsMap:
		out.Val = []byte(e.value)
	}
	return append(all, out)
}

// inMessages splits elements into messages that are not too large.
func (b *batch) inMessages(all []nft.SetElement, send func([]nft.SetElement) error) {
	const headers = 64 // more than all attributes of an element add to what they hold
	size, begin := 0, 0
	for i, e := range all {
		more := headers + len(e.Key) + len(e.KeyEnd) + len(e.Val) + len(e.Comment)
		if e.VerdictData != nil {
			more += len(e.VerdictData.Chain)
		}
		if size+more > messageSize {
			b.note(send(all[begin:i]))
			size, begin = 0, i
		}
		size += more
	}
	if begin < len(all) {
		b.note(send(all[begin:]))
	}
}

func (b *batch) note(err error) { b.err = errors.Join(b.err, err) }
