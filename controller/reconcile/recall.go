package reconcile

import (
	"context"
	"time"

	"fairlead.dev/fairlead/controller/ledger/configmaps"
)

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
