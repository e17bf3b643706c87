package reconcile

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
)

const (
	// writers is how many statuses are written at the same time, and retriers how many
	// of those that failed before: many that hang must not hold up the others.
	writers, retriers = 16, 4

	firstRetry, lastRetry = 100 * time.Millisecond, time.Minute
)

// writer is the part of a client that is used here.
type writer interface {
	Status() client.SubResourceWriter
	Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error
}

// write is the wanted status of one object, or that it is to go.
type write struct {
	base   client.Object // as the informer knows it; only read
	next   client.Object // a copy of base with the wanted status; nil: delete it
	events []status.Event
}

type queue = workqueue.TypedRateLimitingInterface[problem.Object]

// publisher brings statuses to the API server, each as often as it takes, none
// waiting for another. A write holds only for the version that it was made from:
// once a version was written to, or found out of date, nothing more is written
// until the informer shows a newer one and the next pass has looked at it.
type publisher struct {
	client  writer
	events  events.EventRecorder
	log     *slog.Logger
	metrics *Metrics
	queue   queue                 // of those whose last write did not fail
	retries queue                 // of the others
	timeout time.Duration         // of one write
	same    conversion.Equalities // but for when a condition began

	mu       sync.Mutex
	wanted   map[problem.Object]write
	spent    map[problem.Object]string // resource versions with nothing more to write
	failed   map[problem.Object]string // what was last said about a write that fails
	contests contests
}

func newPublisher(c writer, recorder events.EventRecorder, log *slog.Logger, metrics *Metrics, timeout time.Duration) *publisher {
	same := conversion.EqualitiesOrDie(func(a, b metav1.Condition) bool {
		a.LastTransitionTime = b.LastTransitionTime
		return a == b
	})
	maps.Copy(same.Equalities, equality.Semantic.Equalities)
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[problem.Object](firstRetry, lastRetry)
	return &publisher{
		client: c, events: recorder, log: log, metrics: metrics, timeout: timeout,
		queue:    workqueue.NewTypedRateLimitingQueue(limiter),
		retries:  workqueue.NewTypedRateLimitingQueue(limiter),
		same:     same,
		spent:    map[problem.Object]string{},
		failed:   map[problem.Object]string{},
		contests: contests{of: map[problem.Object]*contest{}, fought: map[problem.Object]struct{}{}},
	}
}

// run writes until the context ends and returns when no write is under way.
func (p *publisher) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range writers {
		workers.Go(func() { p.work(ctx, p.queue) })
	}
	for range retriers {
		workers.Go(func() { p.work(ctx, p.retries) })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	p.retries.ShutDown()
	workers.Wait()
}

func (p *publisher) work(ctx context.Context, q queue) {
	for {
		object, shutdown := q.Get()
		if shutdown {
			return
		}
		p.publish(ctx, q, object)
		q.Done(object)
	}
}

// apply takes the whole of what is to be written. It does not wait for it. What was wanted
// before is in a queue, or waits to be tried again.
func (p *publisher) apply(wanted map[problem.Object]write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.wanted
	p.wanted = wanted
	for object, version := range p.spent {
		if w, ok := wanted[object]; !ok || w.base.GetResourceVersion() != version {
			delete(p.spent, object)
		}
	}
	for object := range p.failed {
		if _, ok := wanted[object]; !ok {
			delete(p.failed, object)
		}
	}
	now := time.Now()
	for object, w := range wanted {
		if p.spent[object] == w.base.GetResourceVersion() {
			continue
		}
		p.contests.judge(object, w, now)
		if last, known := before[object]; !known || !p.repeats(last, w) {
			p.queueOf(object).AddAfter(object, countsWait(w))
		}
	}
}

// countsLate is how much later than addresses the counts of pools are written: clients wait for the former, and
// many changes of the latter are one then.
const countsLate = 200 * time.Millisecond

// countsWait returns for how long a write waits: one that tells of nothing but what a pool has left may. So do the
// messages of its conditions, which count as well.
func countsWait(w write) time.Duration {
	before, ok := w.base.(*v1beta1.IPAddressPool)
	after, still := w.next.(*v1beta1.IPAddressPool)
	same := func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.ObservedGeneration == b.ObservedGeneration
	}
	if !ok || !still || !slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, same) {
		return 0
	}
	return countsLate
}

// repeats reports whether two writes to one object are one.
func (p *publisher) repeats(a, b write) bool {
	return a.base.GetResourceVersion() == b.base.GetResourceVersion() && (a.next == b.next || p.same.DeepEqual(a.next, b.next))
}

func (p *publisher) queueOf(object problem.Object) queue {
	if _, failed := p.failed[object]; failed {
		return p.retries
	}
	return p.queue
}

// contested are the objects whose status another program writes, too, and until when that counts.
func (p *publisher) contested(now time.Time) map[problem.Object]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.contests.lasting(now)
}

// next is what to write for the object, if anything, how long that is to wait, and in which
// queue it belongs.
func (p *publisher) next(object problem.Object) (w write, wait time.Duration, q queue, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok = p.wanted[object]
	return w, time.Until(p.contests.due(object)), p.queueOf(object), ok && p.spent[object] != w.base.GetResourceVersion()
}

func (p *publisher) publish(ctx context.Context, from queue, object problem.Object) {
	w, wait, q, ok := p.next(object)
	switch {
	case !ok || ctx.Err() != nil:
		p.retries.Forget(object)
		return
	case wait > 0:
		q.AddAfter(object, wait)
		return
	case q == p.retries && from != q:
		q.Add(object) // it was wanted anew while it failed
		return
	}
	err := p.send(ctx, w)
	if w.next != nil {
		p.metrics.wrote(object.Kind, err)
	}
	switch {
	case ctx.Err() != nil:
		return // no longer the leader, or about to end
	case err == nil:
		for _, e := range p.written(object, w) {
			p.events.Eventf(w.base, nil, e.Type, e.Reason, e.Action, "%s", e.Note)
			p.log.Info("wrote a status that has news", "object", object.String(), "reason", e.Reason, "note", e.Note)
		}
		p.spend(object, w)
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		p.spend(object, w) // the informer is about to say what is there now
	default:
		p.fail(object, err)
	}
}

// send writes one status, or deletes the object, if it is still at the version that this was decided for.
func (p *publisher) send(ctx context.Context, w write) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if w.next == nil {
		uid, version := w.base.GetUID(), w.base.GetResourceVersion()
		return p.client.Delete(ctx, w.base.DeepCopyObject().(client.Object), client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
	return p.client.Status().Patch(ctx, w.next.DeepCopyObject().(client.Object), client.MergeFromWithOptions(w.base, client.MergeFromWithOptimisticLock{}))
}

// written notes that the write has succeeded, and returns what there is to tell of it.
func (p *publisher) written(object problem.Object, w write) []status.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.contests.written(object, w, time.Now())
}

func (p *publisher) spend(object problem.Object, w write) {
	p.retries.Forget(object)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent[object] = w.base.GetResourceVersion()
	delete(p.failed, object)
}

// fail has the write tried again, and says so unless it said the same before.
func (p *publisher) fail(object problem.Object, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retries.AddRateLimited(object)
	if p.failed[object] != err.Error() {
		p.failed[object] = err.Error()
		p.log.Warn("cannot write a status; trying again", "object", object.String(), "error", err)
	}
}
