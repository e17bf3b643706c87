// Command bench compares Fairlead with what it replaces, on one machine, and writes a report. Parts
// of it are processes of their own.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"fairlead.dev/fairlead/e2e/bench/allocation"
	"fairlead.dev/fairlead/e2e/bench/failover"
	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/forwarding"
	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/e2e/bench/stage"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

const usage = `usage: bench COMMAND [FLAGS]
  forwarding  connections, changes and memory, beside kube-proxy and plain routing (root)
  layer2      how long addresses take to come, go and move by layer 2, beside MetalLB, in the lab (root)
  bgp         the same by BGP
  allocation  how controllers give addresses, beside MetalLB
bench COMMAND -h tells the flags`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log.SetLogger(logr.Discard()) // of the API server's starter and client, which would complain of none
	part, err := stage.Part(os.Args[1:])
	if !part {
		err = run(ctx, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch strings.Join(args[:min(1, len(args))], "") {
	case "forwarding":
		return parsed(ctx, args, parseForwarding, forwarding.Run)
	case "layer2", "bgp":
		return parsed(ctx, args, parseFailover, failover.Run)
	case "allocation":
		return parsed(ctx, args, parseAllocation, allocation.Run)
	}
	return errors.New(usage)
}

// parsed runs a benchmark with what its arguments say.
func parsed[O any](ctx context.Context, args []string, parse func([]string) (O, error), run func(context.Context, O) error) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	return run(ctx, o)
}

// begin has the flags that benchmarks share.
func begin(o *machine.Options, args []string, rounds int, patience time.Duration, until string) *flag.FlagSet {
	o.Command = strings.Join(append([]string{"go run ./e2e/bench"}, args...), " ")
	flags := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	flags.IntVar(&o.Rounds, "rounds", rounds, "how often everything is measured")
	flags.DurationVar(&o.Patience, "patience", patience, until)
	flags.StringVar(&o.Out, "out", "", "the file to write the report to; empty: standard output")
	return flags
}

// programs has the flags of those that run the lab's programs without a lab.
func programs(o *machine.Options, flags *flag.FlagSet) {
	flags.DurationVar(&o.Settle, "settle", 30*time.Second, "how long to wait for the machine to become idle before a measurement")
	flags.StringVar(&o.Bin, "bin", cmp.Or(os.Getenv(apiserver.BinEnv), lab.Programs()), "where kube-apiserver, etcd, kube-proxy and metallb-controller are")
}

// sizes has a flag for numbers of Services.
func sizes(to *[]int, flags *flag.FlagSet, name, value, usage string) {
	*to, _ = figures.Sizes(value)
	flags.Func(name, fmt.Sprintf("%s (default %q)", usage, value), func(text string) (err error) {
		*to, err = figures.Sizes(text)
		return err
	})
}

func parseForwarding(args []string) (o forwarding.Options, err error) {
	flags := begin(&o.Options, args, 3, 15*time.Minute, "for a fill, and for the changes of a round; a mode that is not done by then is stopped, which the report says")
	programs(&o.Options, flags)
	sizes(&o.Sizes, flags, "sizes", "10,1000,10000,30000", "numbers of Services, rising")
	modes := flags.String("modes", "", "what takes part, with -before also before-iptables and the like; empty: all but legacy iptables")
	flags.IntVar(&o.Changes, "changes", 40, "changes of endpoints in a round")
	flags.IntVar(&o.Passes, "passes", 40, "passes of flows in a round; in each, every mode comes once")
	flags.IntVar(&o.Flows, "flows", 500, "flows of a mode in a pass")
	flags.StringVar(&o.Before, "before", "", "an earlier build of the speaker, which takes part beside this one in the same run")
	if err := flags.Parse(args[1:]); err != nil {
		return o, err
	}
	if len(o.Sizes) == 0 || o.Rounds < 1 || o.Changes < 0 || o.Passes < 1 || o.Flows < 1 {
		return o, errors.New("-sizes must name one, and -rounds, -passes and -flows be 1 or more")
	}
	o.Contestants, err = stage.Choose(*modes, o.Before != "")
	return o, err
}

func parseFailover(args []string) (o failover.Options, err error) {
	o.Protocol = failover.Layer2()
	if args[0] == "bgp" {
		o.Protocol = failover.BGP()
	}
	flags := begin(&o.Options, args, 20, 10*time.Minute, "how long a contestant may take for all that is measured of many addresses")
	flags.DurationVar(&o.Window, "window", 10*time.Second, "how long the client is watched after each incident")
	flags.IntVar(&o.Many, "many", 10_000, "by BGP: how many addresses are announced at once over two sessions; 0: none")
	contestants := flags.String("contestants", "", "what takes part, separated by commas; empty: all")
	flags.Func("only", "a regular expression: the figures whose names it matches are taken, with those of the same events (default all)", func(text string) (err error) {
		o.Only, err = regexp.Compile(text)
		return err
	})
	flags.Func("note", "a line for the report; may be repeated", func(text string) error {
		o.Notes = append(o.Notes, text)
		return nil
	})
	if err := flags.Parse(args[1:]); err != nil {
		return o, err
	}
	o, err = o.Choose(strings.FieldsFunc(*contestants, func(c rune) bool { return c == ',' })...)
	if err != nil {
		return o, err
	}
	if o.Many < 0 || o.Many > 60_000 {
		return o, fmt.Errorf("-many %d: want 0 to 60000", o.Many)
	}
	if o.Rounds < 1 || o.Window < time.Second || o.Patience < time.Second {
		return o, errors.New("-rounds must be 1 or more, and -window and -patience a second or more")
	}
	return o, nil
}

func parseAllocation(args []string) (o allocation.Options, err error) {
	flags := begin(&o.Options, args, 3, 10*time.Minute, "for all Services of a round to have addresses")
	programs(&o.Options, flags)
	sizes(&o.Ours, flags, "ours", "1000,10000", "numbers of Services for our controller, rising; empty: leave it out")
	sizes(&o.Theirs, flags, "theirs", "1000", "numbers of Services for MetalLB's, rising; empty: leave it out")
	flags.IntVar(&o.Singles, "singles", 200, "how many Services are created one after another")
	if err := flags.Parse(args[1:]); err != nil {
		return o, err
	}
	if o.Rounds < 1 || o.Singles < 1 || o.Bin == "" {
		return o, fmt.Errorf("-rounds and -singles must be 1 or more, and -bin (or %s) name a directory", apiserver.BinEnv)
	}
	o.Bin, err = filepath.Abs(o.Bin)
	return o, err
}
