package forwarding

import (
	"context"
	"log/slog"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/foreignproxy"
	"fairlead.dev/fairlead/speaker/outcome"
)

// successor is a backend that takes over from those of other modes: what they left in
// the kernel goes as soon as something else forwards, and not before. Open connections
// are the connection table's and outlive the rules.
type successor struct {
	Forwarder
	// ready tells whether the kernel forwards what is wanted without what is to go; nil: as
	// soon as all that is wanted is in place.
	ready  func(ctx context.Context, want desired.Forwarding) (bool, error)
	retire func(ctx context.Context) error
	log    *slog.Logger

	done  bool
	told  string // of a retirement that failed, to tell a change only
	asked time.Time
}

// askEvery is the least time between two attempts.
const askEvery = 5 * time.Second

// Apply implements Backend.
func (s *successor) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	missing, err := s.Forwarder.Apply(ctx, want)
	if s.done || !complete(missing, err) || time.Since(s.asked) < askEvery {
		return missing, err
	}
	s.asked = time.Now()
	if failed := s.takeOver(ctx, want); failed != nil && failed.Error() != s.told {
		s.told = failed.Error()
		s.log.Error("what another forwarding mode left on this node cannot be removed; it is tried again", "error", failed)
	}
	return missing, err
}

// complete tells whether nothing is missing but what the kernel will never take.
func complete(missing outcome.Missing, err error) bool { return len(outcome.Behind(missing, err)) == 0 }

func (s *successor) takeOver(ctx context.Context, want desired.Forwarding) error {
	if s.ready != nil {
		if ready, err := s.ready(ctx, want); err != nil || !ready {
			return err
		}
	}
	if err := s.retire(ctx); err != nil {
		return err
	}
	s.done = true
	return nil
}

// othersForward tells whether another service proxy forwards all that is wanted on this
// node, in each family; if nothing is wanted, whether there is one.
func othersForward(ctx context.Context, want desired.Forwarding) (bool, error) {
	want.Guard = false // which is about what we opened ourselves
	wanted := 0
	for _, family := range addr.Families() {
		if !want.Has(family) {
			continue
		}
		wanted++
		if ready, err := foreignproxy.Forwards(ctx, family); err != nil || !ready {
			return false, err
		}
	}
	if wanted > 0 {
		return true, nil
	}
	found, err := foreignproxy.Find(ctx)
	return len(found) > 0, err
}
