// Package watch keeps the speaker's view of the cluster: it turns informers into immutable
// snapshots. Each event replaces one value, and an event that changes nothing that decisions read
// makes no snapshot. One of Services or reservations makes a copy of their map, without the Services; one of
// endpoints a copy of 1/256 of theirs.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/apihint"
	"fairlead.dev/fairlead/internal/apiservers"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/relist"
	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// Config says what to watch.
type Config struct {
	REST *rest.Config
	Node string // this one; "": none
	// OwnIn is how long the first snapshot waits for this node's Node with all that it needs, once
	// all else is read; 0: 30 s.
	OwnIn time.Duration
	// OwnPods: the Node needs podCIDRs, too.
	OwnPods   bool
	Namespace string            // Fairlead's: Secrets and speaker pods are read only there
	Speakers  map[string]string // labels of the speaker's pods
	DaemonSet string            // of these pods; "": it is not watched
	Nodes     fromkube.Nodes
	Log       *slog.Logger
	// Noted is called for every change that a decision reads, with the kind of its object.
	// It must be quick, and not take a snapshot.
	Noted func(kind string)
	// Unread is called with the kinds that cannot be read, and why, whenever that changes before they
	// have been read once. It must be as quick; it may be nil.
	Unread func([]problem.Problem)
	// Unreached is called with the reason why the API server has never answered yet, whenever that changes,
	// and "" once it has. It must be as quick; it may be nil.
	Unreached func(why string)
}

// Watch holds the newest state of the cluster.
type Watch struct {
	config   Config
	outdated string // why the API server is too old, "" if it is not; set before there are informers

	mu      sync.Mutex
	objects objects
	kinds   []*kind
	newest  *view.Cluster // the last snapshot that was taken
	without bool          // the wait for this node's Node is over
	waiting *time.Timer   // for it; nil: not yet, or no need to
	// configured: a snapshot was. A Secret that a new BGPPeer names holds up no other peer.
	configured bool

	changed chan struct{}
	naming  chan struct{} // one slot: other Secrets are needed
}

// retryContact is the pause before an API server that does not answer is asked again.
const retryContact = time.Second

// retryMissingKind is the pause before a kind is asked for again that the cluster does not
// define, and retryOptionalKind that of one that may come with its next upgrade.
const (
	retryMissingKind  = 5 * time.Second
	retryOptionalKind = 10 * time.Minute
)

// ownIn is how long the first snapshot waits for this node's Node, as kube-proxy does. Then the rest of
// the cluster matters more.
const ownIn = 30 * time.Second

// New returns a watch that does nothing before Run.
func New(config Config) *Watch {
	if config.OwnIn == 0 {
		config.OwnIn = ownIn
	}
	config.REST = apiservers.AskAgain(relist.AfterRestore(config.REST), config.Log)
	w := &Watch{config: config, objects: newObjects(config.Node), changed: make(chan struct{}, 1), naming: make(chan struct{}, 1)}
	o := &w.objects
	w.kinds = []*kind{
		watched(kind{core: true, touches: true}, &corev1.Service{}, readService, o.service),
		watched(kind{core: true, touches: true}, &discoveryv1.EndpointSlice{}, readSlice, o.slice),
		watched(kind{core: true}, &corev1.Node{}, func(n *corev1.Node) (*view.Node, bool) { return config.Nodes.Read(n), true }, o.node),
		watched(kind{}, &corev1.Pod{}, fromkube.SpeakerPod, putNamed(o.speakers)),
		watched(kind{named: true}, &corev1.Secret{}, readSecret, o.secret),
		watched(kind{}, &v1beta1.IPAddressPool{}, whole, o.Pools.Set),
		watched(kind{}, &v1beta1.L2Advertisement{}, whole, o.L2Advertisements.Set),
		watched(kind{}, &v1beta1.BGPAdvertisement{}, whole, o.BGPAdvertisements.Set),
		watched(kind{}, &v1beta1.BFDProfile{}, whole, o.BFDProfiles.Set),
		watched(kind{}, &v1beta1.Community{}, whole, o.Communities.Set),
		watched(kind{}, &v1beta1.BGPPeer{}, whole, o.BGPPeers.Set),
		watched(kind{touches: true}, &v1beta1.IPReservation{}, readReservation, o.reservation),
		watched(kind{optional: true}, &networkingv1.ServiceCIDR{}, readServiceCIDR, putNamed(o.ServiceCIDRs)),
	}
	if config.DaemonSet != "" {
		w.kinds = append(w.kinds, watched(kind{optional: true}, &appsv1.DaemonSet{}, readDaemonSet, putNamed(o.daemonSets)))
	}
	return w
}

// Changed returns a channel that receives after the snapshot has changed, once for several
// changes in a row.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Snapshot returns the newest view of the cluster, nil until all Services, EndpointSlices
// and Nodes have been read once, this node's among them: without its addresses, forwarding would take away
// the NodePorts that an earlier speaker has left. The caller does not change it.
func (w *Watch) Snapshot() *view.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	configured := true
	for _, k := range w.kinds {
		if k.core && !k.synced {
			return nil
		}
		configured = configured && (k.synced || k.optional)
	}
	if w.newest == nil && !w.located() {
		return nil // only before the first snapshot, whatever becomes of the Nodes
	}
	if w.objects.dirty() {
		w.newest = w.objects.snapshot(w.newest)
		w.configured = w.configured || configured && w.objects.named.settled()
		w.newest.Configured = w.configured
		if w.objects.named.changed {
			w.objects.named.changed = false
			signal.Send(w.naming)
		}
	}
	return w.newest
}

