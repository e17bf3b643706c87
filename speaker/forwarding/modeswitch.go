package forwarding

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/foreignproxy"
	"fairlead.dev/fairlead/speaker/forwarding/iptables"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
	"fairlead.dev/fairlead/speaker/forwarding/reusedports"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// modeSwitch removes what other modes, and the other variant of iptables, left in the kernel as soon as something else forwards, and not
// before. Open connections are the connection table's and outlive the rules.
type modeSwitch struct {
	// ready reports whether another proxy forwards what is wanted; nil: our own rules do.
	ready   func(ctx context.Context, want desired.Forwarding) (bool, error)
	cleanup func(ctx context.Context) error
	log     *slog.Logger

	done  bool
	told  string // of a cleanup that failed, to log a change only
	tried time.Time
}

const tryEvery = 5 * time.Second

// cleanUp does its work once, and is to be called when all that is wanted is in place.
func (s *modeSwitch) cleanUp(ctx context.Context, want desired.Forwarding) {
	if s.done || time.Since(s.tried) < tryEvery {
		return
	}
	s.tried = time.Now()
	if err := s.attempt(ctx, want); err != nil && err.Error() != s.told {
		s.told = err.Error()
		s.log.Error("what another forwarding mode left on this node cannot be removed; it is tried again", "error", err)
	}
}

func (s *modeSwitch) attempt(ctx context.Context, want desired.Forwarding) error {
	if s.ready != nil {
		if ready, err := s.ready(ctx, want); err != nil || !ready {
			return err
		}
	}
	if err := s.cleanup(ctx); err != nil {
		return err
	}
	s.done = true
	return nil
}

// othersForward reports whether another service proxy forwards all that is wanted on this
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

// Cleanup removes from the kernel whatever any mode ever put there. The file is that of
// Config.RouteLocalnet. If that cannot be set back, nothing is removed: without the rules
// that guard them, neighbours would reach what listens on the node's loopback addresses. The errors are
// the kernel's, and those of iptables.
func Cleanup(ctx context.Context, routeLocalnet string) error {
	return localnet(cmp.Or(routeLocalnet, RouteLocalnet)).removeAll(ctx)
}

// removeAll removes what all modes put into the kernel, after the setting.
func (l localnet) removeAll(ctx context.Context) error {
	if err := l.restore(); err != nil {
		return err
	}
	return errors.Join(
		nftable.Remove(kernelwatch.HandoverTable), nftable.Remove(kernelwatch.UntrackedTable), nftable.Remove(reusedports.Table),
		removeJournals(), iptables.Remove(ctx), nftables.Remove(ctx),
	)
}
