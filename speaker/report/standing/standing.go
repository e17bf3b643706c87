// Package standing keeps in BGPSession objects what the BGP sessions of this node are
// doing. It writes what changes, and seldom: a session that flaps costs the API server two
// writes a minute. Sessions know nothing of it; while the API server is away the newest
// state waits.
package standing

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/report"
)

const (
	// settle is how long a change waits for the next: a session that comes up changes
	// its state four times in a moment.
	settle = time.Second
	// burst is how many times a session may come up or go down before its writes are
	// spread, one in each pause. The number of prefixes is written once in a pause.
	burst = 4
	pause = 30 * time.Second
	// seldom is how often the state of a session that stays down is written: it changes
	// with every attempt.
	seldom = 5 * time.Minute
	// relist is how often the objects are read although none of ours was refused: an
	// object that somebody deleted is made again.
	relist = 10 * time.Minute
	// The time to the next attempt after a failure doubles between these.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// API is what is asked of the API server.
type API interface {
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	Create(ctx context.Context, object client.Object, options ...client.CreateOption) error
	Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error
	Status() client.SubResourceWriter
}

// Keeper keeps the objects of one node.
type Keeper struct {
	node string
	api  API
	log  *slog.Logger
	news chan struct{} // one slot: there is something to write

	mu     sync.Mutex
	told   bool
	uid    types.UID
	wanted map[string]v1beta1.BGPSession // by name

	// What one goroutine knows.
	have    map[string]v1beta1.BGPSession // as the API server has them; nil: not known
	read    time.Time                     // when have was
	paces   map[string]*pace
	failing string // what was last said about a failure
	retry   time.Duration
}

// pace is how often one object has been written.
type pace struct {
	bucket flowcontrol.RateLimiter
	last   time.Time
}

// New makes a Keeper for a node. Nothing is written before Run, and before Tell.
func New(node string, api API, log *slog.Logger) *Keeper {
	return &Keeper{node: node, api: api, log: log, news: make(chan struct{}, 1), paces: map[string]*pace{}}
}

// Tell takes in the whole of what the sessions of the node are doing, and their BFD
// sessions, by BGPPeer. uid is that of the Node.
func (k *Keeper) Tell(uid types.UID, sessions map[string]report.Session, paths map[string]report.Path) {
	wanted := make(map[string]v1beta1.BGPSession, len(sessions))
	for peer, session := range sessions {
		object := render(k.node, uid, peer, session, paths)
		wanted[object.Name] = object
	}
	k.mu.Lock()
	changed := !k.told || k.uid != uid || !equality.Semantic.DeepEqual(k.wanted, wanted)
	k.told, k.uid, k.wanted = true, uid, wanted
	k.mu.Unlock()
	if !changed {
		return
	}
	select {
	case k.news <- struct{}{}:
	default: // it is known that there is something
	}
}

// Run writes until ctx ends. The objects stay as they are then: the process may come back.
func (k *Keeper) Run(ctx context.Context) error {
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
func (k *Keeper) after(wait time.Duration, err error) time.Duration {
	if err == nil {
		if k.failing != "" {
			k.log.Info("BGPSessions are written again")
		}
		k.failing, k.retry = "", 0
		return wait
	}
	k.have = nil
	if text := err.Error(); text != k.failing {
		k.failing = text
		k.log.Warn("cannot write the BGPSessions of this node; it is tried again", "error", err)
	}
	k.retry = min(max(2*k.retry, firstRetry), lastRetry)
	return k.retry
}

// bring makes the objects those wanted, as far as they may be written now, and returns how
// long to wait for the rest.
func (k *Keeper) bring(ctx context.Context) (time.Duration, error) {
	k.mu.Lock()
	told, wanted := k.told, k.wanted
	k.mu.Unlock()
	if !told {
		return relist, nil
	}
	if err := k.look(ctx); err != nil {
		return 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(k.have)) {
		want, ok := wanted[name]
		if have := k.have[name]; !ok || !sameOwner(&have, &want) {
			if err := k.remove(ctx, &have); err != nil {
				return 0, err
			}
		}
	}
	maps.DeleteFunc(k.paces, func(name string, _ *pace) bool { _, ok := wanted[name]; return !ok })
	wait := time.Until(k.read.Add(relist))
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want := wanted[name]
		have, there := k.have[name]
		if there && equality.Semantic.DeepEqual(have.Status, want.Status) {
			continue
		}
		if later := k.later(name, &have.Status, &want.Status); later > 0 {
			wait = min(wait, later)
			continue
		}
		if err := k.write(ctx, have, want); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// look reads the objects of the node, unless it is known what they are.
func (k *Keeper) look(ctx context.Context) error {
	if k.have != nil && time.Since(k.read) < relist {
		return nil
	}
	var list v1beta1.BGPSessionList
	if err := k.api.List(ctx, &list, client.MatchingLabels{v1beta1.LabelNode: v1beta1.LabelValue(k.node)}); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	k.have, k.read = make(map[string]v1beta1.BGPSession, len(list.Items)), time.Now()
	for _, object := range list.Items {
		if object.Spec.Node == k.node {
			k.have[object.Name] = object
		}
	}
	return nil
}

// later is how long a change has to wait; 0 if it may be written now.
func (k *Keeper) later(name string, have, want *v1beta1.BGPSessionStatus) time.Duration {
	p := k.paces[name]
	if p == nil {
		p = &pace{bucket: flowcontrol.NewTokenBucketRateLimiter(float32(1/pause.Seconds()), burst)}
		k.paces[name] = p
	}
	wait := pause
	switch {
	case prefixes(have, want):
		wait = pause - time.Since(p.last)
	case attempts(have, want):
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

// prefixes tells whether two statuses differ only in the number of prefixes.
func prefixes(have, want *v1beta1.BGPSessionStatus) bool {
	same := *have
	same.AdvertisedPrefixes = want.AdvertisedPrefixes
	return equality.Semantic.DeepEqual(&same, want)
}

// attempts tells whether two statuses of a session that is down differ only in how far its
// attempts have come.
func attempts(have, want *v1beta1.BGPSessionStatus) bool {
	same := *have
	same.State = want.State
	return have.State != "" && have.State != v1beta1.SessionEstablished && want.State != v1beta1.SessionEstablished &&
		equality.Semantic.DeepEqual(&same, want)
}

// write brings one object to the wanted state; have is the zero one where there is none.
func (k *Keeper) write(ctx context.Context, have, want v1beta1.BGPSession) error {
	if have.Name == "" {
		have = *want.DeepCopy()
		have.Status = v1beta1.BGPSessionStatus{} // the API server takes none on creation
		if err := k.api.Create(ctx, &have); err != nil {
			return fmt.Errorf("create BGPSession %s: %w", want.Name, err)
		}
		k.have[want.Name] = have
	}
	next := have.DeepCopy()
	next.Status = want.Status
	if err := k.api.Status().Patch(ctx, next, client.MergeFromWithOptions(&have, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the status of BGPSession %s: %w", want.Name, err)
	}
	k.have[want.Name] = *next
	return nil
}

func (k *Keeper) remove(ctx context.Context, object *v1beta1.BGPSession) error {
	precondition := client.Preconditions{UID: &object.UID}
	if err := k.api.Delete(ctx, object, precondition); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete BGPSession %s: %w", object.Name, err)
	}
	delete(k.have, object.Name)
	return nil
}

// Leave removes the objects of a node that holds no sessions any more: it goes for good.
// Run must have returned.
func (k *Keeper) Leave(ctx context.Context) error {
	k.mu.Lock()
	k.told, k.wanted = true, nil
	k.mu.Unlock()
	_, err := k.bring(ctx)
	return err
}
