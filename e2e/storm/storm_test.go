// Package storm_test has a speaker follow more changes a second than an API server takes: the
// watch, the decision and the backend are the real ones, and packets tell what the kernel does.
package storm_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/watch"
)

func TestMain(m *testing.M) { netlab.Isolated(m.Run) }

const (
	patience = 2 * time.Minute // more than what does happen takes on a busy machine

	services = 200
	rate     = 12_000 // changes a second
	lasts    = 5 * time.Second
	tick     = 20 * time.Millisecond
)

// nobody stands for networks, routers and people: none is concerned.
type nobody struct{}

func (nobody) Apply(context.Context, map[string]desired.Session) error { return nil }
func (nobody) Drain(context.Context) error                             { return nil }

type noNetworks struct{}

func (noNetworks) Offer(context.Context, api.Table) error { return nil }
func (noNetworks) Apply(context.Context, api.Table) error { return nil }

// passes counts passes, and remembers the longest.
type passes struct {
	n       int
	longest time.Duration
}

func (*passes) Begin(*view.Cluster)                              {}
func (*passes) Apply(_ desired.Node, _ outcome.Missing, _ error) {}
func (p *passes) Report(o agent.Outcome)                         { p.n++; p.longest = max(p.longest, o.Duration) }

func clusterIP(i int) string { return fmt.Sprintf("10.96.1.%d", 1+i) }
func named(i int) string     { return fmt.Sprintf("storm-%03d", i) }

// TestTenThousandChangesASecond has the endpoints of many Services change all the time, and
// objects that mean nothing among them. A Service beside answers all the time, memory stays
// within bounds, and when it is over all Services are soon as was said last.
func TestTenThousandChangesASecond(t *testing.T) {
	modes := []forwarding.Mode{forwarding.NFTables, forwarding.IPTables}
	if testing.Short() {
		modes = modes[1:] // the default, and the one that writes more
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) { storm(t, mode) })
	}
}

func storm(t *testing.T, mode forwarding.Mode) {
	var made *forwarding.Forwarder
	c := blackbox.NewCluster(t, func() (blackbox.Backend, error) {
		var err error
		made, err = forwarding.New(forwarding.Config{Mode: mode, Log: blackbox.Quiet()})
		return made, err
	})
	a := blackbox.Plan(addr.IPv4)
	begun := map[string][]any{
		"services": {service("calm", "10.96.0.1")}, "endpointslices": {slice("calm", a.P2.String())},
		"nodes": {&corev1.Node{
			TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "node", ResourceVersion: "1"},
			Spec:   corev1.NodeSpec{PodCIDRs: []string{a.Pods.String()}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: a.Node.String()}}},
		}},
	}
	for i := range services {
		begun["services"] = append(begun["services"], service(named(i), clusterIP(i)))
		begun["endpointslices"] = append(begun["endpointslices"], slice(named(i), a.P1.String()))
	}
	s := newSource(t, begun)
	seen := run(t, s, c, made)

	calm := netip.MustParseAddrPort("10.96.0.1:80")
	answers(t, c, calm, "p2")
	answers(t, c, netip.AddrPortFrom(netip.MustParseAddr(clusterIP(services-1)), 80), "p1")
	before := heap(true)
	asked := make(chan []time.Duration, 1)
	stop := make(chan struct{})
	go func() { asked <- keepAsking(t, c, calm, stop) }()
	peak, took := blow(t, s, a)
	over := time.Now()
	for i := range services {
		answers(t, c, netip.AddrPortFrom(netip.MustParseAddr(clusterIP(i)), 80), "p1")
	}
	settled := time.Since(over)
	close(stop)
	waits := <-asked
	slices.Sort(waits)
	after := heap(true)
	if grown := after - before; grown > 32<<20 {
		t.Errorf("after the storm the heap has %d MiB more", grown>>20)
	}
	if peak-before > 256<<20 {
		t.Errorf("in the storm the heap had %d MiB more", (peak-before)>>20)
	}
	changes := int(lasts/tick) * int(rate*tick/time.Second)
	t.Logf("%d changes, %.0f/s; all %d Services as said last after %v; the Service beside: %d connections, median %v, longest %v; "+
		"heap %d, at most %d, after it %d MiB; %d passes, the longest %v",
		changes, float64(changes)/took.Seconds(), services, settled.Round(time.Millisecond), len(waits),
		waits[len(waits)/2].Round(10*time.Microsecond), waits[len(waits)-1].Round(time.Millisecond), before>>20, peak>>20, after>>20,
		seen().n, seen().longest.Round(time.Millisecond))
}

