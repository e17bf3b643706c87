package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
)

const (
	pageSize   = 500
	relistWait = time.Second
)

// catchUp returns when the mirror is as new as the API server was when this was called. A new
// leader must not decide before: the informers of a stand-by may not have seen the last
// addresses that the old leader wrote, or the pools that these are from.
func (o *objects) catchUp(ctx context.Context, live client.Reader) error {
	for {
		behind, err := listHolders(ctx, live)
		if err != nil {
			return err
		}
		relist := time.After(relistWait)
		for waiting := true; waiting; {
			behind = o.behind(behind)
			if len(behind) == 0 {
				o.notify()
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-o.wake:
			case <-relist: // what was deleted meanwhile never shows up
				waiting = false
			}
		}
	}
}

// listHolders reads the versions of the Services that matter, and of all IPReservations and
// IPAddressPools, past all caches.
func listHolders(ctx context.Context, live client.Reader) (map[problem.Object]string, error) {
	versions := map[problem.Object]string{}
	note := func(kind string, o client.Object) {
		versions[problem.Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}] = o.GetResourceVersion()
	}
	var services corev1.ServiceList
	var reservations v1beta1.IPReservationList
	var pools v1beta1.IPAddressPoolList
	return versions, errors.Join(
		eachPage(ctx, live, &services, func() {
			for i := range services.Items {
				if s := &services.Items[i]; relevant(s) {
					note("Service", s)
				}
			}
		}),
		eachPage(ctx, live, &reservations, func() {
			for i := range reservations.Items {
				note("IPReservation", &reservations.Items[i])
			}
		}),
		eachPage(ctx, live, &pools, func() {
			for i := range pools.Items {
				note("IPAddressPool", &pools.Items[i])
			}
		}),
	)
}

// eachPage lists all objects of a kind, one page at a time.
func eachPage(ctx context.Context, live client.Reader, page client.ObjectList, read func()) error {
	for {
		if err := live.List(ctx, page, client.Limit(pageSize), client.Continue(page.GetContinue())); err != nil {
			return fmt.Errorf("list %T: %w", page, err)
		}
		read()
		if page.GetContinue() == "" {
			return nil
		}
	}
}

// behind returns those of the objects of which the mirror has an older version, or none.
func (o *objects) behind(versions map[problem.Object]string) map[problem.Object]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := snapshot{services: o.services, reservations: o.reservations, pools: o.Pools.Objects}
	rest := map[problem.Object]string{}
	for object, version := range versions {
		current := known.current(object)
		if current == "" {
			rest[object] = version
			continue
		}
		if order, err := resourceversion.CompareResourceVersion(current, version); err != nil || order < 0 {
			rest[object] = version
		}
	}
	return rest
}
