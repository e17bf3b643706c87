// Package failover measures how long addresses take to come, go and move, with Fairlead
// (forwarding included) and with MetalLB beside kube-proxy. Each is installed in a lab of its own,
// with three nodes, a router and a client that asks every two milliseconds.
package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/e2e/lab"
)

// Options are what is measured.
type Options struct {
	machine.Options
	Protocol
	Window time.Duration // for which the client is watched after each incident
	Many   int           // by BGP: addresses that are announced at once over two sessions of each node, for no longer than Patience; 0: none
	// Only takes the figures alone that it matches by name, with those that come of the same event; nil: all.
	Only  *regexp.Regexp
	Notes []string // for the report
}

// Choose returns the options with these contestants alone, with all if none is named. An error names one that there
// is not.
func (o Options) Choose(names ...string) (Options, error) {
	if len(names) == 0 {
		return o, nil
	}
	var chosen []contestant
	for _, name := range names {
		i := slices.IndexFunc(o.contestants, func(c contestant) bool { return c.name == name })
		if i < 0 {
			return o, fmt.Errorf("no contestant is called %q", name)
		}
		chosen = append(chosen, o.contestants[i])
	}
	o.contestants = chosen
	return o, nil
}

// wants reports whether one of these figures is to be taken.
func (o Options) wants(figures ...measure) bool {
	return o.Only == nil || slices.ContainsFunc(figures, func(m measure) bool { return o.Only.MatchString(string(m)) })
}

// asked returns those of the figures that are to be taken, with those that came of the same events.
func (o Options) asked(all []measure, results *figures.Results) []measure {
	return slices.DeleteFunc(slices.Clone(all), func(m measure) bool { return !o.wants(m) && !results.Has(m) })
}

// Protocol is what one run is about: [Layer2] or [BGP].
type Protocol struct {
	title       string
	contestants []contestant
	parts       []lab.Part // that these need
	facts       []string   // of these
	notes       []string   // what a reader of the figures should know
	measures    []measure  // in milliseconds
	lost        []measure  // in questions without an answer
	memory      []measure  // in MiB
	take        func(ctx context.Context, b *bench) error
	close       func(ctx context.Context, b *bench) error // takes what is of us alone, without a lab; nil: nothing
}

// Run takes the figures of each contestant and writes the report. An error names the contestant that failed.
func Run(ctx context.Context, o Options) error {
	facts, err := machine.Facts(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fairlead-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	results, began := figures.New(), time.Now()
	facts = append(facts, "Kubernetes "+lab.KubernetesVersion+"; MetalLB "+lab.MetalLBVersion+" in its native mode, beside kube-proxy in iptables mode")
	facts = slices.Concat(facts, o.facts, o.Notes)
	for i, c := range o.contestants {
		b := &bench{contestant: c, Options: o, dir: dir, results: results, tell: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%6.1fs  %s: %s\n", time.Since(began).Seconds(), c.name, fmt.Sprintf(format, args...))
		}}
		if err := b.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, errors.Join(err, lab.Down(context.WithoutCancel(ctx))))
		}
		if i == 0 && o.close != nil && o.wants(helloCPU, helloSent, helloReceived, helloDeaths) {
			if err := o.close(ctx, b); err != nil {
				return err
			}
		}
		if err := o.Write(report(o, facts, results)); err != nil { // after each: what is measured is not lost
			return err
		}
	}
	return nil
}

// measure is a kind of figure.
type measure = figures.Measure

// report renders the figures in Markdown.
func report(o Options, facts []string, results *figures.Results) string {
	setup := figures.Setup{Command: o.Command, Facts: append(facts,
		"three nodes, a router (FRR) and a client in network namespaces of one machine, which all share its processors;\n"+
			"  each contestant in a lab of its own, one after the other")}
	for _, c := range o.contestants {
		setup.Contestants = append(setup.Contestants, figures.Contestant{Name: c.name})
	}
	for _, note := range o.notes {
		results.Note(note)
	}
	tables := []figures.Comparison{{Text: "Milliseconds", Measures: o.asked(o.measures, results)}}
	if lost := o.asked(o.lost, results); len(lost) > 0 {
		tables = append(tables, figures.Comparison{Text: "Questions without an answer", Measures: lost})
	}
	if memory := o.asked(o.memory, results); len(memory) > 0 {
		tables = append(tables, figures.Comparison{Text: "MiB", Measures: memory})
		results.Note(fmt.Sprintf("many addresses are %d, each of a Service with one endpoint, over two sessions of each node; forwarding is in place before they are announced.\n"+
			"  While they are created, speakers and kube-proxy are stopped; the API server hands out ClusterIPs as that of 1.33 can", o.Many))
		results.Note("until they are withdrawn, Fairlead announces them for two seconds as routes that are about to go (RFC 8326), since the nodes still serve them")
	}
	text := results.Beside(o.title+", beside MetalLB", setup, tables...)
	if results.Has(helloCPU) {
		text += results.Alone("What it costs us that nodes know of each other, of one node: so many real pulse processes say hello\n"+
			fmt.Sprintf("on one segment of this machine, for %v.", helloTime),
			setup.Contestants[0].Name, helloNodes(), []measure{helloCPU, helloSent, helloReceived, helloDeaths})
	}
	return text
}
