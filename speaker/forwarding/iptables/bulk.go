package iptables

import (
	"context"

	"fairlead.dev/fairlead/speaker/forwarding/iptables/wire"
)

// bulkSize is about how many bytes one transaction has of those that are written without
// iptables, some 5000 rules: the kernel walks all chains that there are at each commit.
const bulkSize = 2 << 20

// writeBulk writes most of what differs without iptables, if that is much: iptables-nft-restore
// takes longer to read a rule, and to ask for each chain that it mentions, than the kernel to
// take it. Rules of kinds that are few, and all that leads to them, are left to it, as is what
// the kernel does not take: it tells why.
func (f *family) writeBulk(ctx context.Context, i int) error {
	t := f.tables()[i]
	write, _ := t.differences()
	if f.commands.variant != NFT || len(write) <= f.many || f.runners[i].late != nil { // which may write the same
		return nil
	}
	left := map[string]struct{}{} // to iptables
	r := f.relayTo(i)
	// What is half done must not look whole.
	if _, made := t.kernel[chainStamp]; made {
		r.next.Replace(chainStamp, "")
		r.names = append(r.names, chainStamp)
	} else if err := f.begin(ctx, i); err != nil {
		return err
	}
	for _, name := range t.bottomUp(write) {
		if !f.writes(r.next, t, name, left) {
			left[name] = struct{}{}
			continue
		}
		r.names = append(r.names, name)
		if r.next.Size() >= f.bulk && !r.pass() {
			return nil
		}
	}
	if len(r.names) == 0 || r.pass() {
		r.settle()
	}
	return nil
}

// relay has the kernel commit one transaction on a table while the next one is made.
type relay struct {
	*family

	i           int               // of the table
	next, sent  *wire.Transaction // being made, and that the kernel is at
	names, gone []string          // the chains in them
	wait        func() error      // for the one that the kernel is at; nil: there is none
}

func (f *family) relayTo(i int) *relay {
	begin := func() *wire.Transaction { return wire.New(f.family, f.tables()[i].name, f.bulk, &f.socket) }
	return &relay{family: f, i: i, next: begin(), sent: begin()}
}

// pass has the kernel commit what was made, after the transaction that it is at. If it does not
// take that one, it returns false, and no more is committed.
func (r *relay) pass() bool {
	if !r.settle() {
		return false
	}
	r.next, r.sent = r.sent, r.next
	r.names, r.gone = r.gone[:0], r.names
	r.wait = r.sent.Send()
	r.next.Reset()
	return true
}

// settle waits for the transaction that the kernel is at, and tells whether it took it.
func (r *relay) settle() bool {
	if r.wait == nil {
		return true
	}
	t, err := r.tables()[r.i], r.wait()
	r.wait = nil
	if err != nil {
		t.doubt(r.gone)
		r.log.Info("Leaving rules to iptables that the kernel does not take from us", "table", t.name, "error", err)
		return false
	}
	t.took(r.gone)
	r.watch.wrote(r.i, 1, 0)
	return true
}

// writes appends a chain to a transaction, unless it leads to one that is left to iptables or
// must be left itself.
func (f *family) writes(to *wire.Transaction, t *table, name string, left map[string]struct{}) bool {
	ready := true
	t.want[name].leadsTo(func(other string) {
		if _, missing := left[other]; missing {
			ready = false
		}
	})
	if _, empty := t.empty[name]; empty {
		return ready && to.Fill(name, t.want[name].text)
	}
	return ready && to.Replace(name, t.want[name].text)
}

// begin has iptables make the table, with a stamp that says nothing.
func (f *family) begin(ctx context.Context, i int) error {
	t := f.tables()[i]
	s := script{table: t.name}
	s.chains([]string{chainStamp})
	s.commit()
	if err := f.restoreTable(ctx, i, s.text.String()); err != nil {
		return err
	}
	t.took([]string{chainStamp})
	f.watch.wrote(i, 1, 0)
	return nil
}
