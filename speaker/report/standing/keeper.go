// Package standing keeps the state of this node in objects: that of its BGP sessions in
// BGPSessions, the addresses that it answers for in L2Addresses, and the state of its
// forwarding in a NodeForwarding. It writes only changes, and limits how often: something that
// flaps costs the API server two writes a minute. The parts that are reported on know nothing of
// this package; while the API server is away, the newest state waits.
package standing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	// The time to the next attempt after a failure doubles between these.
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

// pace is how often one object has been written.
type pace struct {
	bucket flowcontrol.RateLimiter
	last   time.Time
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
	select {
	case k.news <- struct{}{}:
	default: // it is known that there is something
	}
}

// Doubt has the objects be read again: others may have marked them, as this node was not heard.
func (k *Keeper[T]) Doubt() {
	k.mu.Lock()
	k.doubted = true
	k.mu.Unlock()
	select {
	case k.news <- struct{}{}:
	default:
	}
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
func (k *Keeper[T]) after(wait time.Duration, err error) time.Duration {
	if err == nil {
		if k.failing != "" {
			k.log.Info("the objects of this node are written again", "kind", k.name)
		}
		k.failing, k.retry = "", 0
		return wait
	}
	k.have = nil
	if text := err.Error(); text != k.failing {
		k.failing = text
		k.log.Warn("cannot write the objects of this node; it is tried again", "kind", k.name, "error", err)
	}
	k.retry = min(max(2*k.retry, firstRetry), lastRetry)
	return k.retry
}

// bring makes the objects those wanted, as far as they may be written now, and returns how
// long to wait for the rest. What is in haste comes first.
func (k *Keeper[T]) bring(ctx context.Context) (time.Duration, error) {
	k.mu.Lock()
	told, wanted := k.told, k.wanted
	if k.doubted {
		k.doubted, k.have = false, nil
	}
	k.mu.Unlock()
	if !told {
		return relist, nil
	}
	if err := k.look(ctx); err != nil {
		return 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(k.have)) {
		want, ok := wanted[name]
		if have := k.have[name]; !ok || !sameOwner(have, want) {
			if err := k.of.remove(ctx, have); err != nil {
				return 0, err
			}
			delete(k.have, name)
		}
	}
	maps.DeleteFunc(k.paces, func(name string, _ *pace) bool { _, ok := wanted[name]; return !ok })
	wait := time.Until(k.read.Add(relist))
	for _, c := range k.changes(wanted) {
		if later := k.later(c); later > 0 {
			wait = min(wait, later)
			continue
		}
		written, err := k.of.write(ctx, k.have[c.name], wanted[c.name])
		if err != nil {
			return 0, err
		}
		if k.have[c.name] = written; k.of.compare(written, wanted[c.name]) != never {
			wait = min(wait, pause) // what it is to be noted in is not there
		}
	}
	return wait, nil
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
	p := k.paces[c.name]
	if p == nil {
		p = &pace{bucket: flowcontrol.NewTokenBucketRateLimiter(float32(1/pause.Seconds()), burst)}
		k.paces[c.name] = p
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

// Leave removes the objects of a node that goes for good. Run must have returned.
func (k *Keeper[T]) Leave(ctx context.Context) error {
	k.mu.Lock()
	k.told, k.wanted = true, nil
	k.mu.Unlock()
	_, err := k.bring(ctx)
	return err
}

// sameOwner tells whether both objects belong to the same Node: one that was made anew has
// another UID, and what belonged to the old one is about to go. What is noted in the objects of
// others belongs to none.
func sameOwner(a, b client.Object) bool {
	of, to := a.GetOwnerReferences(), b.GetOwnerReferences()
	return len(of)+len(to) == 0 || len(of) == 1 && len(to) == 1 && of[0].UID == to[0].UID
}
