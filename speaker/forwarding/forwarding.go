// Package forwarding brings the kernel of this node to desired.Forwarding. It
// chooses the backend that does so, and deletes flows that the new rules would not send
// where they go now: to endpoints that are gone, or past the Service altogether.
package forwarding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
	"fairlead.dev/fairlead/speaker/forwarding/iptables"
	"fairlead.dev/fairlead/speaker/forwarding/kernelwatch"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Mode is how this node forwards.
type Mode string

// The modes.
const (
	IPTables Mode = "iptables"
	NFTables Mode = "nftables"
	// None leaves the kernel alone: another service proxy does the work.
	None Mode = "none"
)

// Backend keeps the kernel as wanted.
type Backend interface {
	// Apply brings the kernel to want and returns which ports are not in the kernel as
	// wanted, or still are though they are not wanted, also when it errs. It is cheap when nothing changed,
	// and repairs what others changed, so it may be called on every occasion. It
	// keeps no map of want.
	Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error)
	// Watch calls disturbed, until ctx ends, when an Apply would find something to do
	// though nothing else is wanted: others changed what is ours, or what kept the last
	// Apply from its work is over. It notices within a fraction of a second, may be
	// called beside all other methods, and may call once too often. While it runs others
	// are kept from what is ours, where the kernel can do that.
	Watch(ctx context.Context, disturbed func())
	// Cleanup removes everything that Apply ever put into the kernel.
	Cleanup(ctx context.Context) error
	Gauge
}

// Gauge is what a backend tells of itself. It costs nothing.
type Gauge interface {
	// Tally counts, for one family, the rules (with nftables the map elements) that
	// the kernel has of ours, and how many chains, sets and the like were found changed
	// by others since the process began.
	Tally(family addr.Family) (rules, repairs int)
	// Forgetful counts, for one family, the lists of clients of session affinity that had no
	// room for another when they were last looked at, about once a minute.
	Forgetful(family addr.Family) int
	// Tool names by what the kernel is told: iptables-nft, iptables-legacy or nftables; ""
	// while that is not known, and if nothing is told.
	Tool() string
}

// Config says how to forward.
type Config struct {
	Mode    Mode
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: nobody looks
	// RouteLocalnet is where the file RouteLocalnet can be written; "": in its place.
	RouteLocalnet string
	// Conntrack is what the connection table is to have, and ConntrackDir where
	// sysctl.Dir can be written; "": in its place.
	Conntrack    sysctl.Want
	ConntrackDir string
}

// Forwarder is a backend together with the flows that its rules were asked about.
type Forwarder interface {
	Backend
	// Clean deletes the flows that the rules would send elsewhere now, or past which they
	// went. It looks through the connection table, which takes milliseconds if that is
	// empty and seconds if it is full; what is announced need not wait for it. What fails is
	// tried the next time.
	Clean() error
}

// New returns what forwards in a mode.
func New(c Config) (Forwarder, error) {
	var backend Backend
	generation := new(kernelwatch.Generation)
	setting := localnet(cmp.Or(c.RouteLocalnet, RouteLocalnet))
	switch c.Mode {
	case IPTables:
		backend = iptables.New(iptables.Config{Log: c.Log, Generation: generation})
	case NFTables:
		backend = nftables.New(nftables.Config{Log: c.Log, Generation: generation})
	case None:
		return &successor{Forwarder: none{}, ready: othersForward, retire: setting.removeAll, log: c.Log}, nil
	default:
		return nil, fmt.Errorf("forwarding mode %q: choose %s, %s or %s", c.Mode, IPTables, NFTables, None)
	}
	m := newMeasures(c.Metrics)
	cleaner := newCleaner(hosted{backend, thisHost()}, m.timed(conntrack.Delete), inherited)
	cleaner.leaving = newLeaving()
	forwards := newHanding(&localhost{setting: setting, Forwarder: &successor{
		Forwarder: newMeasured(cleaner, m),
		retire:    removeAllBut(c.Mode), log: c.Log,
	}}, nftables.NewHandover(generation), c.Metrics)
	return roomy{forwards, sysctl.New(c.ConntrackDir, c.Conntrack, c.Log)}, nil
}

// Cleanup removes from the kernel whatever any mode ever put there. The file is that of
// Config.RouteLocalnet. If that cannot be set back, nothing is removed: without the rules
// that guard them, neighbours would reach what listens on the node's loopback addresses.
func Cleanup(ctx context.Context, routeLocalnet string) error {
	return localnet(cmp.Or(routeLocalnet, RouteLocalnet)).removeAll(ctx)
}

// removeAll removes what all modes put into the kernel, after the setting.
func (l localnet) removeAll(ctx context.Context) error {
	if err := l.restore(); err != nil {
		return err
	}
	return errors.Join(nftables.RemoveHandover(), removeNotes(), removeAllBut(None)(ctx))
}

// removeAllBut removes what all modes but one put into the kernel.
func removeAllBut(stays Mode) func(context.Context) error {
	return func(ctx context.Context) error {
		var errs []error
		for mode, remove := range map[Mode]func(context.Context) error{IPTables: iptables.Remove, NFTables: nftables.Remove} {
			if mode != stays {
				errs = append(errs, remove(ctx))
			}
		}
		return errors.Join(errs...)
	}
}

// none is the backend of a node that another proxy forwards for.
type none struct{}

func (none) Apply(context.Context, desired.Forwarding) (outcome.Missing, error) { return nil, nil }

func (none) Clean() error { return nil }

func (none) Watch(ctx context.Context, _ func()) { <-ctx.Done() }

func (none) Cleanup(context.Context) error { return nil }

func (none) Tally(addr.Family) (rules, repairs int) { return 0, 0 }

func (none) Forgetful(addr.Family) int { return 0 }

func (none) Tool() string { return "" }
