// Package configmaps stores the ledger in ConfigMaps in the controller's own namespace, one
// for each page. A leader reads them once, when it first needs them. From then on it knows
// what is stored, and a change costs one write of the page that it is on. Changes that others
// make to them are found after a while and overwritten.
package configmaps

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/controller/ledger"
)

const (
	// writers is how many pages are written at the same time.
	writers = 4
	// recheck is how long it may take to find that another program has changed or deleted
	// what was written.
	recheck = 5 * time.Minute
	// races is how often in a row another program may be faster until that is a failure.
	races = 5

	firstRetry, lastRetry = 100 * time.Millisecond, time.Minute
)

// Options are what a Keeper works with.
type Options struct {
	Namespace string
	Live      client.Reader // reads the API server itself
	Client    client.Writer
	Logger    *slog.Logger
	// Timeout is how long one read or write may take.
	Timeout time.Duration
	// Wrote is told of each write how it went.
	Wrote func(error)
	// Wake is called when Records would say something else than it did.
	Wake func()
}

// Keeper brings a Book to the API server. As long as it fails with a page, what is on that
// page counts as recorded: addresses are given all the same.
type Keeper struct {
	Options
	queue workqueue.TypedRateLimitingInterface[netip.Prefix]

	mu      sync.Mutex
	wanted  ledger.Book
	stored  map[netip.Prefix]stored
	read    bool
	unread  string // why it cannot be read
	awaited bool   // an assignment waits for what is not recorded
	faults  int    // of stored
}

// stored is what is known of one object.
type stored struct {
	object *corev1.ConfigMap // nil: there is none
	page   *ledger.Page      // what is in it
	doubt  bool              // it is to be read before it is believed
	fault  string            // why it cannot be written, "" if it can
	told   string            // what was last said about what others wrote into it
}

// New makes a Keeper that has read nothing.
func New(o Options) *Keeper {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[netip.Prefix](firstRetry, lastRetry)
	return &Keeper{Options: o, queue: workqueue.NewTypedRateLimitingQueue(limiter), stored: map[netip.Prefix]stored{}}
}

// Read reads what is stored, which is what the last leader wrote. Nothing is written
// before. The error says what of the namespace cannot be read; until it can be, all counts as
// recorded.
func (k *Keeper) Read(ctx context.Context) (ledger.Book, error) {
	objects, err := k.list(ctx, client.HasLabels{label})
	if err != nil {
		err = fmt.Errorf("list ConfigMaps of namespace %s: %w", k.Namespace, err)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.unread == "" {
			k.unread = err.Error()
		}
		return ledger.Book{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	book := ledger.Book{}
	for i := range objects {
		shard, ok := ledger.ParseName(objects[i].Name)
		if !ok {
			k.Logger.Warn("this ConfigMap is none of the ledger's, in spite of its label", "name", objects[i].Name, "label", label)
			continue
		}
		page := k.see(shard, &objects[i])
		book = book.Recall(page)
	}
	k.read, k.unread = true, ""
	for shard := range k.stored {
		k.queue.Add(shard)
	}
	for shard := range k.wanted.Pages() {
		k.queue.Add(shard)
	}
	return book, nil
}

// see notes what an object has, nil for none. The lock is held.
func (k *Keeper) see(shard netip.Prefix, object *corev1.ConfigMap) ledger.Book {
	s := k.stored[shard]
	s.object, s.doubt = object, false
	var book ledger.Book
	if object != nil {
		var faults []string
		book, faults = ledger.Decode(shard, object.Data)
		if text := strings.Join(faults, "; "); text != s.told {
			if s.told = text; text != "" {
				k.Logger.Warn("what stands in the ledger cannot be read; writing over it", "configmap", object.Name, "because", text)
			}
		}
	}
	s.page = book.Page(shard)
	k.stored[shard] = s
	return book
}

// Want takes the whole of what is to be stored. It does not wait for it.
func (k *Keeper) Want(book ledger.Book) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.wanted
	k.wanted = book
	if !k.read {
		return
	}
	for shard, page := range book.Pages() {
		if before.Page(shard) != page {
			k.queue.Add(shard)
		}
	}
	for shard := range before.Pages() {
		if book.Page(shard) == nil {
			k.queue.Add(shard)
		}
	}
}

// Records reports whether this is stored of an address, or cannot be.
func (k *Keeper) Records(a netip.Addr, e ledger.Entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.stored[ledger.Shard(a)]
	if k.unread != "" || s.fault != "" {
		return true
	}
	if has, ok := s.page.At(a); ok && has == e {
		return true
	}
	k.awaited = true
	return false
}

// Faults says why it fails to write pages, by shard; of the zero Prefix, why it cannot read
// any. nil: all is well. It says of a page what was wrong at first, for as long as it is.
func (k *Keeper) Faults() map[netip.Prefix]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unread != "" {
		return map[netip.Prefix]string{{}: k.unread}
	}
	if k.faults == 0 {
		return nil
	}
	found := map[netip.Prefix]string{}
	for shard, s := range k.stored {
		if s.fault != "" {
			found[shard] = s.fault
		}
	}
	return found
}

