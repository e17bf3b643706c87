// Package forwarding measures ways to forward Services: Fairlead's, the real kube-proxy's and
// plain routing, in turns. It measures how fast new connections are, how long
// a change of endpoints and the first fill take, and the memory used. It needs root and the
// programs of the lab, but no lab.
package forwarding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/e2e/bench/objects"
	"fairlead.dev/fairlead/e2e/bench/process"
	"fairlead.dev/fairlead/e2e/bench/stage"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/program"
)

// Options are what is measured.
type Options struct {
	machine.Options
	Sizes                  []int // numbers of Services, rising
	Contestants            []stage.Contestant
	Changes, Passes, Flows int    // of endpoints in a round, of flows in a round, of a mode in a pass
	Before                 string // an earlier build of the speaker; "": none
}

// run is one run of the benchmark.
type run struct {
	Options
	*machine.Session
	results  *figures.Results
	services *objects.Set
	programs stage.Programs
	api      string          // address of the API server on this machine's loopback
	gone     map[string]bool // contestants that take no further part
	// least are the networks of the fewest Services, which stay to be compared with.
	least []standing
}

// standing is a network with its rules in place, and no program that keeps them.
type standing struct {
	contestant stage.Contestant
	stage      *stage.Stage
	target     netip.AddrPort
}

// Run measures and writes the report. An error is that of what all contestants need: one that fails
// by itself takes no further part, which the report says.
func Run(ctx context.Context, o Options) error {
	r := &run{Options: o, Session: machine.Begin(o.Settle), results: figures.New(), gone: map[string]bool{}}
	facts, err := facts(ctx, o)
	if err != nil {
		return err
	}
	if err := os.Setenv(apiserver.BinEnv, o.Bin); err != nil {
		return err
	}
	return program.Run(func(tb testing.TB) error {
		if err := r.prepare(ctx, tb); err != nil {
			return err
		}
		for _, size := range o.Sizes {
			r.Say("%d Services: creating them", size)
			if err := r.services.Grow(ctx, size); err != nil {
				return err
			}
			for n := range o.Rounds {
				if err := r.round(ctx, tb, size, n); err != nil {
					return err
				}
			}
			// After each size: what is measured is not lost if the rest fails.
			if err := r.report(facts); err != nil {
				return err
			}
		}
		r.Say("done")
		return nil
	})
}

// prepare starts the API server and builds what is measured.
func (r *run) prepare(ctx context.Context, tb testing.TB) error {
	dir, err := os.MkdirTemp("", "fairlead-bench")
	if err != nil {
		return err
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	r.programs = stage.Programs{
		Dir: dir, Speaker: filepath.Join(dir, "speaker"), Before: r.Before, KubeProxy: filepath.Join(r.Bin, "kube-proxy"),
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
	}
	if err := r.programs.Prepare(); err != nil {
		return err
	}
	r.Say("building the speaker")
	if err := process.Build(ctx, "fairlead.dev/fairlead/speaker", r.programs.Speaker); err != nil {
		return err
	}
	r.Say("starting the API server")
	server, err := objects.Serve(tb)
	if err != nil {
		return err
	}
	_, address, _ := strings.Cut(server.Config.Host, "://")
	r.api = strings.TrimSuffix(address, "/")
	if err := apiserver.WriteKubeconfig(server.Config, r.programs.Kubeconfig); err != nil {
		return err
	}
	r.services, err = objects.New(ctx, server.Config)
	return err
}

// round measures all contestants once with this many Services. The networks of the very
// first one stay until forGood ends.
func (r *run) round(ctx context.Context, forGood testing.TB, size, n int) error {
	if size == r.Sizes[0] && n == 0 {
		var err error
		if r.least, err = r.perform(ctx, forGood, size, n); err != nil {
			return err
		}
		return r.flowsOf(ctx, r.least, size, n)
	}
	return program.Run(func(tb testing.TB) error {
		all, err := r.perform(ctx, tb, size, n)
		if err != nil {
			return err
		}
		return r.flowsOf(ctx, all, size, n)
	})
}

// perform has all contestants that still take part program networks, one after another.
func (r *run) perform(ctx context.Context, tb testing.TB, size, n int) ([]standing, error) {
	var all []standing
	for i := range r.Contestants {
		c := r.Contestants[(i+n)%len(r.Contestants)]
		if r.gone[c.Name] {
			continue
		}
		s, err := r.program(ctx, tb, c, size)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			r.gone[c.Name] = true
			r.Say("%d Services, %s: takes no further part: %v", size, c.Name, err)
			r.results.Note(farewell(c.Name, size, err))
		default:
			all = append(all, s)
		}
	}
	return all, nil
}

// farewell tells the reader of the report why figures are missing.
func farewell(name string, size int, err error) string {
	if late, ok := errors.AsType[*unfinished](err); ok {
		return fmt.Sprintf("%s %s; it was stopped and took no further part", name, late.String())
	}
	return fmt.Sprintf("%s took no further part from %d Services on: %s", name, size, lastLine(err))
}

