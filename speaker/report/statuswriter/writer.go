// Package statuswriter writes the state of this node to status objects: its BGP sessions to BGPSessions, the
// addresses that it answers for to L2Addresses, and its forwarding to a NodeForwarding. It writes only changes,
// and limits how often: something that flaps costs the API server two writes a minute. While the API server is
// away, the newest state waits.
package statuswriter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/signal"
)

const (
	// settle is how long a change waits for the next: a session that comes up changes
	// its state four times in a moment.
	settle = time.Second
	// burst is how many times an object may be written at once before its writes are
	// spread, one in each pause. What is of less interest is written once in a pause.
	burst = 4
	pause = 30 * time.Second
	// seldom is how often a change is written that is hardly one.
	seldom = 5 * time.Minute
	// relist is how often the objects are read although no watch reported a change.
	relist = 10 * time.Minute
	// The time to the next attempt after a failure doubles between these: for all objects or, where
	// the API server refused one, for that one.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

type urgency int

const (
	unchanged urgency = iota // the object is as wanted
	immediate                // as long as there are not too many
	throttled                // once in a pause
	rare                     // seldom
)

// kind is what differs between the kinds of objects. Objects are not changed.
type kind[T client.Object] interface {
	lister[T]
	// compare returns how soon an object that there is has to become what is wanted.
	compare(have, want T) urgency
	// write brings an object to the wanted state, and returns it as it is then; have is
	// nil where there is none.
	write(ctx context.Context, have, want T) (T, error)
	// remove deletes an object, if it is still as it was when it was read.
	remove(ctx context.Context, object T) error
}

// lister finds the objects of a node.
type lister[T client.Object] interface {
	// selects returns an empty list and the labels by which it lists the objects of the node.
	selects() (client.ObjectList, client.MatchingLabels)
	// own returns the part of a listed object that is the node's, and false if none is.
	own(object T) (T, bool)
}

// Writer writes the objects of one kind and one node.
type Writer[T client.Object] struct {
	of   kind[T]
	api  client.Reader
	name string // of the kind, for logs
	log  *slog.Logger
	news chan struct{} // one slot: there is something to write

	mu     sync.Mutex
	known  bool         // wanted is set
	resync bool         // others may have written to the objects
	wanted map[string]T // by name

	// For one goroutine.
	have    map[string]T // as the API server has them; nil: not known
	readAt  time.Time    // when have was
	paces   map[string]*pace
	failing string // the failure that was logged last
	retry   time.Duration
}

// pace is how often one object has been written, and when it may be if it was refused.
type pace struct {
	bucket  flowcontrol.RateLimiter
	last    time.Time
	refused string        // the refusal that was logged last
	retry   time.Duration // the pause after it
	again   time.Time     // when that is over
}

// pass is what came of one attempt at all objects.
type pass struct {
	wait    time.Duration // for what is left
	refused error         // some of them; the others did not wait for these
}

func newWriter[T client.Object](of kind[T], api client.Reader, name string, log *slog.Logger) *Writer[T] {
	return &Writer[T]{of: of, api: api, name: name, log: log, news: make(chan struct{}, 1), paces: map[string]*pace{}}
}

func (w *Writer[T]) want(objects []T) {
	wanted := make(map[string]T, len(objects))
	for _, object := range objects {
		wanted[object.GetName()] = object
	}
	w.mu.Lock()
	changed := !w.known || !equality.Semantic.DeepEqual(w.wanted, wanted)
	w.known, w.wanted = true, wanted
	w.mu.Unlock()
	if !changed {
		return
	}
	signal.Send(w.news)
}

// Resync has the objects read again: other nodes may have marked them as stale while they did not hear this one.
func (w *Writer[T]) Resync() {
	w.mu.Lock()
	w.resync = true
	w.mu.Unlock()
	signal.Send(w.news)
}

// String names the task.
func (w *Writer[T]) String() string { return "writing each " + w.name }

// Ready returns nil, and never an error.
func (w *Writer[T]) Ready() error { return nil }

// Run writes until ctx ends, and returns nil then. The objects stay: the process may come back. Errors are
// logged and tried again.
func (w *Writer[T]) Run(ctx context.Context) error {
	timer := time.NewTimer(relist)
	defer timer.Stop()
	due := time.Now().Add(relist)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.news:
			if soon := time.Now().Add(max(settle, w.retry)); soon.Before(due) {
				due = soon
			}
		case <-timer.C:
			due = time.Now().Add(w.after(w.bring(ctx)))
		}
		timer.Reset(time.Until(due))
	}
}

// after returns how long to wait for the next attempt. It logs a failure when it changes, not at each attempt.
func (w *Writer[T]) after(p pass, err error) time.Duration {
	if err == nil {
		if p.refused != nil { // perhaps since another client has written it
			w.have = nil
		}
		if w.failing != "" {
			w.log.Info("the objects of this node are written again", "kind", w.name)
		}
		w.failing, w.retry = "", 0
		return p.wait
	}
	w.have = nil
	if text := err.Error(); text != w.failing {
		w.failing = text
		w.log.Warn("cannot write the objects of this node; it is tried again", "kind", w.name, "error", err)
	}
	w.retry = longer(w.retry)
	return w.retry
}

func longer(retry time.Duration) time.Duration { return min(max(2*retry, firstRetry), lastRetry) }

