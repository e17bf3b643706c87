package reconcile

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// listing is an API server that only lists: Services, two on a page, reservations and pools.
type listing struct {
	client.Reader
	mu           sync.Mutex
	services     []corev1.Service
	reservations []v1beta1.IPReservation
	pools        []v1beta1.IPAddressPool
	lists        int // pages of Services
}

func (l *listing) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if into, ok := list.(*v1beta1.IPReservationList); ok {
		into.Items = slices.Clone(l.reservations)
		return nil
	}
	if into, ok := list.(*v1beta1.IPAddressPoolList); ok {
		into.Items = slices.Clone(l.pools)
		return nil
	}
	l.lists++
	var o client.ListOptions
	o.ApplyOptions(options)
	from := 0
	if o.Continue == "more" {
		from = 2
	}
	into, ok := list.(*corev1.ServiceList)
	if !ok {
		return nil
	}
	into.Items = slices.Clone(l.services[min(from, len(l.services)):min(from+2, len(l.services))])
	into.Continue = ""
	if len(l.services) > from+2 {
		into.Continue = "more"
	}
	return nil
}

func balanced(name, version string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1",
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func (o *objects) see(s *corev1.Service) {
	o.mu.Lock()
	o.setService(client.ObjectKeyFromObject(s), s)
	o.mu.Unlock()
	o.notify()
}

// TestCatchUp: it waits for each Service, reservation and pool until the informer is as new, and
// does not wait for ever for one that is gone.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := balanced("plain", "99")
		plain.Spec.Type = corev1.ServiceTypeClusterIP // the mirror does not keep such
		held := &v1beta1.IPReservation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "13"}}
		pool := &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "14"}}
		server := &listing{
			services:     []corev1.Service{*balanced("a", "10"), *plain, *balanced("b", "11"), *balanced("gone", "12")},
			reservations: []v1beta1.IPReservation{*held},
			pools:        []v1beta1.IPAddressPool{*pool},
		}
		o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
		o.see(balanced("a", "9"))
		done := make(chan error, 1)
		go func() { done <- o.catchUp(t.Context(), server) }()
		waiting := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("leads before %s: %v", what, err)
			default:
			}
		}
		waiting("anything was seen")
		o.see(balanced("a", "10"))
		waiting("b was seen")
		o.see(balanced("b", "100")) // newer, and not by its letters
		waiting("it is known what became of the last one")

		server.mu.Lock()
		server.services = server.services[:3]
		server.mu.Unlock()
		time.Sleep(relistWait)
		waiting("the reservation was seen")
		o.mu.Lock()
		o.setReservation(client.ObjectKeyFromObject(held), held)
		o.mu.Unlock()
		o.notify()
		waiting("the pool was seen")
		o.mu.Lock()
		named(o, &o.Pools)(client.ObjectKeyFromObject(pool), pool)
		o.mu.Unlock()
		o.notify()
		synctest.Wait()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if server.lists != 4 {
			t.Errorf("%d pages were read, want 2 + 2", server.lists)
		}
	})
}

func TestCatchUpEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{}).catchUp(ctx, &listing{services: []corev1.Service{*balanced("a", "1")}})
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err == nil {
			t.Error("it has caught up with what it never saw")
		}
	})
}
