package objects

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Balance creates the Services from one number on and below another as such of type
// LoadBalancer, without endpoints. They are not among those of the Set. An error is that of the
// first creation that failed.
func (s *Set) Balance(ctx context.Context, from, to int) error {
	err := each(ctx, from, to, func(ctx context.Context, i int) error { return s.BalanceOne(ctx, i, corev1.IPv4Protocol) })
	if err != nil {
		return fmt.Errorf("creating the Services %d to %d: %w", from, to-1, err)
	}
	return nil
}

// BalanceOne creates one such Service of a family. An error is the API server's.
func (s *Set) BalanceOne(ctx context.Context, i int, family corev1.IPFamily) error {
	balanced := service(i)
	balanced.Spec.Type = corev1.ServiceTypeLoadBalancer
	balanced.Spec.IPFamilies = []corev1.IPFamily{family}
	if family == corev1.IPv6Protocol {
		balanced.Spec.ClusterIP = "" // the API server's to choose
	}
	_, err := s.client.CoreV1().Services(namespace).Create(ctx, balanced, metav1.CreateOptions{})
	return err
}

// Served tells of a Service when it was first seen and when first with an address.
type Served struct {
	Name        string
	Seen, Given time.Time
}

// Serving watches the Services that come from now on until the context ends, and tells of
// each once it has an address. The channel is closed when the watch has ended. An error is that
// of the first list or watch.
func (s *Set) Serving(ctx context.Context) (<-chan Served, error) {
	api := s.client.CoreV1().Services(namespace)
	now, err := api.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	// It goes on where it was when the API server ends it, as it ends watches that it finds slow.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return api.Watch(ctx, o) },
	})
	if err != nil {
		return nil, err
	}
	served := make(chan Served, most)
	go func() {
		defer close(served)
		defer w.Stop()
		seen := map[string]time.Time{}
		for event := range w.ResultChan() {
			at := time.Now()
			service, ok := event.Object.(*corev1.Service)
			if !ok {
				return // the API server has forgotten what came next
			}
			first, known := seen[service.Name]
			switch {
			case event.Type == watch.Added:
				seen[service.Name] = at
			case known && len(service.Status.LoadBalancer.Ingress) > 0:
				delete(seen, service.Name)
				select {
				case served <- Served{service.Name, first, at}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return served, nil
}
