// Package agent is the loop of the speaker: wake, take the newest snapshot, decide,
// apply in the right order, report. It knows nothing of the kernel, of BGP or of
// Kubernetes; package speaker hands in the parts that do.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// Source gives the newest snapshot of the cluster, nil before the first complete one. Changed
// receives when there is a newer one.
type Source interface {
	Snapshot() *view.Cluster
	Changed() <-chan struct{}
}

// Forwarder makes the kernel forward as wanted. Apply returns the ports that are not in place
// as wanted, also beside an error. It is to be called again at once if that has a *outcome.PutOffError.
type Forwarder interface {
	Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error)
	// Clean deletes the flows that what was applied has made stale. It may take long, and is called beside Apply. It returns
	// after how long it is to be called again for those that it has put off, 0 if there are none.
	Clean() (again time.Duration, err error)
	// CleanWithin returns for how long Clean may be put off.
	CleanWithin() time.Duration
}

// Health answers health checks of this node.
type Health interface {
	// Begin is told that a pass begins, for this snapshot.
	Begin(cluster *view.Cluster)
	// Apply is told what became of the forwarding in this pass.
	Apply(want desired.Node, missing outcome.Missing, err error)
}

// Layer2 takes what this node may answer for on its networks.
type Layer2 interface {
	// Offer hands over a table, and waits for a moment at most until it is in effect: a pass goes on without that.
	Offer(ctx context.Context, want api.Table) error
	// Apply waits longer for that, as nothing else does.
	Apply(ctx context.Context, want api.Table) error
}

// BGP makes the sessions and routes as wanted. It reads the routes during the call alone.
type BGP interface {
	Apply(ctx context.Context, want map[string]desired.Session) error
	// Drain asks routers to prefer other paths, and gives them time for that.
	Drain(ctx context.Context) error
}

// Reporter takes the outcome of every pass.
type Reporter interface {
	Report(Outcome)
}

// Outcome is what one pass found and did.
type Outcome struct {
	Cluster  *view.Cluster
	Want     desired.Node
	Missing  outcome.Missing
	Problems []problem.Problem
	Err      error // of any applier
	Duration time.Duration
	// Announced: this process has published to pulse and routers, in this pass or an earlier one.
	Announced bool
}

// Config is what an Agent works with; all of it is needed.
type Config struct {
	Options    desired.Options
	Source     Source
	Forwarding Forwarder
	// Disturbed receives when Forwarding is to be applied although nothing changed.
	Disturbed <-chan struct{}
	Health    Health
	Layer2    Layer2
	BGP       BGP
	Reporter  Reporter
	Log       *slog.Logger
	// Resync is how often the whole state is applied although nothing changed or was
	// disturbed.
	Resync time.Duration
	// Grace is how long routers have to prefer other paths to one that would still work, before
	// it is withdrawn; 0 for none.
	Grace time.Duration
}

// Agent runs the loop. One goroutine owns it.
type Agent struct {
	Config
	engine       *desired.Engine
	published    published
	hasPublished bool                 // this process, ever
	absent       map[addr.Family]bool // the families that this host lacked when it published
	mesh         desired.Mesh         // as published, and so are digests
	digests      desired.Digests
	bfd          map[string]desired.BFD
	unnumbered   []string
	leaving      []leaving     // routes that routers are asked to leave
	putOff       time.Time     // since when Clean is put off; zero if it is not
	cleanAt      time.Time     // until when it is, then
	cleaning     bool          // Clean runs
	cleaned      chan cleaned  // receives when it has ended
	more         chan struct{} // receives when a part of what is wanted is put off
	unclean      error         // what it returned last
	restUntil    time.Time     // it takes a part of the time only
	failing      string        // the text of the last error, to log a change only
	retry        time.Duration // 0: the last pass went well
}

// The time to the next attempt after a failure doubles between these.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// New returns an agent that has applied nothing yet.
func New(c Config) *Agent {
	return &Agent{Config: c, engine: desired.NewEngine(c.Options), cleaned: make(chan cleaned), more: make(chan struct{}, 1)}
}

