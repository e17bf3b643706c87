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
	transaction, names := wire.New(f.family, t.name, bulkSize, &f.socket), []string(nil)
	// What is half done must not look whole.
	if _, made := t.kernel[chainStamp]; made {
		transaction.Replace(chainStamp, "")
		names = append(names, chainStamp)
	} else if err := f.begin(ctx, i); err != nil {
		return err
	}
	commit := func() bool {
		err := transaction.Commit()
		if err != nil {
			t.doubt(names)
			f.log.Info("Leaving rules to iptables that the kernel does not take from us", "table", t.name, "error", err)
			return false
		}
		t.took(names)
		f.watch.wrote(i, 1, 0)
		transaction.Reset()
		names = names[:0]
		return true
	}
	for _, name := range t.bottomUp(write) {
		if !f.writes(transaction, t, name, left) {
			left[name] = struct{}{}
			continue
		}
		names = append(names, name)
		if transaction.Size() >= bulkSize && !commit() {
			return nil
		}
	}
	if len(names) > 0 {
		commit()
	}
	return nil
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
