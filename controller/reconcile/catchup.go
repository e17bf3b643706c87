package reconcile

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
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
	for kind, page := range map[string]client.ObjectList{
		"Service": &corev1.ServiceList{}, "IPReservation": &v1beta1.IPReservationList{}, "IPAddressPool": &v1beta1.IPAddressPoolList{},
	} {
		for more := true; more; more = page.GetContinue() != "" {
			err := live.List(ctx, page, client.Limit(pageSize), client.Continue(page.GetContinue()))
			if err == nil {
				err = meta.EachListItem(page, func(listed runtime.Object) error {
					o := listed.(client.Object)
					if s, is := o.(*corev1.Service); !is || relevant(s) {
						versions[problem.Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}] = o.GetResourceVersion()
					}
					return nil
				})
			}
			if err != nil {
				return nil, fmt.Errorf("list each %s: %w", kind, err)
			}
		}
	}
	return versions, nil
}

// behind returns those of the objects of which the mirror has an older version, or none.
func (o *objects) behind(versions map[problem.Object]string) map[problem.Object]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := snapshot{services: o.services, reservations: o.bookings.objects, pools: o.Pools.Objects}
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
