// Package uninstall takes the addresses out of the statuses of Services when Fairlead is removed: no controller is
// there any more to do it, and they would look as if they were served. The controllers still run then, so that it takes
// their lease from them.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	poll "k8s.io/apimachinery/pkg/util/wait"
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
	clearing, removal = 45 * time.Second, 10 * time.Second
	// writers is how many statuses are written at the same time.
	writers = 16
	// late is how much later than the lease runs out a controller that stands by may have it.
	late = 5 * time.Second
)

// errAbandoned is the error of a lease of a controller that was killed, after which none came.
var errAbandoned = errors.New("a controller was killed that has it, and none runs: another load balancer may have the addresses of Services by now")

// Run clears the statuses of the Services that a controller gave addresses to, once no controller writes any more. Where the
// lease was given back, as by a Deployment of no replicas, another load balancer may have the addresses: they stay, and
// only what a controller says of them goes. It returns the first error of a Service that still has its status in the end,
// or that of the lease.
func Run(ctx context.Context, c client.Client, lease client.ObjectKey, log *slog.Logger) error {
	err := awaitRenewal(ctx, c, lease)
	var wait *time.Duration
	if err == nil {
		wait, err = take(ctx, c, lease)
	}
	if err != nil {
		return fmt.Errorf("take the lease %s: %w", lease, err)
	}
	if wait == nil {
		log.Info("no controller has the lease: Services keep their addresses", "lease", lease.String())
	} else {
		log.Info("took the lease; waiting until no controller writes any more", "lease", lease.String(), "wait", wait.String())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(*wait):
		}
	}
	within, cancel := context.WithTimeout(ctx, clearing)
	defer cancel()
	err = clearAll(within, c, wait != nil, log)
	if err != nil || wait == nil {
		return err
	}
	return leave(ctx, c, lease)
}

// leave has the lease run out once Helm has deleted the controllers: those of an installation that comes next wait for as long as it
// says, from when they begin.
func leave(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var lease coordinationv1.Lease
	if err := c.Get(ctx, key, &lease); err != nil {
		return client.IgnoreNotFound(err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != holder {
		return nil
	}
	lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new(metav1.NowMicro()), new(int32(removal.Seconds()))
	return c.Update(ctx, &lease)
}

// awaitRenewal waits until a controller renews its lease, or another one takes it. The time in a lease does not tell whether
// one will, since it is of another clock. The error is [errAbandoned] if none does, or that of a request.
func awaitRenewal(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var first, now coordinationv1.Lease
	if err := c.Get(ctx, key, &first); err != nil {
		return client.IgnoreNotFound(err)
	}
	if by := ptr.Deref(first.Spec.HolderIdentity, ""); by == "" || by == holder {
		return nil
	}
	patience := time.Duration(ptr.Deref(first.Spec.LeaseDurationSeconds, 0))*time.Second + late
	err := poll.PollUntilContextTimeout(ctx, time.Second, patience, false, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, &now)
		return err == nil && now.ResourceVersion != first.ResourceVersion, err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return errAbandoned
	}
	return err
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

// clearAll clears statuses until there are none left, or returns why there are when the context ends. Addresses go
// if served is set: a controller led until now.
func clearAll(ctx context.Context, c client.Client, served bool, log *slog.Logger) error {
	for {
		left, err := clearOnce(ctx, c, served)
		if left == 0 && err == nil {
			log.Info("no Service has anything of Fairlead in its status any more", "addressesCleared", served)
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
func clearOnce(ctx context.Context, c client.Client, served bool) (left int, err error) {
	var services corev1.ServiceList
	if err := c.List(ctx, &services); err != nil {
		return 0, fmt.Errorf("list Services: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(writers)
	for i := range services.Items {
		s := &services.Items[i]
		next := cleared(s, served)
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
func cleared(s *corev1.Service, served bool) *corev1.ServiceStatus {
	next := status.Released(s)
	if c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated); served && next != nil && c != nil && c.Reason != reconcile.ReasonClassNotServed {
		next.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	return next
}