// SetRollCall takes over which nodes are alive and which fell silent, by their hellos.
func (w *Watch) SetRollCall(roll view.RollCall) {
	w.update(func() bool {
		if reflect.DeepEqual(roll, w.objects.roll) {
			return false
		}
		w.objects.roll, w.objects.hellos = roll, true
		return true
	})
}

// SetAdjacencies takes over the routers on this node's unnumbered links. An interface that is missing stays
// as it was: a pulse that has just started does not know yet which ones to look at.
func (w *Watch) SetAdjacencies(adjacent map[string]view.Adjacency) {
	w.update(func() bool {
		next := maps.Clone(w.objects.adjacent)
		for over, report := range adjacent {
			next[over] = w.objects.adjacent[over].After(report)
		}
		if maps.Equal(next, w.objects.adjacent) {
			return false
		}
		w.objects.adjacent, w.objects.others = next, true
		return true
	})
}

// Run watches until ctx ends. When the API server goes away the last view stays. The error is that
// of the scheme or of the informers, which cannot start.
func (w *Watch) Run(ctx context.Context) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("prepare the scheme: %w", err)
		}
	}
	secrets, err := kubernetes.NewForConfig(w.config.REST)
	if err != nil {
		return fmt.Errorf("prepare the client of Secrets: %w", err)
	}
	informers := w.firstContact(ctx, scheme)
	if informers == nil {
		return nil
	}
	defer w.waitNoMore()
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, k := range w.kinds {
		if k.named {
			wait.Go(func() { w.followNamed(ctx, secrets, k) })
		} else {
			wait.Go(func() { w.follow(ctx, informers, k) })
		}
	}
	return informers.Start(ctx)
}

// firstContact waits until the API server lists its kinds; it returns nil when ctx ends. A
// node that boots before its control plane must not give up: each restart by the
// kubelet would come later than the one before.
func (w *Watch) firstContact(ctx context.Context, scheme *runtime.Scheme) cache.Cache {
	logged := ""
	for {
		informers, err := w.newCache(scheme)
		if err == nil {
			w.reach("")
			w.judge()
			return informers
		}
		if why, hint := apihint.Why(err, apihint.OfSpeakers); why != logged {
			w.config.Log.Error("the API server cannot be asked; it is tried again", "server", w.config.REST.Host, "error", why, "hint", hint)
			w.reach(fmt.Sprintf("the API server at %s cannot be asked yet: %s; %s", w.config.REST.Host, why, hint))
			logged = why
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryContact):
		}
	}
}

func (w *Watch) newCache(scheme *runtime.Scheme) (cache.Cache, error) {
	notHeadless, err := labels.NewRequirement(corev1.IsHeadlessService, selection.DoesNotExist, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting EndpointSlices: %w", err)
	}
	own := map[string]cache.Config{w.config.Namespace: {}}
	chosen := map[client.Object]cache.ByObject{
		&discoveryv1.EndpointSlice{}: {Label: labels.NewSelector().Add(*notHeadless)},
		&corev1.Pod{}:                {Namespaces: own, Label: labels.SelectorFromSet(w.config.Speakers)},
	}
	if name := w.config.DaemonSet; name != "" {
		chosen[&appsv1.DaemonSet{}] = cache.ByObject{Namespaces: own, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	}
	informers, err := cache.New(w.config.REST, cache.Options{
		Scheme:                   scheme,
		DefaultTransform:         w.know,
		DefaultWatchErrorHandler: w.failed,
		ByObject:                 chosen,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to watch %s: %w", w.config.REST.Host, err)
	}
	return informers, nil
}

// follow feeds one kind into the objects, and marks it as read when its first list
// is. A kind that the cluster does not know yet is asked for again.
func (w *Watch) follow(ctx context.Context, informers cache.Cache, k *kind) {
	logged := false
	for {
		registration, err := w.register(ctx, informers, k)
		if err == nil {
			select {
			case <-registration.HasSyncedChecker().Done():
				w.update(func() bool { return w.read(k) })
			case <-ctx.Done():
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		pause := retryMissingKind
		if k.optional && meta.IsNoMatchError(err) {
			pause = retryOptionalKind
		}
		w.miss(k, err, logged)
		logged = true
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (w *Watch) read(k *kind) bool {
	k.synced, w.objects.others = true, true
	if k.unread.reason != "" {
		k.unread = unread{}
		w.reportUnread()
	}
	waiting := func(other *kind) bool { return other.core && !other.synced }
	if k.core && !slices.ContainsFunc(w.kinds, waiting) {
		w.config.Log.Info("Services, EndpointSlices and Nodes are read",
			"services", len(w.objects.services), "endpointSlices", w.objects.slices.Len(), "nodes", len(w.objects.nodes))
		w.awaitOwn()
	}
	return true
}

func (w *Watch) register(ctx context.Context, informers cache.Cache, k *kind) (toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := informers.GetInformer(ctx, k.example, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	return informer.AddEventHandler(w.applies(k))
}

// applies returns what an informer calls with each object of a kind.
func (w *Watch) applies(k *kind) toolscache.ResourceEventHandler {
	set := func(o any) {
		if object, ok := o.(*known); ok {
			w.apply(k, object.key, object.value)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, o any) { set(o) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			if object, ok := o.(*known); ok {
				w.apply(k, object.key, nil)
			}
		},
	}
}

// apply stores what was read of one object, nil if it is gone.
func (w *Watch) apply(k *kind, key client.ObjectKey, value any) {
	w.update(func() bool {
		changed := k.apply(key, value)
		w.objects.others = w.objects.others || changed && !k.touches
		if changed {
			w.config.Noted(k.name())
		}
		return changed
	})
}

func (w *Watch) update(change func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if change() {
		signal.Send(w.changed)
	}
}