// lastLine is where the reason is, in an error and in a log.
func lastLine(err error) string {
	text := strings.TrimSpace(err.Error())
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// program has one contestant fill a new network and follow changes, and stops it.
func (r *run) program(ctx context.Context, tb testing.TB, c stage.Contestant, size int) (standing, error) {
	last := size - 1
	s := stage.New(ctx, tb, runtime.NumCPU()-1)
	if c.Name == stage.NoNAT {
		return standing{c, s, r.services.Endpoint(last)}, nil
	}
	s.Relay(ctx, tb, r.api)
	r.Rest(ctx)
	running, err := s.Start(ctx, tb, c, r.programs)
	if err != nil {
		return standing{}, err
	}
	err = r.fill(ctx, s, running, c, size)
	if err == nil {
		err = r.follow(ctx, s, running, c, size)
	}
	if err != nil {
		// At once: what it still does must not disturb the others.
		return standing{}, errors.Join(running.Abandon(), err)
	}
	use, err := running.Use()
	if err != nil {
		return standing{}, err
	}
	r.results.Add(c.Name, size, figures.Resident, use.Resident)
	r.results.Add(c.Name, size, figures.Anonymous, use.Anonymous)
	r.results.Add(c.Name, size, figures.Peak, use.Peak)
	r.Say("%d Services, %s: VmRSS %.0f MiB, anonymous %.0f, at most %.0f", size, c.Name, use.Resident, use.Anonymous, use.Peak)
	if err := running.Stop(); err != nil {
		return standing{}, err
	}
	target, err := s.Worst(ctx, c, r.programs, objects.Address(last))
	return standing{c, s, target}, err
}

// flowsOf measures new connections: every contestant in each of many short passes, in an
// order that turns.
func (r *run) flowsOf(ctx context.Context, all []standing, size, n int) error {
	r.Rest(ctx)
	for pass := range r.Passes {
		for i := range all {
			s := all[(i+pass)%len(all)]
			result, err := s.stage.Measure(ctx, s.target, r.Flows)
			if err != nil {
				return fmt.Errorf("%s: %w", s.contestant.Name, err)
			}
			r.results.Add(s.contestant.Name, size, figures.Rate, result.PerSecond)
			r.results.Add(s.contestant.Name, size, figures.Whole, micros(result.Whole))
			r.results.Add(s.contestant.Name, size, figures.Connect, micros(result.Connect))
		}
		for i := range r.least {
			s := r.least[(i+pass)%len(r.least)]
			result, err := s.stage.Measure(ctx, s.target, r.Flows)
			if err != nil {
				return fmt.Errorf("%s with the least Services: %w", s.contestant.Name, err)
			}
			r.results.Add(s.contestant.Name, size, figures.RateFirst, result.PerSecond)
		}
	}
	for _, s := range all {
		name := s.contestant.Name
		r.Say("%d Services, round %d, %s: %.0f flows/s, a flow %.1f µs, connect %.1f µs", size, n+1, name,
			r.results.Median(name, size, figures.Rate), r.results.Median(name, size, figures.Whole), r.results.Median(name, size, figures.Connect))
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (r *run) report(facts []string) error {
	setup := figures.Setup{
		Command: r.Command, Sizes: r.Sizes,
		Facts: append(slices.Clone(facts), r.Busiest()),
	}
	for _, c := range r.Contestants {
		setup.Contestants = append(setup.Contestants, figures.Contestant{Name: c.Name, NoNAT: c.Name == stage.NoNAT, Ours: c.Ours, Rival: c.Rival()})
	}
	return r.Write(r.results.Report(setup))
}

// facts are what a reader must know of machine, kernel and programs.
func facts(ctx context.Context, o Options) ([]string, error) {
	facts, err := machine.Facts(ctx)
	if err != nil {
		return nil, err
	}
	facts = slices.Insert(facts, 1, fmt.Sprintf("%d rounds, the order of modes turned by one in each; %d passes of %d flows, %d changes of endpoints a round",
		o.Rounds, o.Passes, o.Flows, o.Changes))
	for _, program := range []struct {
		label   string
		command []string
	}{
		{"kube-proxy: ", []string{filepath.Join(o.Bin, "kube-proxy"), "--version"}},
		{"", []string{"iptables", "--version"}},
		{"", []string{"nft", "--version"}},
	} {
		said, err := machine.Said(ctx, program.command...)
		if err != nil {
			return nil, err
		}
		facts = append(facts, program.label+said)
	}
	return append(facts,
		"Services of type ClusterIP with one port and 3 to 10 endpoints, IPv4; iptables is the nf_tables variant where the name does not say legacy",
		"the API server hands out ClusterIPs as that of Kubernetes 1.33 can, lest tens of thousands of Services take it tens of minutes",
		"kube-proxy runs with `--iptables-min-sync-period=1ms`, else it would wait for up to a second before it acts on a change"), nil
}
