// Package passwords lets the speakers read the Secrets that BGPPeers name, and no others of Fairlead's namespace:
// the rules of a Role, which the chart makes and binds.
package passwords

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"fairlead.dev/fairlead/api/v1beta1"
)

// Role is the name of the Role.
const Role = "fairlead-speaker-passwords"

// Add has the manager keep the Role in the given namespace while it leads; a write may take as long as timeout says. The
// error is that of a manager that has been started already.
func Add(m manager.Manager, namespace string, timeout time.Duration, log *slog.Logger) error {
	kept := client.ObjectKey{Namespace: namespace, Name: Role}
	all := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: kept}}
	}
	err := builder.ControllerManagedBy(m).Named("passwords").
		WithOptions(controller.Options{SkipNameValidation: new(true)}). // the name need be unique in one manager, not in a process
		For(&rbacv1.Role{}).                                            // of which the cache has this one
		Watches(&v1beta1.BGPPeer{}, handler.EnqueueRequestsFromMapFunc(all)).
		Complete(&keeper{client: m.GetClient(), timeout: timeout, log: log})
	if err != nil {
		return fmt.Errorf("keep Role %s: %w", kept, err)
	}
	return nil
}

// keeper is the reconciler.
type keeper struct {
	client  client.Client
	timeout time.Duration
	log     *slog.Logger
	missing bool // was told
}

// Reconcile writes the rules. It returns the error of the API server.
func (k *keeper) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	var peers v1beta1.BGPPeerList
	if err := k.client.List(ctx, &peers); err != nil {
		return reconcile.Result{}, fmt.Errorf("list BGPPeers: %w", err)
	}
	var role rbacv1.Role
	rules := rulesFor(peers.Items)
	switch err := k.client.Get(ctx, r.NamespacedName, &role); {
	case apierrors.IsNotFound(err):
		if !k.missing && len(rules) > 0 {
			k.log.Error("there is no Role by which the speakers read the passwords of BGPPeers; make it by helm upgrade", "role", r.String())
			k.missing = true
		}
		return reconcile.Result{}, nil // there is news once it is made
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read Role %s: %w", r.NamespacedName, err)
	}
	k.missing = false
	if len(role.Rules)+len(rules) == 0 || equality.Semantic.DeepEqual(role.Rules, rules) {
		return reconcile.Result{}, nil
	}
	next := role.DeepCopy()
	next.Rules = rules
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	if err := k.client.Patch(ctx, next, client.MergeFromWithOptions(&role, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return reconcile.Result{}, fmt.Errorf("let the speakers read the passwords of BGPPeers, in Role %s: %w", r.NamespacedName, err)
	}
	return reconcile.Result{}, nil // after a conflict, the informer is about to say what is there now
}

// rulesFor returns the right to read what the peers name. A rule without names would be the right to read all, so for none
// there is no rule.
func rulesFor(peers []v1beta1.BGPPeer) []rbacv1.PolicyRule {
	var names []string
	for _, p := range peers {
		if ref := p.Spec.PasswordSecret; ref != nil {
			names = append(names, ref.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []rbacv1.PolicyRule{{
		APIGroups: []string{corev1.GroupName}, Resources: []string{"secrets"}, ResourceNames: slices.Compact(names), Verbs: []string{"list", "watch"},
	}}
}