// Run works until ctx ends, and returns no error. It leaves everything as it is then: the kernel
// goes on forwarding and the process may come back.
func (a *Agent) Run(ctx context.Context) error {
	timer := time.NewTimer(a.Resync)
	defer timer.Stop()
	defer func() {
		if a.cleaning {
			<-a.cleaned
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.Source.Changed():
		case <-a.Disturbed:
		case <-a.more:
		case <-a.timeToClean():
		case c := <-a.cleaned:
			failed := a.unclean != nil
			rests := max(rest*c.took, c.again)
			if c.err == nil {
				rests = max(rests, leastRest)
			}
			a.cleaning, a.unclean, a.restUntil = false, c.err, time.Now().Add(rests)
			if c.again > 0 {
				a.putOff, a.cleanAt = time.Now(), a.restUntil
			}
			if c.err != nil {
				timer.Reset(a.after(c.err))
			}
			if c.err != nil || !failed {
				continue
			}
		case <-timer.C:
			a.published.wanted = 0 // publish all of it again
		}
		cluster := a.Source.Snapshot()
		if cluster == nil {
			continue // nothing is touched before the cluster is known; Changed comes
		}
		timer.Reset(a.after(a.pass(ctx, cluster)))
	}
}

// pass brings the node to what the snapshot wants, in the order that never lets an
// address point at a node that cannot serve it: withdraw, program, announce. Cleaning up, for which
// no client waits, comes after that, beside the next passes.
func (a *Agent) pass(ctx context.Context, cluster *view.Cluster) error {
	began := time.Now()
	a.Health.Begin(cluster)
	want, problems := a.engine.Decide(cluster)
	var errs []error
	announce := cluster.Configured && want.Announced.Revision != a.published.wanted
	if announce {
		errs = append(errs, a.withdraw(ctx, want))
	}
	missing, err := a.Forwarding.Apply(ctx, want.Forwarding)
	errs = append(errs, err)
	if ctx.Err() != nil {
		return errors.Join(errs...) // cut short: what was published stays, the kernel has it
	}
	putOff := outcome.PutOff(err)
	if len(putOff) > 0 {
		signal.Send(a.more)
	}
	a.Health.Apply(want, missing, err)
	// What is missing of a family that the host lacks is published once: there is no point in trying again.
	absent := outcome.Absent(err)
	held := a.published.heldUp(want.Forwarding, missing, putOff)
	lacking := held.Besides(absent)
	if announce = cluster.Configured && (announce || len(lacking) > 0 || !maps.Equal(absent, a.absent)); announce && !a.deferFirstPublish(want, lacking, err) {
		err := a.publish(ctx, want, a.published.announce(want, held))
		errs = append(errs, err)
		if a.published.wanted, a.absent = 0, absent; err == nil && len(lacking) == 0 {
			a.published.wanted = want.Announced.Revision
		}
	}
	err = errors.Join(append(errs, a.clean())...)
	a.Reporter.Report(Outcome{
		Cluster: cluster, Want: want, Missing: missing, Problems: problems, Err: err, Duration: time.Since(began),
		Announced: a.hasPublished,
	})
	return err
}

// cleanWithin is for how long changes that come one after another put Clean off.
const cleanWithin = time.Second

// clean has stale flows deleted beside the next passes, unless the cluster has changed again: a Service gets
// its address milliseconds after it was created, and more clients wait for its route than
// have flows to be deleted. It returns the error of the last time.
func (a *Agent) clean() error {
	now, wait := time.Now(), a.Forwarding.CleanWithin()
	if len(a.Source.Changed()) > 0 {
		wait = cleanWithin
	}
	if a.putOff.IsZero() {
		a.putOff = now
	}
	if a.cleanAt = latest(a.putOff.Add(wait), a.restUntil); a.cleaning || now.Before(a.cleanAt) {
		return a.unclean
	}
	a.putOff, a.cleaning = time.Time{}, true
	go func() {
		again, err := a.Forwarding.Clean()
		a.cleaned <- cleaned{err, time.Since(now), again}
	}()
	return a.unclean
}

// cleaned is what became of a Clean.
type cleaned struct {
	err   error
	took  time.Duration
	again time.Duration // what is put off is due then; 0: nothing is
}

// rest is for how long Clean rests, as a multiple of the time that it took: a Service whose endpoints change all
// the time takes no more than a third of a processor, however many flows there are. Where changes follow one another, one search is
// for all of some time: it takes the kernel milliseconds even if its table is empty, and clients that were not answered ask again
// after a second.
const (
	rest      = 2
	leastRest = 400 * time.Millisecond
)

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// timeToClean returns a channel that receives when Clean has been put off for long enough; nil if it is not put off, or
// runs.
func (a *Agent) timeToClean() <-chan time.Time {
	if a.putOff.IsZero() || a.cleaning {
		return nil
	}
	return time.After(time.Until(a.cleanAt))
}

