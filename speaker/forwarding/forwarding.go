// Package forwarding brings the kernel of this node to desired.Forwarding. Forwarder.Apply lists what that
// takes, in order; the backends below it write the rules.
package forwarding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
	"fairlead.dev/fairlead/speaker/forwarding/endedflows"
	"fairlead.dev/fairlead/speaker/forwarding/iptables"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
	"fairlead.dev/fairlead/speaker/forwarding/reusedports"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
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

// Backend keeps the rules in the kernel as wanted.
type Backend interface {
	// Apply brings the rules to want and returns which ports are not in the kernel as
	// wanted, or still are though they are not wanted, also beside an error. Those of large Services may be put
	// off, which a *outcome.PutOffError says: the next Apply goes on with them. It is cheap when nothing
	// changed, and repairs what others changed, so it may be called on every occasion. It
	// keeps no map of want.
	Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error)
	// Watch calls disturbed, until ctx ends, when an Apply would find something to do
	// though nothing else is wanted: others changed what is ours, or what kept the last
	// Apply from its work is over. It notices within a fraction of a second, may be
	// called beside all other methods, and may call once too often. While it runs others
	// are kept from what is ours, where the kernel can do that.
	Watch(ctx context.Context, disturbed func())
	// Cleanup removes everything that Apply ever put into the kernel. The errors are the kernel's.
	Cleanup(ctx context.Context) error
	Gauge
}

// Gauge is what a backend knows of itself. It costs nothing.
type Gauge interface {
	// Tally counts, for one family, the rules (with nftables the map elements) that
	// the kernel has of ours, and how many chains, sets and the like were found changed
	// by others since the process began.
	Tally(family addr.Family) (rules, repairs int)
	// AffinityOverflows counts, for one family, the lists of clients of session affinity that had no
	// room for another when they were last looked at, about once a minute.
	AffinityOverflows(family addr.Family) int
	// Tool names what writes the rules: iptables-nft, iptables-legacy or nftables; ""
	// while that is not known.
	Tool() string
}

// Config says how to forward.
type Config struct {
	Mode    Mode
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
	// RouteLocalnet is where the file RouteLocalnet can be written; "": in its place.
	RouteLocalnet string
	// Conntrack is what the connection table is to have, and ConntrackDir where
	// sysctl.Dir can be written; "": in its place.
	Conntrack    sysctl.Want
	ConntrackDir string
	// Settled is called once, when the kernel first has all that it will ever take of what is wanted; nil:
	// nothing is.
	Settled func()
}

// Forwarder keeps all that forwards Services on this node as wanted: the rules of a backend, the settings of
// the kernel that they need, and the connection table.
type Forwarder struct {
	Gauge    // of the backend; nil in mode None
	mode     Mode
	backend  Backend
	families familyDetection
	flows    *conntrackReconciler
	pings    *pings
	reused   *reusedports.Finder
	ended    *endedflows.Sweeper
	metrics  *metrics
	log      *slog.Logger
	modes    *modeSwitch
	localnet *routeLocalnet
	host     *host
	sysctls  *sysctl.Table
	settled  func()
}

// New returns what forwards in a mode, or an error that names the modes there are. Nothing is written yet.
func New(c Config) (*Forwarder, error) {
	setting := localnet(cmp.Or(c.RouteLocalnet, RouteLocalnet))
	generation := &kernelwatch.Generation{Beside: kernelwatch.HandoverTable}
	f := &Forwarder{mode: c.Mode, settled: c.Settled, log: c.Log}
	f.modes = &modeSwitch{log: c.Log}
	switch c.Mode {
	case IPTables:
		b := iptables.New(iptables.Config{Log: c.Log, Generation: generation})
		f.backend = b
		f.modes.cleanup = func(ctx context.Context) error { return errors.Join(nftables.Remove(ctx), b.RemoveOther(ctx)) }
	case NFTables:
		f.backend = nftables.New(nftables.Config{Log: c.Log, Generation: generation})
		f.modes.cleanup = iptables.Remove
	case None:
		f.modes.ready, f.modes.cleanup = othersForward, setting.removeAll
		return f, nil
	default:
		return nil, fmt.Errorf("forwarding mode %q: choose %s, %s or %s", c.Mode, IPTables, NFTables, None)
	}
	f.Gauge = f.backend
	f.families = thisHost()
	f.metrics = newMetrics(c.Metrics)
	if c.Metrics != nil {
		c.Metrics.MustRegister(handedOver{})
	}
	f.flows = newConntrackReconciler(f.metrics.timed(conntrack.Delete), inheritedRules, newFlowJournal())
	f.pings = newPings()
	f.reused = reusedports.New(generation, c.Log)
	f.ended = endedflows.New(f.metrics.deleted, c.Log)
	f.localnet = &routeLocalnet{setting: setting}
	f.host = newHost()
	f.sysctls = sysctl.New(c.ConntrackDir, c.Conntrack, c.Log)
	return f, nil
}

