// Package hellokey keeps the Secret with the key that authenticates the nodes'
// hellos to each other (HMAC-SHA256, 32 random bytes). It creates the Secret when
// it is missing, and fills one that has no key, as a restored or templated one may. It never
// changes a key: users replace it by deleting the Secret. One that was taken out is put back.
package hellokey

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"fairlead.dev/fairlead/api/v1beta1"
)

// size is the length of the key in bytes: that of the hash (RFC 2104, 3).
const size = 32

// Add has the manager keep the Secret in the given namespace while it leads; a write may take as long as timeout says.
// The error is that of a manager that has been started already.
func Add(m manager.Manager, namespace string, timeout time.Duration, recorder events.EventRecorder, log *slog.Logger) error {
	wanted := client.ObjectKey{Namespace: namespace, Name: v1beta1.HelloSecret}
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == wanted })
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: wanted}) // one that never was has no event
		return nil
	})
	err := builder.ControllerManagedBy(m).Named("hellokey").
		WithOptions(controller.Options{SkipNameValidation: new(true)}). // the name need be unique in one manager, not in a process
		For(&corev1.Secret{}, builder.WithPredicates(ours)).
		WatchesRawSource(first).
		Complete(&keeper{client: m.GetClient(), timeout: timeout, events: recorder, log: log})
	if err != nil {
		return fmt.Errorf("keep Secret %s: %w", wanted, err)
	}
	return nil
}

// keeper is the reconciler.
type keeper struct {
	client  client.Client
	timeout time.Duration // of a write
	events  events.EventRecorder
	log     *slog.Logger
	made    made
}

// made is the key that this process made last, and the Secret that has it. A template that is applied
// every few seconds may empty the Secret again and again: with a new key each time, every node would know
// another few of many keys, and slow nodes would share none with the others. A user that deletes the
// Secret wants another key, also if a template makes it anew and empty.
type made struct {
	key     []byte
	uid     types.UID
	version string // resourceVersion
}

// action is what is done to the Secret, for Events.
const action = "MakeKey"

// Reconcile creates the Secret if there is none, and fills it if there is no key in it. It returns the
// error of the API server.
func (k *keeper) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout) // reads are of the cache
	defer cancel()
	found := &corev1.Secret{}
	switch err := k.client.Get(ctx, r.NamespacedName, found); {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, k.create(ctx, r.NamespacedName)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read Secret %s: %w", r.NamespacedName, err)
	case len(found.Data[v1beta1.HelloSecretKey]) > 0:
		if found.ResourceVersion != k.made.version {
			k.made = made{} // it may be another key by now, which replaced ours on purpose
		}
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, k.fill(ctx, found)
}

func (k *keeper) create(ctx context.Context, name client.ObjectKey) error {
	key := newKey()
	created := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name,
			Labels: map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/managed-by": "fairlead-controller"},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{v1beta1.HelloSecretKey: key},
	}
	switch err := k.client.Create(ctx, created); {
	case apierrors.IsAlreadyExists(err):
		return nil // the informer had not seen it yet
	case err != nil:
		return fmt.Errorf("create Secret %s: %w", name, err)
	}
	k.made = made{key, created.UID, created.ResourceVersion}
	k.log.Info("created the key of the hellos", "secret", name.String())
	return nil
}

// fill puts a key into a Secret that has none: the last one, if it was in this Secret and no other has
// been there since. The write is bound to the version of the informer, so that a key which was put there
// meanwhile stays. The informer does not know the values, so nothing but the one key may be written.
func (k *keeper) fill(ctx context.Context, found *corev1.Secret) error {
	name := client.ObjectKeyFromObject(found)
	if found.Immutable != nil && *found.Immutable {
		k.events.Eventf(found, nil, corev1.EventTypeWarning, v1beta1.ReasonHelloKeyMissing, action,
			"it has no value of the key %q, and is immutable: delete it, and the controller creates another one", v1beta1.HelloSecretKey)
		k.log.Error("the Secret for the key of the hellos has none, and is immutable; delete it", "secret", name.String())
		return nil // there is news once it is deleted
	}
	key, done := k.made.key, "put the one back that it had made"
	if key == nil || k.made.uid != found.UID {
		key, done = newKey(), "made one"
	}
	filled := found.DeepCopy()
	if filled.Data == nil {
		filled.Data = map[string][]byte{}
	}
	filled.Data[v1beta1.HelloSecretKey] = key
	switch err := k.client.Patch(ctx, filled, client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{})); {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil // the informer is about to say what is there now
	case err != nil:
		return fmt.Errorf("put a key into Secret %s, which has none: %w; or delete it, and another one is created", name, err)
	}
	k.made = made{key, filled.UID, filled.ResourceVersion}
	k.events.Eventf(found, nil, corev1.EventTypeWarning, v1beta1.ReasonHelloKeyMade, action,
		"it had no value of the key %q: the controller %s; see that nothing else that writes this Secret leaves it empty", v1beta1.HelloSecretKey, done)
	k.log.Warn("the Secret for the key of the hellos had none", "secret", name.String(), "key", v1beta1.HelloSecretKey, "done", done)
	return nil
}

func newKey() []byte {
	key := make([]byte, size)
	_, _ = rand.Read(key) // never fails
	return key
}
