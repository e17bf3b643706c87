// Package standing keeps the state of this node in objects: that of its BGP sessions in
// BGPSessions, the addresses that it answers for in L2Addresses, and the state of its
// forwarding in a NodeForwarding. It writes only changes, and limits how often: something that
// flaps costs the API server two writes a minute. The parts that are reported on know nothing of
// this package; while the API server is away, the newest state waits.
package standing

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
	// relist is how often the objects are read although nobody was seen to touch them.
	relist = 10 * time.Minute
	// The time to the next attempt after a failure doubles between these: for all objects or, where
	// the API server refused one, for that one.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// haste is how soon a change has to be written.
type haste int

const (
	never  haste = iota // the object says what is wanted
	now                 // as long as there are not too many
	paused              // once in a pause
	hardly              // seldom
)

// kind is what differs between the kinds of objects. Objects are not changed.
type kind[T client.Object] interface {
	// list reads those of the node.
	list(ctx context.Context) ([]T, error)
	// compare tells how soon an object that there is has to become what is wanted.
	compare(have, want T) haste
	// write brings an object to the wanted state, and returns it as it is then; have is
	// nil where there is none.
	write(ctx context.Context, have, want T) (T, error)
	// remove deletes an object, if it is still as it was when it was read.
	remove(ctx context.Context, object T) error
}

// Keeper keeps the objects of one kind and one node.
type Keeper[T client.Object] struct {
	of   kind[T]
	name string // of the kind, for logs
	log  *slog.Logger
	news chan struct{} // one slot: there is something to write

	mu      sync.Mutex
	told    bool
	doubted bool         // others may have written to the objects
	wanted  map[string]T // by name

	// What one goroutine knows.
	have    map[string]T // as the API server has them; nil: not known
	read    time.Time    // when have was
	paces   map[string]*pace
	failing string // what was last said about a failure
	retry   time.Duration
}

// pace is how often one object has been written, and when it may be if it was refused.
type pace struct {
	bucket  flowcontrol.RateLimiter
	last    time.Time
	refused string        // what was last said about a refusal
	retry   time.Duration // the pause after it
	again   time.Time     // when that is over
}

// pass is what came of one attempt at all objects.
type pass struct {
	wait    time.Duration // for what is left
	refused error         // some of them; the others did not wait for these
}

func newKeeper[T client.Object](of kind[T], name string, log *slog.Logger) *Keeper[T] {
	return &Keeper[T]{of: of, name: name, log: log, news: make(chan struct{}, 1), paces: map[string]*pace{}}
}

// want takes in the whole of what is to be written.
func (k *Keeper[T]) want(objects []T) {
	wanted := make(map[string]T, len(objects))
	for _, object := range objects {
		wanted[object.GetName()] = object
	}
	k.mu.Lock()
	changed := !k.told || !equality.Semantic.DeepEqual(k.wanted, wanted)
	k.told, k.wanted = true, wanted
	k.mu.Unlock()
	if !changed {
		return
	}
	signal.Send(k.news)
}

// Doubt has the objects be read again: others may have marked them, as this node was not heard.
func (k *Keeper[T]) Doubt() {
	k.mu.Lock()
	k.doubted = true
	k.mu.Unlock()
	signal.Send(k.news)
}

// Run writes until ctx ends. The objects stay as they are then: the process may come back.
func (k *Keeper[T]) Run(ctx context.Context) error {
	timer := time.NewTimer(relist)
	defer timer.Stop()
	due := time.Now().Add(relist)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.news:
			if soon := time.Now().Add(max(settle, k.retry)); soon.Before(due) {
				due = soon
			}
		case <-timer.C:
			due = time.Now().Add(k.after(k.bring(ctx)))
		}
		timer.Reset(time.Until(due))
	}
}

// after is how long to wait for the next attempt. It logs when a failure changes, not each
// time that it is met.
func (k *Keeper[T]) after(p pass, err error) time.Duration {
	if err == nil {
		if p.refused != nil { // perhaps since somebody else has written it
			k.have = nil
		}
		if k.failing != "" {
			k.log.Info("the objects of this node are written again", "kind", k.name)
		}
		k.failing, k.retry = "", 0
		return p.wait
	}
	k.have = nil
	if text := err.Error(); text != k.failing {
		k.failing = text
		k.log.Warn("cannot write the objects of this node; it is tried again", "kind", k.name, "error", err)
	}
	k.retry = longer(k.retry)
	return k.retry
}

// longer is the pause after one more failure.
func longer(retry time.Duration) time.Duration { return min(max(2*retry, firstRetry), lastRetry) }

// bring makes the objects those wanted, as far as they may be written now. What is in haste
// comes first. It ends with an error that the next object would meet as well.
func (k *Keeper[T]) bring(ctx context.Context) (pass, error) {
	k.mu.Lock()
	told, wanted := k.told, k.wanted
	if k.doubted {
		k.doubted, k.have = false, nil
	}
	k.mu.Unlock()
	if !told {
		return pass{wait: relist}, nil
	}
	if err := k.look(ctx); err != nil {
		return pass{}, err
	}
	maps.DeleteFunc(k.paces, func(name string, _ *pace) bool {
		_, is := wanted[name]
		_, was := k.have[name]
		return !is && !was
	})
	p := pass{wait: time.Until(k.read.Add(relist))}
	err := k.removeOthers(ctx, wanted, &p)
	if err == nil {
		err = k.writeChanges(ctx, wanted, &p)
	}
	return p, err
}

