// Package uninstall takes the addresses out of the statuses of Services when Fairlead is removed: no controller is
// there any more to do it, and they would look as if they were served. The controllers still run then, so that it takes
// their lease from them.
package uninstall

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/reconcile"
	"fairlead.dev/fairlead/internal/status"
)

const (
	// holder is the holder of the lease.
	holder = "fairlead-uninstall"
	// clearing is how long the statuses may take, and removal how long the controllers stay away after that: Helm deletes
	// them meanwhile. If it does not, one of them leads again.
	clearing, removal = 45 * time.Second, 30 * time.Second
	// writers is how many statuses are written at the same time.
	writers = 16
)

// Run clears the statuses of the Services that a controller gave addresses to, once no controller writes any more. It leaves
// them where the lease was given back, as by a Deployment of no replicas: another load balancer may have them. It
// returns the first error of a Service that still has its status in the end, or that of the lease.
func Run(ctx context.Context, c client.Client, lease client.ObjectKey, log *slog.Logger) error {
	wait, err := take(ctx, c, lease)
	if err != nil {
		return fmt.Errorf("take the lease %s: %w", lease, err)
	}
	if wait == nil {
		log.Info("no controller has the lease: the statuses of Services stay as they are", "lease", lease.String())
		return nil
	}
	log.Info("took the lease; waiting until no controller writes any more", "lease", lease.String(), "wait", wait.String())
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(*wait):
	}
	within, cancel := context.WithTimeout(ctx, clearing)
	defer cancel()
	return clearAll(within, c, log)
}

// take makes the lease that of this program, and returns for how long the leader may go on writing; nil: there is none.
func take(ctx context.Context, c client.Client, key client.ObjectKey) (wait *time.Duration, err error) {
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { // the leader renews it
		var lease coordinationv1.Lease
		if err := c.Get(ctx, key, &lease); err != nil {
			return client.IgnoreNotFound(err)
		}
		spec := &lease.Spec
		rest := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
		switch ptr.Deref(spec.HolderIdentity, "") {
		case "":
			return nil
		case holder: // this is another try
			rest = max(0, rest-clearing-removal)
		}
		now := metav1.NowMicro()
		spec.HolderIdentity, spec.AcquireTime, spec.RenewTime = new(holder), &now, &now
		spec.LeaseDurationSeconds = new(int32((rest + clearing + removal).Seconds()))
		if err := c.Update(ctx, &lease); err != nil {
			return err
		}
		wait = &rest
		return nil
	})
	return wait, err
}

// clearAll clears statuses until there are none left, or returns why there are when the context ends.
func clearAll(ctx context.Context, c client.Client, log *slog.Logger) error {
	for {
		left, err := clearOnce(ctx, c)
		if left == 0 && err == nil {
			log.Info("no Service has an address of Fairlead in its status any more")
			return nil
		}
		if err != nil {
			log.Warn("cannot clear the statuses of all Services; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("others change %d Services all the time", left)
			}
			return err
		case <-time.After(time.Second):
		}
	}
}

// clearOnce writes each status once, and returns how many there were to write, and the first error of one that
// stays.
func clearOnce(ctx context.Context, c client.Client) (left int, err error) {
	var services corev1.ServiceList
	if err := c.List(ctx, &services); err != nil {
		return 0, fmt.Errorf("list Services: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(writers)
	for i := range services.Items {
		s := &services.Items[i]
		next := cleared(s)
		if next == nil {
			continue
		}
		left++
		group.Go(func() error {
			after := s.DeepCopy()
			after.Status = *next
			err := c.Status().Patch(ctx, after, client.MergeFromWithOptions(s, client.MergeFromWithOptimisticLock{}))
			if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return nil // the next list tells
			}
			return fmt.Errorf("clear the status of Service %s/%s: %w", s.Namespace, s.Name, err)
		})
	}
	return left, group.Wait()
}

// cleared is the status of a Service without what Fairlead wrote; nil: it wrote nothing. The addresses of one that it does not
// serve any more may be announced by another load balancer.
func cleared(s *corev1.Service) *corev1.ServiceStatus {
	next := status.Released(s)
	if c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated); next != nil && c != nil && c.Reason != reconcile.ReasonClassNotServed {
		next.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	return next
}
