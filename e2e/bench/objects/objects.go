// Package objects fills an API server with Services and their endpoints, as the
// controllers of a cluster would write them, and changes them.
package objects

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// Where everything is.
const (
	NodeName  = "node"
	NodeIP    = "192.0.2.1"
	PodRange  = "10.128.0.0/9"  // endpoints are in its upper half
	Endpoints = "10.192.0.0/10" // of all Services
	services  = "10.96.0.0"     // plus the first index
	firstIP   = 256             // below are the API server's own
	ServePort = 8080            // of every endpoint
	Port      = 80              // of every Service
	namespace = "bench"         // of all Services
	slots     = 16              // addresses that a Service has for each of its two sets of endpoints
	least     = 3               // endpoints of a Service
	most      = 10
	writers   = 16
)

// Set is the Services 0 to N-1 of one API server.
type Set struct {
	client kubernetes.Interface
	uids   []types.UID
	second []bool // the Service has the second of its two sets of endpoints
}

// New makes the node and the namespace, but no Service. An error is the API server's.
func New(ctx context.Context, config *rest.Config) (*Set, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf // a third of the work of JSON, for both sides
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the Kubernetes client: %w", err)
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelHostname: NodeName}},
		Spec:       corev1.NodeSpec{PodCIDR: PodRange, PodCIDRs: []string{PodRange}},
	}
	node, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: NodeIP}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return &Set{client: client}, nil
}

// Grow creates Services and their endpoints until there are n. An error is that of the first
// creation that failed.
func (s *Set) Grow(ctx context.Context, n int) error {
	from := len(s.uids)
	if n <= from {
		return nil
	}
	uids := make([]types.UID, n)
	copy(uids, s.uids)
	s.second = append(s.second, make([]bool, n-from)...)
	err := each(ctx, from, n, func(ctx context.Context, i int) error {
		made, err := s.client.CoreV1().Services(namespace).Create(ctx, service(i), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		uids[i] = made.UID
		_, err = s.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, s.slice(i, made.UID), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("creating %d Services: %w", n, err)
	}
	s.uids = uids
	return nil
}

// each calls create for all numbers from one on and below another, several at a time.
func each(ctx context.Context, from, to int, create func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	next.Store(int64(from))
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
				if err := create(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// Address is where a Service is reached.
func Address(i int) netip.AddrPort {
	return netip.AddrPortFrom(offset(services, firstIP+i), Port)
}

// Endpoint is one of the present endpoints of a Service.
func (s *Set) Endpoint(i int) netip.AddrPort {
	return netip.AddrPortFrom(endpoints(i, s.second[i])[0], ServePort)
}

// Next are the endpoints that Replace would give to a Service.
func (s *Set) Next(i int) []netip.Addr { return endpoints(i, !s.second[i]) }

// count of endpoints of a Service: 3 to 10, in turn.
func count(i int) int { return least + i%(most-least+1) }

// endpoints are the first or the second set of a Service.
func endpoints(i int, second bool) []netip.Addr {
	first := i * 2 * slots
	if second {
		first += slots
	}
	all := make([]netip.Addr, count(i))
	for n := range all {
		all[n] = offset(strings.Split(Endpoints, "/")[0], first+n)
	}
	return all
}

// Replace writes a slice in which every endpoint of the Service is another than before,
// and returns when the change was made: when the API server answered, or, if that was
// earlier, when a watch told of it. It is an error if the write fails or the watch ends.
func (s *Set) Replace(ctx context.Context, i int) (time.Time, error) {
	seen, err := s.await(ctx, i)
	if err != nil {
		return time.Time{}, err
	}
	s.second[i] = !s.second[i]
	if _, err = s.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, s.slice(i, s.uids[i]), metav1.UpdateOptions{}); err != nil {
		return time.Time{}, err
	}
	answered := time.Now()
	select {
	case at, ok := <-seen:
		if !ok {
			return time.Time{}, fmt.Errorf("the watch of %s ended", name(i))
		}
		if at.Before(answered) {
			return at, nil
		}
		return answered, nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// await watches the slice of a Service and says when it is written the next time.
func (s *Set) await(ctx context.Context, i int) (<-chan time.Time, error) {
	api := s.client.DiscoveryV1().EndpointSlices(namespace)
	one := metav1.ListOptions{FieldSelector: "metadata.name=" + sliceName(i)}
	// The version of the list, which is now: that of the slice itself may be so old that the
	// API server has forgotten what came after it.
	now, err := api.List(ctx, one)
	if err != nil {
		return nil, err
	}
	one.ResourceVersion = now.ResourceVersion
	w, err := api.Watch(ctx, one)
	if err != nil {
		return nil, err
	}
	seen := make(chan time.Time, 1)
	go func() {
		defer close(seen)
		defer w.Stop()
		for event := range w.ResultChan() {
			if event.Type == watch.Modified {
				seen <- time.Now()
				return
			}
		}
	}()
	return seen, nil
}

func name(i int) string      { return fmt.Sprintf("service-%05d", i) }
func sliceName(i int) string { return name(i) + "-slice" }

// offset is the address that many after the first.
func offset(first string, by int) netip.Addr {
	bytes := netip.MustParseAddr(first).As4()
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])+uint32(by))
	return netip.AddrFrom4(bytes)
}

// Serve starts an API server until the test ends that takes tens of thousands of Services
// in minutes. An error says that the environment could not be set.
func Serve(tb testing.TB) (*apiserver.Server, error) {
	tb.Helper()
	measuredAsUsual, err := collectLate()
	if err != nil {
		return nil, err
	}
	server := apiserver.Start(tb, apiserver.ManyServices)
	return server, measuredAsUsual()
}

// collectLate has the programs that are started before it is undone collect garbage late:
// the API server and etcd, which have the memory. Creating many Services makes little else.
func collectLate() (undo func() error, err error) {
	const name, percent = "GOGC", "400"
	before := os.Getenv(name) // empty is as good as unset
	return func() error { return os.Setenv(name, before) }, os.Setenv(name, percent)
}
