package nftable

import (
	"context"
	"time"

	nft "github.com/google/nftables"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/selinux"
)

// Layout is what a table holds: chains, and sets that packets alone fill.
type Layout struct {
	Sets   []*nft.Set
	Chains []Chain
}

// Keeper keeps a table of each family in the kernel as wanted, whatever others do to it.
type Keeper struct {
	// Refused and Taken are called when the kernel begins and ceases to refuse the table of a family.
	Refused func(family string, err error)
	Taken   func(family string)
	// AgainEvery is the time between two attempts at what the kernel refuses.
	AgainEvery time.Duration

	socket *Socket
	tables []*kept
}

// kept is the table of one family.
type kept struct {
	Table
	Layout
	epoch  kernelwatch.Epoch // when it was as wanted; 0: it is not
	failed time.Time         // the last attempt; zero: it succeeded
}

// NewKeeper returns a keeper of the tables of a name that writes nothing before Apply, and needs Refused and Taken for
// that. The generation is that of NewSocket.
func NewKeeper(g *kernelwatch.Generation, name string, layout func(*Table) Layout) *Keeper {
	k := &Keeper{AgainEvery: time.Minute, socket: NewSocket(g)}
	for _, f := range addr.Families() {
		t := &kept{Table: New(f, name)}
		t.Layout = layout(&t.Table)
		k.tables = append(k.tables, t)
	}
	return k
}

// Run keeps the tables until ctx ends. They stay: the next process goes on with them.
func (k *Keeper) Run(ctx context.Context) {
	k.Apply()
	kernelwatch.Poll(ctx, kernelwatch.Interval, func() bool { return true }, k.Apply)
}

// Apply writes what is not as wanted. It asks the kernel one question where others have written nothing.
func (k *Keeper) Apply() {
	for _, t := range k.tables {
		refused := !t.failed.IsZero()
		if refused && time.Since(t.failed) < k.AgainEvery {
			continue
		}
		switch err := t.apply(k.socket); {
		case err != nil:
			if t.epoch, t.failed = 0, time.Now(); !refused {
				k.Refused(t.Family.String(), selinux.Blame(err))
			}
		case refused:
			t.failed = time.Time{}
			k.Taken(t.Family.String())
		}
	}
}

func (t *kept) apply(s *Socket) error {
	if t.epoch != 0 && !s.Generation.Changed(t.epoch) {
		return nil
	}
	var is bool
	epoch, err := s.Generation.Read(func() (err error) {
		is, err = t.isWanted()
		return err
	})
	if t.epoch = epoch; is || err != nil {
		return err
	}
	return s.Commit(func(b *Batch) {
		b.Conn.AddTable(t.NFT) // so that there is one to delete
		b.Conn.DelTable(t.NFT)
		b.Conn.AddTable(t.NFT)
		for _, set := range t.Sets {
			b.Note(b.Conn.AddSet(set, nil))
		}
		b.Chains(&t.Table, t.Chains)
	})
}

// isWanted tells whether the kernel has the table as it is made.
func (t *kept) isWanted() (bool, error) {
	there, flags, err := t.Look()
	if err != nil || !there || flags&Dormant != 0 {
		return false, err
	}
	for _, c := range t.Chains {
		if holds, err := t.Holds(c); err != nil || !holds {
			return false, err
		}
	}
	return true, nil
}
