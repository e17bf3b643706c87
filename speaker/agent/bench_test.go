package agent_test

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// BenchmarkNewAddress measures the time from a snapshot in which one Service has got its
// address until BGP is told, among 10,000 Services with addresses that are announced by BGP
// alone, or by layer 2 as well. It reports the median.
func BenchmarkNewAddress(b *testing.B) {
	b.Run("bgp", func(b *testing.B) { newAddress(b, false) })
	b.Run("bgp+layer2", func(b *testing.B) { newAddress(b, true) })
}

func newAddress(b *testing.B, layer2 bool) {
	const services = 10_000
	pool, err := addr.ParseRange("10.128.0.0/16")
	if err != nil {
		b.Fatal(err)
	}
	var all []netip.Addr
	for a := netip.MustParseAddr("10.128.0.0"); len(all) < services; a = a.Next() {
		all = append(all, a)
	}
	c := cluster(all...)
	if !layer2 {
		c.L2Advertisements = nil
	}
	for _, p := range c.Pools {
		p.Ranges = append(p.Ranges, pool)
	}
	told := make(chan int, 1)
	s := &source{changed: make(chan struct{}, 1)}
	a := agent.New(agent.Config{
		Options: desired.Options{Node: "a"}, Source: s, Forwarding: ready{}, Health: nothing{}, Layer2: silent{}, BGP: counting{told},
		Reporter: nothing{}, Log: slog.New(slog.DiscardHandler), Resync: time.Hour,
	})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	c.Revision = 1
	s.set(c)
	if got := <-told; got != services {
		b.Fatalf("%d routes, want %d", got, services)
	}
	var took []time.Duration
	one := view.Ref{Namespace: "shop", Name: "s-10-128-0-7"}
	for with := false; b.Loop(); with = !with {
		next := *c
		next.Services = maps.Clone(c.Services)
		changed := *c.Services[one]
		if changed.VIPs = nil; with {
			changed.VIPs = []netip.Addr{all[7]}
		}
		next.Services[one] = &changed
		next.Changes = view.Changes{Revision: c.Revision + 1, Since: c.Revision, Touched: map[view.Ref]struct{}{one: {}}}
		c = &next
		began := time.Now()
		s.set(c)
		<-told
		if !with {
			<-told // once to withdraw and once to announce
			continue
		}
		took = append(took, time.Since(began))
	}
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "told-ms")
}

// nothing answers for and reports nothing.
type nothing struct{}

func (nothing) Begin(*view.Cluster)                              {}
func (nothing) Apply(_ desired.Node, _ outcome.Missing, _ error) {}
func (nothing) Report(agent.Outcome)                             {}

// ready is a kernel that has everything at once.
type ready struct{}

func (ready) Apply(context.Context, desired.Forwarding) (outcome.Missing, error) { return nil, nil }
func (ready) Clean() (time.Duration, error)                                      { return 0, nil }
func (ready) CleanWithin() time.Duration                                         { return 0 }

type silent struct{}

func (silent) Offer(context.Context, api.Table) error { return nil }
func (silent) Apply(context.Context, api.Table) error { return nil }

// counting tells how many routes it is told of.
type counting struct{ told chan int }

func (c counting) Apply(_ context.Context, want map[string]desired.Session) error {
	if len(want) > 0 {
		c.told <- len(want["tor"].Routes)
	}
	return nil
}

func (counting) Drain(context.Context) error { return nil }