// Run writes until the context ends and returns when no write is under way.
func (k *Keeper) Run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	defer k.queue.ShutDown()
	for range writers {
		workers.Go(func() {
			for {
				shard, shutdown := k.queue.Get()
				if shutdown {
					return
				}
				k.keep(ctx, shard)
				k.queue.Done(shard)
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(recheck):
			k.doubt()
		}
	}
}

// doubt has every object looked at anew.
func (k *Keeper) doubt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for shard, s := range k.stored {
		s.doubt = true
		k.stored[shard] = s
		k.queue.Add(shard)
	}
}

// keep brings one page to what is wanted.
func (k *Keeper) keep(ctx context.Context, shard netip.Prefix) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	s, want := k.stored[shard], k.wanted.Page(shard)
	k.mu.Unlock()
	if s.doubt {
		objects, err := k.list(ctx, client.MatchingFields{"metadata.name": ledger.Name(shard)})
		if err != nil {
			k.fail(ctx, shard, fmt.Errorf("list: %w", err))
			return
		}
		s.object = nil
		if len(objects) > 0 {
			s.object = &objects[0]
		}
		k.mu.Lock()
		k.see(shard, s.object)
		k.mu.Unlock()
		if s.fault == "" && !intact(s.object, want.Encode()) {
			k.Logger.Warn("the ledger is not as it was left; writing it again", "configmap", ledger.Name(shard))
		}
	}
	object, err := k.write(ctx, shard, s.object, want)
	switch {
	case ctx.Err() != nil:
		return // no longer the leader, or about to end
	case err == nil:
		k.succeed(shard, object, want)
	case (apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)) && k.queue.NumRequeues(shard) < races:
		k.mu.Lock()
		s := k.stored[shard]
		s.doubt = true
		k.stored[shard] = s
		k.mu.Unlock()
		k.queue.AddRateLimited(shard)
	default:
		k.fail(ctx, shard, err)
	}
}

// succeed notes what is stored now.
func (k *Keeper) succeed(shard netip.Prefix, object *corev1.ConfigMap, page *ledger.Page) {
	k.queue.Forget(shard)
	k.mu.Lock()
	s := k.stored[shard]
	healed := s.fault != ""
	if healed {
		k.faults--
	}
	if object == nil {
		delete(k.stored, shard)
	} else {
		k.stored[shard] = stored{object: object, page: page}
	}
	wake := k.awaited || healed
	k.awaited = false
	k.mu.Unlock()
	if healed {
		k.Logger.Info("the ledger can be written again", "configmap", ledger.Name(shard))
	}
	if wake {
		k.Wake()
	}
}

// fail has the page tried again, and says so unless it failed before.
func (k *Keeper) fail(ctx context.Context, shard netip.Prefix, err error) {
	if ctx.Err() != nil {
		return
	}
	k.queue.AddRateLimited(shard)
	k.mu.Lock()
	s := k.stored[shard]
	s.doubt = true // it may have landed
	first := s.fault == ""
	if first {
		s.fault = err.Error()
		k.faults++
	}
	k.stored[shard] = s
	k.mu.Unlock()
	if first {
		k.Logger.Warn("cannot write the ledger; trying again", "configmap", ledger.Name(shard), "error", err)
		k.Wake()
	}
}

// label is on all objects of the ledger.
const label = "fairlead.dev/ledger"

// list reads ConfigMaps of the namespace.
func (k *Keeper) list(ctx context.Context, which client.ListOption) ([]corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	var all corev1.ConfigMapList
	if err := k.Live.List(ctx, &all, client.InNamespace(k.Namespace), which); err != nil {
		return nil, err
	}
	for i := range all.Items {
		all.Items[i].ManagedFields = nil
	}
	return all.Items, nil
}

// intact reports whether an object, nil for none, has this data and nothing else.
func intact(object *corev1.ConfigMap, data map[string]string) bool {
	if object == nil || len(data) == 0 {
		return object == nil && len(data) == 0
	}
	_, labelled := object.Labels[label]
	return labelled && len(object.BinaryData) == 0 && maps.Equal(object.Data, data)
}

// write brings one object to the page, if it is as it is known to be, and returns it as it is
// then.
func (k *Keeper) write(ctx context.Context, shard netip.Prefix, object *corev1.ConfigMap, page *ledger.Page) (*corev1.ConfigMap, error) {
	data := page.Encode()
	if intact(object, data) {
		return object, nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	next, err := k.put(ctx, shard, object, data)
	k.Wrote(err)
	return next, err
}

func (k *Keeper) put(ctx context.Context, shard netip.Prefix, object *corev1.ConfigMap, data map[string]string) (*corev1.ConfigMap, error) {
	if object != nil && (len(data) == 0 || object.Immutable != nil && *object.Immutable) {
		err := k.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion})
		if err != nil || len(data) == 0 {
			return nil, err
		}
		object = nil
	}
	var err error
	next := object.DeepCopy()
	if next == nil {
		next = &corev1.ConfigMap{}
		next.Namespace, next.Name = k.Namespace, ledger.Name(shard)
	}
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	maps.Copy(next.Labels, map[string]string{label: "", "app.kubernetes.io/name": "fairlead", "app.kubernetes.io/managed-by": "fairlead-controller"})
	next.Data, next.BinaryData = data, nil
	if object == nil {
		err = k.Client.Create(ctx, next)
	} else {
		err = k.Client.Patch(ctx, next, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
	}
	next.ManagedFields = nil
	return next, err
}