// removeOthers removes what is not wanted.
func (k *Keeper[T]) removeOthers(ctx context.Context, wanted map[string]T, p *pass) error {
	for _, name := range slices.Sorted(maps.Keys(k.have)) {
		have := k.have[name]
		if want, ok := wanted[name]; ok && sameOwner(have, want) {
			continue
		}
		if later := time.Until(k.pace(name).again); later > 0 {
			p.wait = min(p.wait, later)
			continue
		}
		err := k.of.remove(ctx, have)
		if err == nil {
			delete(k.have, name)
		}
		if err := k.outcome(name, err, p); err != nil {
			return err
		}
	}
	return nil
}

// writeChanges writes what is wanted and not so.
func (k *Keeper[T]) writeChanges(ctx context.Context, wanted map[string]T, p *pass) error {
	for _, c := range k.changes(wanted) {
		if later := k.later(c); later > 0 {
			p.wait = min(p.wait, later)
			continue
		}
		written, err := k.of.write(ctx, k.have[c.name], wanted[c.name])
		if err == nil {
			if k.have[c.name] = written; k.of.compare(written, wanted[c.name]) != never {
				p.wait = min(p.wait, pause) // what it is to be noted in is not there
			}
		}
		if err := k.outcome(c.name, err, p); err != nil {
			return err
		}
	}
	return nil
}

// outcome takes in what came of an attempt at one object, and gives an error back that is not about
// that one alone. It logs a refusal once.
func (k *Keeper[T]) outcome(name string, err error, p *pass) error {
	of := k.pace(name)
	if err == nil {
		if of.refused != "" {
			k.log.Info("the API server takes an object of this node again", "kind", k.name, "name", name)
		}
		of.refused, of.retry, of.again = "", 0, time.Time{}
		return nil
	}
	if !isRefusal(err) {
		return err
	}
	if text := err.Error(); text != of.refused {
		of.refused = text
		k.log.Warn("the API server refuses an object of this node; it is tried again, and the others are written", "kind", k.name, "error", err)
	}
	of.retry = longer(of.retry)
	of.again = time.Now().Add(of.retry)
	p.wait, p.refused = min(p.wait, of.retry), errors.Join(p.refused, err)
	return nil
}

// isRefusal tells whether the API server has something against one object, and may well take others:
// it answered, it knows who asks, and it has not too much to do.
func isRefusal(err error) bool {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return false
	}
	switch code := said.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}

// change is an object that is to be written.
type change struct {
	name  string
	haste haste
}

// changes are all that are to be written, in the order in which they are.
func (k *Keeper[T]) changes(wanted map[string]T) []change {
	var all []change
	for name, want := range wanted {
		haste := now
		if have, there := k.have[name]; there {
			haste = k.of.compare(have, want)
		}
		if haste != never {
			all = append(all, change{name, haste})
		}
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.haste, b.haste), cmp.Compare(a.name, b.name)) })
	return all
}

// look reads the objects of the node, unless it is known what they are.
func (k *Keeper[T]) look(ctx context.Context) error {
	if k.have != nil && time.Since(k.read) < relist {
		return nil
	}
	found, err := k.of.list(ctx)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	k.have, k.read = make(map[string]T, len(found)), time.Now()
	for _, object := range found {
		k.have[object.GetName()] = object
	}
	return nil
}

// later is how long a change has to wait; 0 if it may be written now.
func (k *Keeper[T]) later(c change) time.Duration {
	p := k.pace(c.name)
	if refused := time.Until(p.again); refused > 0 {
		return refused
	}
	wait := pause
	switch {
	case c.haste == paused:
		wait = pause - time.Since(p.last)
	case c.haste == hardly:
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

// pace is how often an object has been written.
func (k *Keeper[T]) pace(name string) *pace {
	if k.paces[name] == nil {
		k.paces[name] = &pace{bucket: flowcontrol.NewTokenBucketRateLimiter(float32(1/pause.Seconds()), burst)}
	}
	return k.paces[name]
}

// Leave removes the objects of a node that goes for good, also those that were refused lately. Run
// must have returned.
func (k *Keeper[T]) Leave(ctx context.Context) error {
	k.mu.Lock()
	k.told, k.wanted = true, nil
	k.mu.Unlock()
	clear(k.paces)
	p, err := k.bring(ctx)
	return errors.Join(p.refused, err)
}

// sameOwner tells whether both objects belong to the same Node: one that was made anew has
// another UID, and what belonged to the old one is about to go. What is noted in the objects of
// others belongs to none.
func sameOwner(a, b client.Object) bool {
	of, to := a.GetOwnerReferences(), b.GetOwnerReferences()
	return len(of)+len(to) == 0 || len(of) == 1 && len(to) == 1 && of[0].UID == to[0].UID
}
