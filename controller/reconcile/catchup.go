package reconcile

import (
	"context"
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

// catchUp returns when the mirror is as new as the API server was when this was
// called. A new leader must not decide before: the informers of a stand-by may
// not have seen the last addresses that the old leader wrote, nor a pool that it gave them
// of.
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
	var services corev1.ServiceList
	err := eachPage(ctx, live, &services, func() {
		for i := range services.Items {
			if s := &services.Items[i]; relevant(s) {
				versions[problem.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}] = s.ResourceVersion
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	var reservations v1beta1.IPReservationList
	err = eachPage(ctx, live, &reservations, func() {
		for i := range reservations.Items {
			r := &reservations.Items[i]
			versions[problem.Object{Kind: "IPReservation", Namespace: r.Namespace, Name: r.Name}] = r.ResourceVersion
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list IPReservations: %w", err)
	}
	var pools v1beta1.IPAddressPoolList
	err = eachPage(ctx, live, &pools, func() {
		for i := range pools.Items {
			p := &pools.Items[i]
			versions[problem.Object{Kind: "IPAddressPool", Name: p.Name}] = p.ResourceVersion
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list IPAddressPools: %w", err)
	}
	return versions, nil
}

// eachPage lists all objects of a kind, one page at a time.
func eachPage(ctx context.Context, live client.Reader, page client.ObjectList, read func()) error {
	for {
		if err := live.List(ctx, page, client.Limit(pageSize), client.Continue(page.GetContinue())); err != nil {
			return err
		}
		read()
		if page.GetContinue() == "" {
			return nil
		}
	}
}

// behind tells for which of the objects the mirror has an older version, or none.
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
