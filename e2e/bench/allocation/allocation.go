// Package allocation measures how controllers give addresses to Services: Fairlead's and
// MetalLB's, each on a real API server of its own. It measures many Services at once, one among
// many, the memory used, and what large pools cost. It needs the programs of the lab, but no lab
// and no root.
package allocation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/e2e/bench/objects"
	"fairlead.dev/fairlead/e2e/bench/process"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/program"
)

const (
	// everything has room for all Services.
	everything = "10.0.0.0/8"
	// warmth is the number of the Service that shows that a controller is at work.
	warmth = 0
	// pause is between Services that are created one after another.
	pause = 50 * time.Millisecond
	// patienceForOne is how long one Service may wait for its address.
	patienceForOne = time.Minute
	// telling is how often progress is told.
	telling = 5 * time.Second
)

// Options are what is measured.
type Options struct {
	machine.Options
	Ours, Theirs []int // numbers of Services, rising; none: the controller is left out
	Singles      int   // Services that are created one after another
	pools        []pool
}

// run is one run of the benchmark.
type run struct {
	Options
	*machine.Session
	results    *figures.Results
	dir        string
	controller string // the program
}

// pool is one of the pools that are measured.
type pool struct {
	figures.Pool
	addresses string
	family    corev1.IPFamily
}

func pools() []pool {
	return []pool{
		{figures.Pool{Name: "IPv4 /24", Bits: 8}, "203.0.113.0/24", corev1.IPv4Protocol},
		{figures.Pool{Name: "IPv4 /8", Bits: 24}, everything, corev1.IPv4Protocol},
		{figures.Pool{Name: "IPv6 /64", Bits: 64}, "2001:db8::/64", corev1.IPv6Protocol},
	}
}

// Run measures and writes the report after each round. An error names the controller that failed.
func Run(ctx context.Context, o Options) error {
	if o.pools == nil {
		o.pools = pools()
	}
	r := &run{Options: o, Session: machine.Begin(o.Settle), results: figures.New()}
	facts, err := r.facts(ctx)
	if err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "fairlead-bench"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.dir) }()
	if err := os.Setenv(apiserver.BinEnv, o.Bin); err != nil {
		return err
	}
	r.controller = filepath.Join(r.dir, "controller")
	r.Say("building the controller")
	if err := process.Build(ctx, "fairlead.dev/fairlead/controller", r.controller); err != nil {
		return err
	}
	for n := range o.Rounds {
		for _, c := range r.turns(n) {
			if err := r.perform(ctx, c.contestant, c.sizes); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		if err := r.report(facts); err != nil { // after each: what is measured is not lost
			return err
		}
	}
	r.Say("done")
	return nil
}

// turn is a contestant and the numbers of Services that it is measured with.
type turn struct {
	contestant
	sizes []int
}

// turns alternate the order of the contestants.
func (r *run) turns(round int) []turn {
	both := []turn{{r.fairlead(), r.Ours}, {r.metallb(), r.Theirs}}
	if round%2 == 1 {
		slices.Reverse(both)
	}
	return slices.DeleteFunc(both, func(t turn) bool { return len(t.sizes) == 0 })
}

// perform measures one contestant once, with every number of Services and every pool.
func (r *run) perform(ctx context.Context, c contestant, sizes []int) error {
	for _, size := range sizes {
		if err := program.Run(func(tb testing.TB) error { return r.fill(ctx, tb, c, size) }); err != nil {
			return fmt.Errorf("%d Services: %w", size, err)
		}
	}
	for _, p := range r.pools {
		if err := program.Run(func(tb testing.TB) error { return r.large(ctx, tb, c, p) }); err != nil {
			return fmt.Errorf("the pool %s: %w", p.addresses, err)
		}
	}
	return nil
}

// fill creates Services in bulk and then some more, one after another.
func (r *run) fill(ctx context.Context, tb testing.TB, c contestant, size int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.Say("%s, %d Services: starting the API server", c.name, size)
	p, err := r.open(ctx, tb, c)
	if err != nil {
		return err
	}
	if err := p.pool(ctx, "all", everything); err != nil {
		return err
	}
	served, err := p.services.Serving(ctx)
	if err != nil {
		return err
	}
	if _, err := r.one(ctx, p, served, warmth); err != nil {
		return err
	}
	r.Rest(ctx)
	if err := r.bulk(ctx, p, served, size); err != nil {
		return err
	}
	r.Rest(ctx)
	var took []float64
	for i := range r.Singles {
		s, err := r.one(ctx, p, served, size+1+i)
		if err != nil {
			return err
		}
		took = append(took, figures.Milliseconds(s.Given.Sub(s.Seen)))
		time.Sleep(pause)
	}
	r.results.Add(c.name, size, figures.Single, took...)
	use, err := p.running.Use()
	if err != nil {
		return err
	}
	r.results.Add(c.name, size, figures.Resident, use.Resident)
	r.results.Add(c.name, size, figures.Anonymous, use.Anonymous)
	r.results.Add(c.name, size, figures.Peak, use.Peak)
	r.Say("%s, %d Services: one among them median %.2f ms, longest %.2f ms; VmRSS %.0f MiB, at most %.0f",
		c.name, size, r.results.Median(c.name, size, figures.Single), slices.Max(took), use.Resident, use.Peak)
	return nil
}

