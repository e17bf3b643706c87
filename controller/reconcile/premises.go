package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// premises are the objects by which the decision gives addresses that are not held yet, and to which Services and
// IPReservations. The watches of these objects and of those that get the addresses do not wait for each other, and what
// is given once is kept, whatever the watch tells later.
func (d *decision) premises(s *snapshot, last *decision) map[problem.Object][]problem.Object {
	found := map[problem.Object][]problem.Object{}
	var pools []*view.Pool
	for holder, u := range d.unseen {
		before, was := last.unseen[holder]
		if was && before.version == u.version && slices.Equal(before.assignment.Addresses, u.assignment.Addresses) {
			continue // they were there when it was given
		}
		if pools == nil {
			pools = s.cluster.PoolsByAge()
		}
		for premise := range s.grounds(holder, u.assignment.Addresses, pools) {
			found[premise] = append(found[premise], holder)
		}
	}
	return found
}

// grounds are the objects by which a Service or IPReservation gets those of the addresses that it does not show yet.
func (s *snapshot) grounds(holder problem.Object, addresses []netip.Addr, pools []*view.Pool) map[problem.Object]struct{} {
	grounds, ref := map[problem.Object]struct{}{}, view.Ref{Namespace: holder.Namespace, Name: holder.Name}
	var shown []netip.Addr
	var reservations []string
	if service := s.cluster.Services[ref]; holder.Kind == "Service" && service != nil {
		shown, reservations = service.Ingress, service.Request.Reservations
	} else if r := s.cluster.Reservations[ref]; holder.Kind == "IPReservation" && r != nil {
		shown = r.Held
	}
	for _, a := range addresses {
		pool := view.PoolOf(pools, a)
		if pool == nil || slices.Contains(shown, a) {
			continue
		}
		grounds[pool.Object()] = struct{}{}
		if len(pool.NamespaceSelectors) > 0 {
			grounds[problem.Object{Kind: "Namespace", Name: ref.Namespace}] = struct{}{}
		}
		for _, name := range reservations {
			if r := s.cluster.Reservations[view.Ref{Namespace: ref.Namespace, Name: name}]; r != nil && slices.Contains(r.Held, a) {
				grounds[r.Object()] = struct{}{}
			}
		}
	}
	return grounds
}

// errOutdated is of an object that is another one than its watch has told.
var errOutdated = errors.New("its watch has not told of its newest version yet")

// confirm reads what first addresses rest on from the API server itself, once for all that the decision gives, and
// takes back what rests on anything else. A pass decides about it anew once the watch has told, or, where the API server
// did not answer, after a moment.
func (l *Loop) confirm(ctx context.Context, s *snapshot, d *decision, now time.Time) {
	premises := d.premises(s, l.last)
	ctx, cancel := context.WithTimeout(ctx, l.WriteTimeout)
	defer cancel()
	var mu sync.Mutex
	var reading sync.WaitGroup
	faults, places := map[problem.Object]error{}, make(chan struct{}, writers)
	for object := range premises {
		places <- struct{}{}
		reading.Go(func() {
			defer func() { <-places }()
			if err := s.verify(ctx, l.Live, object); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults[object] = err
			}
		})
	}
	reading.Wait()
	l.again = time.Time{}
	var told []string
	for object, err := range faults {
		for _, holder := range premises[object] {
			d.undo(holder, l.last, s)
		}
		if !errors.Is(err, errOutdated) {
			l.again = now.Add(listRetry)
		}
		told = append(told, fmt.Sprintf("%s: %v", object, err))
	}
	slices.Sort(told)
	if text := problem.List(told, "; "); text != l.waiting {
		if l.waiting = text; text != "" {
			l.Logger.Info("no first addresses are given of what is not known for certain", "why", text)
		}
	}
}

// undo has the decision leave a holder as the last one did. What that has sent to it may land.
func (d *decision) undo(holder problem.Object, last *decision, s *snapshot) {
	delete(d.writes, holder)
	delete(d.unseen, holder)
	if before, was := last.unseen[holder]; was && before.version == s.current(holder) {
		d.unseen[holder] = before
		if w, pending := last.writes[holder]; pending {
			d.writes[holder] = w
		}
	}
}

// verify reads the present state of a pool, reservation or namespace. The error is errOutdated if the snapshot has
// another one, or that of the API server.
func (s *snapshot) verify(ctx context.Context, live client.Reader, object problem.Object) error {
	kind := v1beta1.GroupVersion.WithKind(object.Kind)
	var known metav1.Object
	switch ref := (view.Ref{Namespace: object.Namespace, Name: object.Name}); object.Kind {
	case "Namespace":
		kind = corev1.SchemeGroupVersion.WithKind(object.Kind)
	case "IPReservation":
		known = s.reservations[ref]
	default:
		known = s.pools[object.Name]
	}
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(kind)
	err := live.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: object.Name}, now)
	switch {
	case apierrors.IsNotFound(err):
		return errOutdated
	case err != nil:
		return err
	case known == nil && !maps.Equal(s.cluster.Namespaces[object.Name], now.Labels):
		return errOutdated
	case known != nil && (known.GetUID() != now.UID || known.GetGeneration() != now.Generation):
		return errOutdated
	}
	return nil
}
