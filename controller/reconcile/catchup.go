package reconcile

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/view"
)

const (
	pageSize   = 500
	relistWait = time.Second
)

// catchUp returns when the mirror is as new as the API server was when this was
// called. A new leader must not decide before: the informers of a stand-by may
// not have seen the last addresses that the old leader wrote.
func (o *objects) catchUp(ctx context.Context, live client.Reader) error {
	for {
		behind, err := listServices(ctx, live)
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

// listServices reads the versions of the Services that matter, past all caches.
func listServices(ctx context.Context, live client.Reader) (map[view.Ref]string, error) {
	versions := map[view.Ref]string{}
	var page corev1.ServiceList
	for {
		if err := live.List(ctx, &page, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list Services: %w", err)
		}
		for i := range page.Items {
			if s := &page.Items[i]; relevant(s) {
				versions[view.Ref{Namespace: s.Namespace, Name: s.Name}] = s.ResourceVersion
			}
		}
		if page.Continue == "" {
			return versions, nil
		}
	}
}

// behind tells for which of the Services the mirror has an older version, or none.
func (o *objects) behind(versions map[view.Ref]string) map[view.Ref]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := map[view.Ref]string{}
	for ref, version := range versions {
		s := o.services[ref]
		if s == nil {
			rest[ref] = version
			continue
		}
		if order, err := resourceversion.CompareResourceVersion(s.ResourceVersion, version); err != nil || order < 0 {
			rest[ref] = version
		}
	}
	return rest
}