// bulk creates Services and waits until each has an address.
func (r *run) bulk(ctx context.Context, p *place, served <-chan objects.Served, size int) error {
	before, err := p.running.Use()
	if err != nil {
		return err
	}
	began := time.Now()
	created := make(chan error, 1)
	var creating time.Duration
	go func() {
		err := p.services.Balance(ctx, warmth+1, warmth+1+size)
		creating = time.Since(began)
		created <- err
	}()
	patience, ticks := time.After(r.Patience), time.NewTicker(telling)
	defer ticks.Stop()
	given, done := 0, false
	for given < size || !done {
		select {
		case err := <-created:
			if err != nil {
				return err
			}
			done = true
			r.Say("%s, %d Services: created in %.2f s, %d of them have an address", p.name, size, creating.Seconds(), given)
		case _, ok := <-served:
			if !ok {
				return errors.New("the watch of Services ended")
			}
			given++
		case <-p.running.Done():
			return p.running.Ended()
		case <-ticks.C:
			r.Say("%s, %d Services: %d have an address", p.name, size, given)
		case <-patience:
			return fmt.Errorf("after %v %d Services have an address; the log:\n%s", r.Patience, given, p.running.Tail())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	giving := time.Since(began)
	after, err := p.running.Use()
	if err != nil {
		return err
	}
	r.results.Add(p.name, size, figures.Creating, creating.Seconds())
	r.results.Add(p.name, size, figures.Giving, giving.Seconds())
	r.results.Add(p.name, size, figures.Factor, giving.Seconds()/creating.Seconds())
	r.results.Add(p.name, size, figures.GivingCPU, (after.CPU - before.CPU).Seconds())
	r.Say("%s, %d Services: all have addresses after %.2f s, %.2f times what creating them took; CPU time %.2f s",
		p.name, size, giving.Seconds(), giving.Seconds()/creating.Seconds(), (after.CPU - before.CPU).Seconds())
	return nil
}

// one creates one Service and waits for its address.
func (r *run) one(ctx context.Context, p *place, served <-chan objects.Served, i int) (objects.Served, error) {
	if err := p.services.Balance(ctx, i, i+1); err != nil {
		return objects.Served{}, err
	}
	return r.next(ctx, p, served)
}

// next waits for the next Service that gets an address.
func (r *run) next(ctx context.Context, p *place, served <-chan objects.Served) (objects.Served, error) {
	select {
	case s, ok := <-served:
		if !ok {
			return s, errors.New("the watch of Services ended")
		}
		return s, nil
	case <-p.running.Done():
		return objects.Served{}, p.running.Ended()
	case <-time.After(patienceForOne):
		return objects.Served{}, fmt.Errorf("a Service has no address after %v; the log:\n%s", patienceForOne, p.running.Tail())
	case <-ctx.Done():
		return objects.Served{}, ctx.Err()
	}
}

// large measures what a pool costs by itself.
func (r *run) large(ctx context.Context, tb testing.TB, c contestant, of pool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := r.open(ctx, tb, c)
	if err != nil {
		return err
	}
	served, err := p.services.Serving(ctx)
	if err != nil {
		return err
	}
	r.Rest(ctx)
	began := time.Now()
	if err := p.pool(ctx, "only", of.addresses); err != nil {
		return err
	}
	if err := p.services.BalanceOne(ctx, warmth, of.family); err != nil {
		return err
	}
	s, err := r.next(ctx, p, served)
	if err != nil {
		return err
	}
	r.results.Add(c.name, of.Bits, figures.FirstOfPool, figures.Milliseconds(s.Given.Sub(began)))
	use, err := p.running.Use()
	if err != nil {
		return err
	}
	r.results.Add(c.name, of.Bits, figures.PoolResident, use.Resident)
	r.results.Add(c.name, of.Bits, figures.PoolPeak, use.Peak)
	r.Say("%s, the pool %s: first address after %.1f ms, VmRSS %.1f MiB, at most %.1f", c.name, of.addresses,
		r.results.Median(c.name, of.Bits, figures.FirstOfPool), use.Resident, use.Peak)
	return nil
}

func (r *run) facts(ctx context.Context) ([]string, error) {
	facts, err := machine.Facts(ctx)
	if err != nil {
		return nil, err
	}
	kubernetes, err := machine.Said(ctx, filepath.Join(r.Bin, "kube-apiserver"), "--version")
	return append(facts,
		"API server: "+kubernetes+"; it hands out ClusterIPs as that of 1.33 can, and it and etcd collect garbage late, lest creating Services take most of the time",
		"MetalLB "+lab.MetalLBVersion+", its controller without webhooks",
		fmt.Sprintf("%d rounds, the order of the two changed in each; medians of the rounds", r.Rounds)), err
}

func (r *run) report(facts []string) error {
	setup := figures.Setup{
		Command: r.Command,
		Facts:   append(slices.Clone(facts), r.Busiest()),
		Sizes:   slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Ours, r.Theirs)))),
	}
	for _, t := range r.turns(0) {
		c := figures.Contestant{Name: t.name, Ours: t.ours}
		if t.ours {
			c.Rival = r.metallb().name
		}
		setup.Contestants = append(setup.Contestants, c)
	}
	var columns []figures.Pool
	for _, p := range r.pools {
		columns = append(columns, p.Pool)
	}
	return r.Write(r.results.Allocation(setup, columns))
}
