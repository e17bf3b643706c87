// Package agent is the loop of the speaker: wake, take the newest snapshot, decide,
// apply in the right order, report. It knows nothing of the kernel, of BGP or of
// Kubernetes; whoever starts it hands in the parts that do.
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
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// Source gives the newest snapshot of the cluster, nil before the first complete one.
type Source interface {
	Snapshot() *view.Cluster
	Changed() <-chan struct{}
}

// Forwarder makes the kernel forward as wanted, and tells which ports are not in place
// as wanted, also when it errs.
type Forwarder interface {
	Apply(ctx context.Context, want desired.Forwarding) (desired.Missing, error)
	// Clean deletes the flows that what was applied has made stale. It may take long.
	Clean() error
}

// Health answers those who ask whether this node serves.
type Health interface {
	// Begin is told that a pass begins, for this snapshot.
	Begin(cluster *view.Cluster)
	// Apply is told what became of the forwarding in this pass.
	Apply(want desired.Node, missing desired.Missing, err error)
}

// Layer2 takes what this node may answer for on its networks.
type Layer2 interface {
	Apply(ctx context.Context, want Answers) error
}

// BGP makes the sessions and routes as wanted. The routes are to be looked at during the call alone.
type BGP interface {
	Apply(ctx context.Context, want map[string]desired.Session) error
	// Drain has routers prefer other paths, and gives them time for that.
	Drain(ctx context.Context) error
}

// Reporter is told what became of every pass.
type Reporter interface {
	Report(Outcome)
}

// Answers is the whole layer 2 state of this node.
type Answers struct {
	Mesh desired.Mesh
	// Addrs are this node's own addresses; they name the interfaces that an
	// address outside of every local subnet is answered on.
	Addrs  []netip.Addr
	Claims map[netip.Addr]desired.Claim // those whose forwarding is in the kernel
	// Elsewhere are the addresses that only other nodes may answer for.
	Elsewhere []netip.Addr
	// BFD are the sessions beside those of BGP, by BGPPeer name.
	BFD map[string]desired.BFD
	// Unnumbered are the interfaces at whose other ends routers are to be found.
	Unnumbered []string
	// Unable are the addresses that this node ought to serve and cannot, so
	// that the next candidate does.
	Unable  []netip.Addr
	Leaving bool // this node hands everything over: it goes for good
}

// Outcome is what one pass found and did.
type Outcome struct {
	Cluster  *view.Cluster
	Want     desired.Node
	Missing  desired.Missing
	Problems []problem.Problem
	Err      error // of any applier
	Duration time.Duration
	// Announced: this process has told the networks and routers of what is wanted, in this
	// pass or an earlier one.
	Announced bool
}

// Config is what an Agent works with; all of it is needed.
type Config struct {
	Options    desired.Options
	Source     Source
	Forwarding Forwarder
	// Disturbed tells that Forwarding is to be applied although nothing changed.
	Disturbed <-chan struct{}
	Health    Health
	Layer2    Layer2
	BGP       BGP
	Reporter  Reporter
	Log       *slog.Logger
	// Resync is how often the whole state is applied although nothing changed and
	// nobody told of a disturbance.
	Resync time.Duration
	// Grace is how long routers have to prefer other paths to one that would still work, before
	// it is withdrawn; 0 for none.
	Grace time.Duration
}

// Agent runs the loop. One goroutine owns it.
type Agent struct {
	Config
	engine    *desired.Engine
	announced announced
	// announcing is the state of the decision that was announced without anything
	// missing, 0 if something was or not everybody has been told.
	announcing uint64
	absent     map[addr.Family]bool // the families that this host had not then
	mesh       desired.Mesh         // as last told
	bfd        map[string]desired.BFD
	unnumbered []string
	leaving    []leaving     // what routers are asked to leave
	told       bool          // this process has told the world something
	unclean    time.Time     // since when Clean is put off; zero if it is not
	failing    string        // the text of the last error, to log a change only
	retry      time.Duration // 0: the last pass went well
}

// The time to the next attempt after a failure doubles between these.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// New makes an agent that has applied nothing yet.
func New(c Config) *Agent { return &Agent{Config: c, engine: desired.NewEngine(c.Options)} }

// Run works until ctx ends. It leaves everything as it is then: the kernel goes on
// forwarding and the process may come back.
func (a *Agent) Run(ctx context.Context) error {
	timer := time.NewTimer(a.Resync)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.Source.Changed():
		case <-a.Disturbed:
		case <-timer.C:
			a.announcing, a.announced.at = 0, 0 // tell all of it again
		}
		cluster := a.Source.Snapshot()
		if cluster == nil {
			continue // nothing is touched before the cluster is known; Changed comes
		}
		timer.Reset(a.after(a.pass(ctx, cluster)))
	}
}