// Apply brings the kernel to want and returns which ports are not in the kernel as wanted, or still are
// though they are not wanted, also beside an error. The error joins a *outcome.FamilyError for each family
// that failed, with a *outcome.RefusedError for each port that the kernel refuses, a *outcome.PutOffError if ports of
// large Services are put off, and a *outcome.SettingError for each setting. What failed is tried again by the next Apply.
func (f *Forwarder) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	if f.mode == None {
		f.modes.cleanUp(ctx, want)
		f.settle()
		return nil, nil
	}
	f.flows.Lock()
	defer f.flows.Unlock()
	// The guard of loopback addresses is there before the setting that it makes safe, and goes after it.
	want.Guard = f.localnet.switchOff(want)
	var routes error
	want.Sources, routes = f.host.sourcesOf(want)
	f.host.note(want)
	began := time.Now()
	// The flows of UDP ports that go are written down before their rules go.
	unread := f.flows.prepare(want)
	missing, err := f.backend.Apply(ctx, want)
	f.families.explain(err)
	err = errors.Join(err, f.families.unserved(want, missing, outcome.Absent(err)))
	complete := len(outcome.Behind(missing, err)) == 0
	// Clean deletes what is stale.
	f.flows.follow(want, missing, err, f.backend)
	f.pings.follow(want, missing)
	f.metrics.count(want, missing, err, time.Since(began), f.backend)
	if complete {
		f.modes.cleanUp(ctx, want)
		f.settle()
	}
	return missing, errors.Join(err, unread, routes,
		f.host.forwards(want, missing, outcome.Absent(err)),
		f.localnet.switchOn(want, err),
		// On a machine that has just booted, the rules have the kernel load the module of these settings.
		f.sysctls.Apply())
}

func (f *Forwarder) settle() {
	if f.settled != nil {
		go f.settled()
		f.settled = nil
	}
}

// Clean deletes the flows that the rules would send elsewhere now, or past which they
// went. It looks through the connection table, which takes milliseconds if that is
// empty and seconds if it is full; it may be called beside Apply, which does not wait for that. It returns after how long it is to be
// called again for what it has no time for now, 0 if there is nothing. The errors are the kernel's; what failed is tried the next time.
func (f *Forwarder) Clean() (again time.Duration, err error) {
	if f.mode == None {
		return 0, nil
	}
	again, err = f.flows.Clean()
	return again, errors.Join(err, f.pings.clean(f.flows))
}

// Owns takes in since when this node has answered for which addresses: connections to one that it has taken are handed over to the node
// that had it before, past what it still knows of earlier ones. The caller does not change the map any more.
func (f *Forwarder) Owns(owned map[netip.Addr]time.Time) {
	if f.mode != None { // else nothing is handed over
		f.ended.Owns(owned)
	}
}

// SweepEnded deletes, until ctx ends, the ended connections to addresses that this node has taken. It returns no error.
func (f *Forwarder) SweepEnded(ctx context.Context) error { return f.ended.Run(ctx) }

// newFlowsWait is for how long flows that began past a new destination may be left alone. A Service mostly gets its
// endpoints and its addresses within that time, and the search through the connection table would take the
// processors from those that give them.
const newFlowsWait = 250 * time.Millisecond

// CleanWithin returns for how long Clean may be put off: not at all if flows lead to what serves no more.
func (f *Forwarder) CleanWithin() time.Duration {
	if f.mode == None {
		return 0
	}
	f.flows.Lock()
	defer f.flows.Unlock()
	if !f.flows.onlyNew() {
		return 0
	}
	return newFlowsWait
}

// Watch calls disturbed, until ctx ends, when an Apply would find something to do though nothing else is
// wanted; see Backend.
func (f *Forwarder) Watch(ctx context.Context, disturbed func()) {
	if f.mode == None {
		<-ctx.Done()
		return
	}
	var looking sync.WaitGroup
	looking.Go(func() { kernelwatch.Poll(ctx, kernelwatch.Interval, f.host.disturbed, disturbed) })
	f.backend.Watch(ctx, disturbed)
	looking.Wait()
}

// Cleanup removes all rules that Apply ever put into the kernel. The errors are the kernel's.
func (f *Forwarder) Cleanup(ctx context.Context) error {
	if f.mode == None {
		return nil
	}
	return f.backend.Cleanup(ctx)
}
