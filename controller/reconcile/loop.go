// Package reconcile connects the decisions of the controller to a cluster. Any change wakes
// a pass, which decides for the whole cluster as it is now, at the cost of what has changed,
// and hands the statuses that differ to a publisher. Only the leader does this; the standby
// only keeps its copy of the cluster up to date.
package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/controller/ledger/configmaps"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

const (
	// restLeast and restMost bound the pause after a pass. It is as long as the
	// pass took, so that a storm of changes, those of our own writes among them,
	// takes half a core at most, and does not write the counts of pools for each of
	// them; a change after a quiet time never waits.
	restLeast, restMost = 20 * time.Millisecond, 100 * time.Millisecond
	// listRetry is the wait before Services and IPReservations are listed anew after a
	// failure.
	listRetry = time.Second
)

// Options are what a Loop works with.
type Options struct {
	// Classes are those of the Services to handle.
	Classes view.Classes
	// Requests reads what they ask for.
	Requests fromkube.Requests
	Nodes    fromkube.Nodes
	Own      Own

	// Namespace is where the ledger is kept.
	Namespace string
	Cache     cache.Informers
	Live      client.Reader // reads the API server itself
	Client    client.Client // writes statuses
	Events    events.EventRecorder
	Logger    *slog.Logger
	Metrics   *Metrics

	// WriteTimeout is how long one write may take. It is less than what lies between the
	// moment when a leader that cannot renew its lease gives up and the moment when
	// another one takes over.
	WriteTimeout time.Duration
}

// Loop decides and publishes. It is a run.Task.
type Loop struct {
	Options
	objects *objects
	synced  []toolscache.DoneChecker

	last   *decision
	ledger recall
	told   map[problem.Problem]bool

	waiting string    // what was last said of first addresses that are not given yet
	again   time.Time // when to read anew what these rest on; zero: not at all
}

// New makes a Loop and subscribes it to the informers, so that its mirror is
// warm before it leads. The error is that of an API server without our CRDs, or
// out of reach.
func New(ctx context.Context, o Options) (*Loop, error) {
	l := &Loop{Options: o, objects: newObjects(o.Requests, o.Nodes, o.Own), last: &decision{}, told: map[problem.Problem]bool{}}
	var err error
	l.synced, err = watchAll(ctx, o.Cache, l.objects)
	return l, err
}

func (*Loop) String() string { return "keeping statuses" }

// Ready returns an error until the mirror knows the whole cluster, on the leader and the stand-by
// alike.
func (l *Loop) Ready() error {
	for _, s := range l.synced {
		select {
		case <-s.Done():
		default:
			return errors.New("still reading: " + s.Name())
		}
	}
	return nil
}

// Run leads until the context ends, which is no error. It returns when no write is under way.
func (l *Loop) Run(ctx context.Context) error {
	for _, s := range l.synced {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Done():
		}
	}
	if !l.catchUp(ctx) {
		return nil
	}
	l.Logger.Info("leading")
	publisher := newPublisher(l.Client, l.Events, l.Logger, l.Metrics, l.WriteTimeout)
	l.ledger = recall{Keeper: configmaps.New(configmaps.Options{
		Namespace: l.Namespace, Live: l.Live, Client: l.Client, Logger: l.Logger,
		Timeout: l.WriteTimeout, Wrote: l.Metrics.recorded, Wake: l.objects.notify,
	})}
	var publishing sync.WaitGroup
	publishing.Go(func() { publisher.run(ctx) })
	publishing.Go(func() { l.ledger.Run(ctx) })
	defer publishing.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.objects.wake:
		case <-l.due():
		}
		began := time.Now()
		l.pass(ctx, publisher, began)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(restLeast, min(time.Since(began), restMost))):
		}
	}
}

// due fires when the passing of time alone calls for another pass.
func (l *Loop) due() <-chan time.Time {
	at := l.last.due()
	for _, next := range []time.Time{l.ledger.next, l.again} {
		if !next.IsZero() && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	if at.IsZero() {
		return nil
	}
	return time.After(time.Until(at))
}

func (l *Loop) catchUp(ctx context.Context) bool {
	said := ""
	for {
		err := l.objects.catchUp(ctx, l.Live)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if said != err.Error() {
			said = err.Error()
			l.Logger.Warn("cannot begin to lead; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(listRetry):
		}
	}
}

func (l *Loop) pass(ctx context.Context, p *publisher, now time.Time) {
	s := l.objects.snapshot()
	s.contested = p.contested(now)
	l.recall(ctx, s, now)
	d := decide(s, l.last, l.ledger, l.Classes, now)
	l.confirm(ctx, s, d, now)
	l.last = d
	l.ledger.Want(d.book)
	p.apply(d.writes)
	l.tell(d.problems)
	l.Metrics.passed(time.Since(now), d)
}

// tell logs the problems that came and went since the last pass.
func (l *Loop) tell(problems []problem.Problem) {
	told := make(map[problem.Problem]bool, len(problems))
	for _, p := range problems {
		told[p] = true
		if !l.told[p] {
			l.Logger.Warn("an object does not get what it asks for", "object", p.Object.String(), "reason", p.Reason, "message", problem.Clip(p.Message, status.MaxNote))
			l.event(p)
		}
	}
	for p := range l.told {
		if !told[p] {
			l.Logger.Info("a problem is gone", "object", p.Object.String(), "reason", p.Reason)
		}
	}
	l.told = told
}