// bring makes the objects those wanted, as far as they may be written now, the most urgent first. It returns
// an error at once if the next object would meet it as well.
func (w *Writer[T]) bring(ctx context.Context) (pass, error) {
	w.mu.Lock()
	known, wanted := w.known, w.wanted
	if w.resync {
		w.resync, w.have = false, nil
	}
	w.mu.Unlock()
	if !known {
		return pass{wait: relist}, nil
	}
	if err := w.read(ctx); err != nil {
		return pass{}, err
	}
	maps.DeleteFunc(w.paces, func(name string, _ *pace) bool {
		_, is := wanted[name]
		_, was := w.have[name]
		return !is && !was
	})
	p := pass{wait: time.Until(w.readAt.Add(relist))}
	err := w.removeOthers(ctx, wanted, &p)
	if err == nil {
		err = w.writeChanges(ctx, wanted, &p)
	}
	return p, err
}

func (w *Writer[T]) removeOthers(ctx context.Context, wanted map[string]T, p *pass) error {
	for _, name := range slices.Sorted(maps.Keys(w.have)) {
		have := w.have[name]
		if want, ok := wanted[name]; ok && sameOwner(have, want) {
			continue
		}
		if later := time.Until(w.pace(name).again); later > 0 {
			p.wait = min(p.wait, later)
			continue
		}
		err := w.of.remove(ctx, have)
		if err == nil {
			delete(w.have, name)
		}
		if err := w.outcome(name, err, p); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer[T]) writeChanges(ctx context.Context, wanted map[string]T, p *pass) error {
	for _, c := range w.changes(wanted) {
		if later := w.later(c); later > 0 {
			p.wait = min(p.wait, later)
			continue
		}
		written, err := w.of.write(ctx, w.have[c.name], wanted[c.name])
		if err == nil {
			if w.have[c.name] = written; w.of.compare(written, wanted[c.name]) != unchanged {
				p.wait = min(p.wait, pause) // the object that it is to be written to is not there
			}
		}
		if err := w.outcome(c.name, err, p); err != nil {
			return err
		}
	}
	return nil
}

// outcome records what came of an attempt at one object, and returns an error that is not about that object
// alone. It logs a refusal once.
func (w *Writer[T]) outcome(name string, err error, p *pass) error {
	of := w.pace(name)
	if err == nil {
		if of.refused != "" {
			w.log.Info("the API server takes an object of this node again", "kind", w.name, "name", name)
		}
		of.refused, of.retry, of.again = "", 0, time.Time{}
		return nil
	}
	if !isRefusal(err) {
		return err
	}
	if text := err.Error(); text != of.refused {
		of.refused = text
		w.log.Warn("the API server refuses an object of this node; it is tried again, and the others are written", "kind", w.name, "error", err)
	}
	of.retry = longer(of.retry)
	of.again = time.Now().Add(of.retry)
	p.wait, p.refused = min(p.wait, of.retry), errors.Join(p.refused, err)
	return nil
}

// isRefusal reports whether the API server refuses this object and may well take others: it answered, it knows
// the client, and it is not overloaded.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}

type change struct {
	name    string
	urgency urgency
}

// changes returns all that is to be written, in that order.
func (w *Writer[T]) changes(wanted map[string]T) []change {
	var all []change
	for name, want := range wanted {
		urgency := immediate
		if have, there := w.have[name]; there {
			urgency = w.of.compare(have, want)
		}
		if urgency != unchanged {
			all = append(all, change{name, urgency})
		}
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.urgency, b.urgency), cmp.Compare(a.name, b.name)) })
	return all
}

// read lists the objects of the node, unless they are known.
func (w *Writer[T]) read(ctx context.Context) error {
	if w.have != nil && time.Since(w.readAt) < relist {
		return nil
	}
	list, labels := w.of.selects()
	found := map[string]T{}
	if err := each(ctx, w.api, list, labels, func(object T) error {
		if own, is := w.of.own(object); is {
			found[own.GetName()] = own
		}
		return nil
	}); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	w.have, w.readAt = found, time.Now()
	return nil
}

// each lists objects and calls f with each of them, until the first error.
func each[T client.Object](ctx context.Context, api client.Reader, list client.ObjectList, labels client.MatchingLabels, f func(T) error) error {
	if err := api.List(ctx, list, labels); err != nil {
		return err
	}
	return meta.EachListItem(list, func(object runtime.Object) error { return f(object.(T)) })
}

// later returns how long a change has to wait; 0 if it may be written now.
func (w *Writer[T]) later(c change) time.Duration {
	p := w.pace(c.name)
	if refused := time.Until(p.again); refused > 0 {
		return refused
	}
	wait := pause
	switch {
	case c.urgency == throttled:
		wait = pause - time.Since(p.last)
	case c.urgency == rare:
		wait = seldom - time.Since(p.last)
	case p.bucket.TryAccept():
		wait = 0
	}
	if wait > 0 {
		return wait
	}
	p.last = time.Now()
	return 0
}

// pace returns how often an object has been written.
func (w *Writer[T]) pace(name string) *pace {
	if w.paces[name] == nil {
		w.paces[name] = &pace{bucket: flowcontrol.NewTokenBucketRateLimiter(float32(1/pause.Seconds()), burst)}
	}
	return w.paces[name]
}

// Remove deletes the objects of a node that goes for good, also those that were refused lately. Run
// must have returned. The errors are those of the API server.
func (w *Writer[T]) Remove(ctx context.Context) error {
	w.mu.Lock()
	w.known, w.wanted = true, nil
	w.mu.Unlock()
	clear(w.paces)
	p, err := w.bring(ctx)
	return errors.Join(p.refused, err)
}

// sameOwner reports whether both objects belong to the same Node: one that was made anew has another UID, and
// the objects of the old one are about to be deleted. Doubts in the objects of other nodes belong to none.
func sameOwner(a, b client.Object) bool {
	of, to := a.GetOwnerReferences(), b.GetOwnerReferences()
	return len(of)+len(to) == 0 || len(of) == 1 && len(to) == 1 && of[0].UID == to[0].UID
}