// run starts what a speaker has between the API server and the kernel; the function ends it
// and returns what its passes were.
func run(t *testing.T, s *source, c *blackbox.Cluster, kernel *forwarding.Forwarder) func() *passes {
	ctx, end := context.WithCancel(t.Context())
	w := watch.New(watch.Config{
		REST: &rest.Config{Host: s.URL, QPS: -1}, Namespace: ourNamespace, Log: slog.New(slog.DiscardHandler), Noted: func(string) {},
	})
	p := &passes{}
	disturbed := make(chan struct{})
	loop := agent.New(agent.Config{
		Options: desired.Options{Node: "node"}, Source: w, Forwarding: kernel, Disturbed: disturbed, Health: p, Layer2: noNetworks{},
		BGP: nobody{}, Reporter: p, Log: slog.New(slog.DiscardHandler), Resync: 10 * time.Second,
	})
	watched, looped := make(chan error, 1), make(chan error, 1)
	go func() { watched <- w.Run(ctx) }()
	go c.Node.Do(func() { looped <- loop.Run(ctx) })
	ended := false
	stop := func() *passes {
		if !ended {
			ended = true
			end()
			for _, done := range []chan error{watched, looped} {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		return p
	}
	t.Cleanup(func() { stop() })
	return stop
}

// blow sends the storm, which ends with all endpoints where they were at first. It returns
// the most memory that was in use, and how long it took.
func blow(t *testing.T, s *source, a blackbox.Addresses) (peak int64, took time.Duration) {
	t.Helper()
	began := time.Now()
	n := 0
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for range int(lasts / tick) {
		<-ticks.C
		lines := map[string]*bytes.Buffer{"services": {}, "endpointslices": {}}
		for range int(rate * tick / time.Second) {
			resource, object := change(n, a)
			if err := s.put(lines[resource], object); err != nil {
				t.Fatal(err)
			}
			n++
		}
		for resource, some := range lines {
			s.send(t, resource, some)
		}
		peak = max(peak, heap(false))
	}
	took = time.Since(began)
	last := map[string]*bytes.Buffer{"services": {}, "endpointslices": {}}
	for i := range services {
		for resource, object := range map[string]metav1.Object{"services": service(named(i), clusterIP(i)), "endpointslices": slice(named(i), a.P1.String())} {
			if err := s.put(last[resource], object); err != nil {
				t.Fatal(err)
			}
		}
	}
	for resource, some := range last {
		s.send(t, resource, some)
	}
	return peak, took
}

// change is the n-th of the storm: mostly another endpoint, at times another port of the
// Service, and each tenth means nothing in some way.
func change(n int, a blackbox.Addresses) (resource string, object metav1.Object) {
	i := n % services
	address := fmt.Sprintf("10.244.%d.%d", 3+n/250%200, 1+n%250)
	if n/services%2 == 0 {
		address = a.P3.String()
	}
	s := slice(named(i), address)
	switch n % 21 {
	case 3:
		s.Endpoints[0].Addresses[0] = "10.244.0.300"
	case 7:
		s.Ports[0].Port = new(int32(70000))
	case 11:
		s.AddressType, s.Endpoints[0].Addresses[0] = discoveryv1.AddressTypeFQDN, "host.example.com"
	case 13:
		changed := service(named(i), clusterIP(i))
		changed.Spec.LoadBalancerSourceRanges = []string{"everybody"}
		changed.Spec.Ports[0].Port = int32(81 + n%7)
		return "services", changed
	default:
	}
	return "endpointslices", s
}

// keepAsking makes one connection after another; each must be answered. It returns how long
// each took.
func keepAsking(t *testing.T, c *blackbox.Cluster, to netip.AddrPort, stop <-chan struct{}) []time.Duration {
	var waits []time.Duration
	for {
		select {
		case <-stop:
			return waits
		default:
		}
		began := time.Now()
		got, err := c.P1.Ask("tcp", to, blackbox.AnswerIn)
		if waits = append(waits, time.Since(began)); err != nil || got.Server != "p2" {
			t.Errorf("in the storm the Service beside answers with %+v, %v", got, err)
			return waits
		}
	}
}

// answers waits until a Service is served by a pod.
func answers(t *testing.T, c *blackbox.Cluster, to netip.AddrPort, by string) {
	t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got, err := c.P2.Ask("tcp", to, 250*time.Millisecond)
		if err == nil && got.Server == by {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s is not served by %s, but %+v, %v", to, by, got, err)
		}
	}
}

// heap is how much memory is in use, what nobody needs any more left out if so asked.
func heap(collect bool) int64 {
	if collect {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
