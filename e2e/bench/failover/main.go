// Command failover compares how long addresses take to come, go and move, with Fairlead
// (forwarding included) and with MetalLB beside kube-proxy. Each is installed in a lab of its own,
// with three nodes, a router and a client that asks every two milliseconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/e2e/lab"
)

func main() { machine.Main("failover", run) }

// options are the flags.
type options struct {
	args     []string // as they were given
	protocol protocol
	rounds   int
	window   time.Duration // for which the client is watched after each incident
	many     int           // addresses that are announced at once
	patience time.Duration // for which that is tried
	out      string
}

func parse(args []string) (options, error) {
	o := options{args: args}
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	name := flags.String("protocol", "layer2", "layer2 or bgp")
	flags.IntVar(&o.rounds, "rounds", 20, "how often each figure is taken")
	flags.DurationVar(&o.window, "window", 10*time.Second, "how long the client is watched after each incident")
	flags.IntVar(&o.many, "many", 10_000, "by BGP: how many addresses are announced at once over two sessions; 0: none")
	flags.DurationVar(&o.patience, "patience", 10*time.Minute, "how long a contestant may take for all that is measured of these")
	flags.StringVar(&o.out, "out", "", "the file to write the report to; empty: standard output")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	for _, p := range []protocol{layer2(), bgp()} {
		if p.name == *name {
			o.protocol = p
		}
	}
	if o.protocol.name == "" {
		return options{}, fmt.Errorf("-protocol %s: want layer2 or bgp", *name)
	}
	if o.many < 0 || o.many > 60_000 {
		return options{}, fmt.Errorf("-many %d: want 0 to 60000", o.many)
	}
	if o.rounds < 1 || o.window < time.Second || o.patience < time.Second {
		return options{}, errors.New("-rounds must be 1 or more, and -window and -patience a second or more")
	}
	return o, nil
}

// protocol is what one run is about.
type protocol struct {
	name     string
	title    string
	notes    []string  // what a reader of the figures should know
	measures []measure // in milliseconds
	lost     []measure // in questions without an answer
	memory   []measure // in MiB
	take     func(ctx context.Context, b *bench) error
	close    func(ctx context.Context, b *bench) error // takes what is of us alone, without a lab; nil: nothing
}

// run takes the figures of each contestant and writes the report.
func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if absent := errors.Join(append(lab.Missing(), lab.Built(lab.MetalLB))...); absent != nil {
		return absent
	}
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
	for i, c := range contestants() {
		b := &bench{contestant: c, options: o, dir: dir, results: results, tell: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%6.1fs  %s: %s\n", time.Since(began).Seconds(), c.name, fmt.Sprintf(format, args...))
		}}
		if err := b.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, errors.Join(err, lab.Down(context.WithoutCancel(ctx))))
		}
		if i == 0 && o.protocol.close != nil {
			if err := o.protocol.close(ctx, b); err != nil {
				return err
			}
		}
		if err := o.write(facts, results); err != nil { // after each: what is measured is not lost
			return err
		}
	}
	return nil
}

// write writes the report, and beside it the picture that it shows.
func (o options) write(facts []string, results *figures.Results) error {
	if o.out == "" {
		text, _ := report(o, facts, results, "")
		fmt.Print(text)
		return nil
	}
	out := filepath.Clean(o.out)
	picture := strings.TrimSuffix(out, filepath.Ext(out)) + ".svg"
	text, svg := report(o, facts, results, filepath.Base(picture))
	return errors.Join(os.WriteFile(picture, []byte(svg), 0o644), os.WriteFile(out, []byte(text), 0o644))
}

// command is how the report was made.
func (o options) command() string {
	return strings.Join(append([]string{"go run ./e2e/bench/failover"}, o.args...), " ")
}