// firstPublishIn bounds the pause between attempts while a process that has published
// nothing yet waits for the kernel to take its first rules: some four attempts.
const firstPublishIn = 2 * time.Second

// deferFirstPublish reports whether to try the kernel again before the first publication. A new
// process finds the rules, answers and routes of the one before it; to withdraw all of
// them because one write failed would be worse than to wait for the next.
func (a *Agent) deferFirstPublish(want desired.Node, missing outcome.Missing, err error) bool {
	return outcome.Failing(err) != nil && !a.hasPublished && a.retry < firstPublishIn && lacksFamily(want.Forwarding, missing)
}

// withdraw stops announcing what is no longer wanted, while its forwarding is still
// in place. Routes that change their attributes keep the old ones until the last step of the pass.
func (a *Agent) withdraw(ctx context.Context, want desired.Node) error {
	now, before := time.Now(), len(a.leaving)
	goesOn := func(l leaving) bool { return l.goesOn(want, a.engine.Serves, now) }
	a.leaving = slices.DeleteFunc(a.leaving, func(l leaving) bool { return !goesOn(l) })
	gone, fewer := a.published.withdraw(want)
	if !fewer && len(a.leaving) == before {
		return nil
	}
	if a.Grace > 0 {
		for _, l := range gone {
			l.until = now.Add(a.Grace)
			if bfd, ok := a.bfd[l.peer]; ok {
				l.bfd = &bfd
			}
			if goesOn(l) {
				a.leaving = append(a.leaving, l)
			}
		}
	}
	return a.publish(ctx, want, nil)
}

// publish hands what is published to pulse and to the routers.
func (a *Agent) publish(ctx context.Context, want desired.Node, unable []netip.Addr) error {
	a.mesh, a.digests, a.hasPublished = want.Mesh, want.Digests, true
	var sessions map[string]desired.Session
	sessions, a.bfd, a.unnumbered = withLeaving(&a.published, want, a.leaving)
	var layer2 error
	var wait sync.WaitGroup // neither waits for the other
	table := a.table()
	table.Serving, table.NodeAddrs, table.Claims, table.Elsewhere, table.Unable = true, want.Addrs, a.published.claims, want.Elsewhere, unable
	wait.Go(func() { layer2 = a.Layer2.Offer(ctx, table) })
	bgp := a.BGP.Apply(ctx, sessions)
	wait.Wait()
	return errors.Join(layer2, bgp)
}

// table returns what pulse is told in any case.
func (a *Agent) table() api.Table {
	t := api.Table{Node: a.Options.Node, Key: a.mesh.Key, Peers: make(map[string]hello.Peer, len(a.mesh.Peers)), BFD: a.bfd, Unnumbered: a.unnumbered, Digests: a.digests}
	for node, peer := range a.mesh.Peers {
		t.Peers[node] = hello.Peer(peer)
	}
	return t
}

// after returns the time to the next pass: short and then ever longer after failures, else
// until the next resync. It logs a failure when it changes, not each time.
func (a *Agent) after(err error) time.Duration {
	if err = outcome.Failing(err); err == nil {
		if a.failing != "" {
			a.Log.Info("everything is applied again")
		}
		a.failing, a.retry = "", 0
		return a.untilLeft()
	}
	if text := err.Error(); text != a.failing {
		a.failing = text
		a.Log.Error("not everything could be applied; it is tried again", "error", err)
	}
	a.retry = min(max(2*a.retry, firstRetry), lastRetry)
	return min(a.retry, a.untilLeft())
}

// untilLeft returns the time until the next route is withdrawn that routers were asked to leave, at
// most until the next resync.
func (a *Agent) untilLeft() time.Duration {
	next := a.Resync
	for _, l := range a.leaving {
		next = min(next, max(time.Until(l.until), 0))
	}
	return next
}

// Leave hands over to the other nodes for good, as before an uninstall or when the machine shuts down:
// this node answers for and announces nothing any more, and forwards what still arrives. Run must have
// returned. The error joins those of Layer2 and BGP.
func (a *Agent) Leave(ctx context.Context, shutsDown bool) error {
	table := a.table()
	table.Leaving, table.ShutsDown = true, shutsDown
	after := table
	after.BFD, after.Unnumbered = nil, nil
	return errors.Join(
		// BFD stays until the BGP sessions have ended: routers that receive AdminDown before
		// may take the node for dead.
		a.Layer2.Apply(ctx, table),
		a.BGP.Drain(ctx),
		a.BGP.Apply(ctx, nil),
		a.Layer2.Apply(ctx, after),
	)
}
