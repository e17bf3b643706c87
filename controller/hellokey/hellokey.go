// Package hellokey keeps the Secret with the key that authenticates the nodes'
// hellos to each other (HMAC-SHA256, 32 random bytes). It creates the Secret when
// it is missing and never changes it: users replace the key by deleting the Secret.
package hellokey

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"fairlead.dev/fairlead/api/v1beta1"
)

// Name and Key say where the key is: the Secret's name and the key of its data.
const (
	Name = v1beta1.HelloSecret
	Key  = v1beta1.HelloSecretKey
)

// size is the length of the key in bytes: that of the hash (RFC 2104, 3).
const size = 32

// Add has the manager keep the Secret in the given namespace while it leads.
func Add(m manager.Manager, namespace string, log *slog.Logger) error {
	k := &keeper{client: m.GetClient(), log: log}
	wanted := client.ObjectKey{Namespace: namespace, Name: Name}
	unique := true
	c, err := controller.New("hellokey", m, controller.Options{
		Reconciler:         k,
		SkipNameValidation: &unique, // the name need be unique in one manager, not in a process
	})
	if err != nil {
		return fmt.Errorf("keep Secret %s: %w", wanted, err)
	}
	ours := predicate.NewTypedPredicateFuncs(func(s *corev1.Secret) bool { return client.ObjectKeyFromObject(s) == wanted })
	events := source.Kind(m.GetCache(), &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{}, ours)
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: wanted}) // one that never was has no event
		return nil
	})
	for _, s := range []source.Source{events, first} {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("keep Secret %s: %w", wanted, err)
		}
	}
	return nil
}

// keeper is the reconciler.
type keeper struct {
	client client.Client
	log    *slog.Logger
}

// Reconcile creates the Secret if there is none.
func (k *keeper) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	err := k.client.Get(ctx, r.NamespacedName, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	key := make([]byte, size)
	if _, err := rand.Read(key); err != nil {
		return reconcile.Result{}, fmt.Errorf("make a key: %w", err)
	}
	err = k.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name,
			Labels: map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/managed-by": "fairlead-controller"},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{Key: key},
	})
	switch {
	case apierrors.IsAlreadyExists(err):
		return reconcile.Result{}, nil // the informer had not seen it yet
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("create Secret %s: %w", r.NamespacedName, err)
	}
	k.log.Info("created the key of the hellos", "secret", r.String())
	return reconcile.Result{}, nil
}