// pass brings the node to what the snapshot wants, in the order that never lets an
// address point at a node that cannot serve it: withdraw, program, announce. What nobody
// waits for comes after that.
func (a *Agent) pass(ctx context.Context, cluster *view.Cluster) error {
	began := time.Now()
	a.Health.Begin(cluster)
	want, problems := a.engine.Decide(cluster)
	var errs []error
	announce := cluster.Configured && want.Announcing != a.announcing
	if announce {
		errs = append(errs, a.withdraw(ctx, want))
	}
	missing, err := a.Forwarding.Apply(ctx, want.Forwarding)
	errs = append(errs, err)
	if ctx.Err() != nil {
		return errors.Join(errs...) // cut short: what was told stays, the kernel has it
	}
	a.Health.Apply(want, missing, err)
	// What is missing of a family that the host has not at all is told once: nothing is tried for it.
	absent := desired.Absent(err)
	lacking := missing.Besides(absent)
	if announce = cluster.Configured && (announce || len(lacking) > 0 || !maps.Equal(absent, a.absent)); announce && !a.patient(want, lacking, err) {
		told := a.announce(ctx, want, missing)
		errs = append(errs, told)
		if a.announcing, a.absent = 0, absent; told == nil && len(lacking) == 0 {
			a.announcing = want.Announcing
		}
	}
	err = errors.Join(append(errs, a.clean())...)
	a.Reporter.Report(Outcome{
		Cluster: cluster, Want: want, Missing: missing, Problems: problems, Err: err, Duration: time.Since(began),
		Announced: a.told,
	})
	return err
}

// cleanWithin is for how long changes that come one after another put Clean off.
const cleanWithin = time.Second

// clean deletes stale flows, unless there is news of the cluster already: a Service gets
// its address milliseconds after it was created, and more clients wait for its route than
// have flows to be deleted.
func (a *Agent) clean() error {
	news := len(a.Source.Changed()) > 0
	if news && a.unclean.IsZero() {
		a.unclean = time.Now()
	}
	if news && time.Since(a.unclean) < cleanWithin {
		return nil
	}
	a.unclean = time.Time{}
	return a.Forwarding.Clean()
}

// patience is how far the pause between attempts may grow while a process that has told
// nothing yet waits for the kernel to take its first rules: some four attempts.
const patience = 2 * time.Second

// patient tells whether to try the kernel again before the first announcement. A new
// process finds the rules, answers and routes of the one before it; to withdraw all of
// them because one write failed would be worse than to wait for the next.
func (a *Agent) patient(want desired.Node, missing desired.Missing, err error) bool {
	return desired.Failing(err) != nil && !a.told && a.retry < patience && lacksFamily(want.Forwarding, missing)
}

// withdraw stops announcing what is no longer wanted, while its forwarding is still
// in place. What is wanted in another way stays as it was announced until announce.
func (a *Agent) withdraw(ctx context.Context, want desired.Node) error {
	now, before := time.Now(), len(a.leaving)
	a.leaving = slices.DeleteFunc(a.leaving, func(l leaving) bool { return !l.goesOn(want, a.engine.Serves, now) })
	gone, fewer := a.announced.withdraw(want)
	if !fewer {
		if len(a.leaving) < before {
			return a.tell(ctx, want, nil)
		}
		return nil
	}
	if a.Grace > 0 {
		for _, l := range parting(gone, a.bfd, a.engine.Serves, now.Add(a.Grace)) {
			if l.goesOn(want, a.engine.Serves, now) {
				a.leaving = append(a.leaving, l)
			}
		}
	}
	return a.tell(ctx, want, nil)
}

// announce tells of everything that is wanted and whose forwarding is in place.
func (a *Agent) announce(ctx context.Context, want desired.Node, missing desired.Missing) error {
	unable := a.announced.announce(want, missing)
	return a.tell(ctx, want, unable)
}

// tell tells of what is announced.
func (a *Agent) tell(ctx context.Context, want desired.Node, unable []netip.Addr) error {
	say := a.announced
	a.mesh, a.told = want.Mesh, true
	var sessions map[string]desired.Session
	sessions, a.bfd, a.unnumbered = withLeaving(say, want, a.leaving)
	var networks, routers error
	var telling sync.WaitGroup // neither waits for the other
	telling.Go(func() {
		networks = a.Layer2.Apply(ctx, Answers{
			Mesh: want.Mesh, Addrs: want.Addrs, Claims: say.claims, Elsewhere: want.Elsewhere,
			BFD: a.bfd, Unnumbered: a.unnumbered, Unable: unable,
		})
	})
	routers = a.BGP.Apply(ctx, sessions)
	telling.Wait()
	return errors.Join(networks, routers)
}

// after is when to try again: soon and then ever later after failures, else at the
// next resync. It logs when the failure changes, not each time that it is met.
func (a *Agent) after(err error) time.Duration {
	if err = desired.Failing(err); err == nil {
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

// untilLeft is when the next route is to be withdrawn that routers were asked to leave, at the latest
// the next resync.
func (a *Agent) untilLeft() time.Duration {
	next := a.Resync
	for _, l := range a.leaving {
		next = min(next, max(time.Until(l.until), 0))
	}
	return next
}

// Leave hands over to the other nodes for good, as before an uninstall: it asks for
// nothing to be answered or announced by this node any more. Run must have returned.
// What still arrives is forwarded.
func (a *Agent) Leave(ctx context.Context) error {
	return errors.Join(
		// BFD stays until BGP has said its last word: routers that hear AdminDown before
		// may take the node for dead.
		a.Layer2.Apply(ctx, Answers{Mesh: a.mesh, BFD: a.bfd, Unnumbered: a.unnumbered, Leaving: true}),
		a.BGP.Drain(ctx),
		a.BGP.Apply(ctx, nil),
		a.Layer2.Apply(ctx, Answers{Mesh: a.mesh, Leaving: true}),
	)
}
