// Command bench compares ways to forward Services: Fairlead's, the real kube-proxy's and
// plain routing, on one machine, in turns. It measures how fast new connections are, how long
// a change of endpoints and the first fill take, and the memory used. It needs root and the
// programs of the lab, but no lab.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/flows"
	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/e2e/bench/stage"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

func main() { machine.Main("bench", dispatch) }

// dispatch runs the benchmark or one of the parts that are processes of their own.
func dispatch(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case stage.Echo:
			return echo(args[1:])
		case stage.Flows:
			return measureFlows(args[1:])
		}
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	return bench(ctx, o)
}

// echo serves flows until its standard input ends, which it does when the benchmark does.
func echo(args []string) error {
	numbers, err := integers(args)
	if err != nil || len(numbers) != 2 {
		return fmt.Errorf("usage: %s PORT CPU", stage.Echo)
	}
	debug.SetGCPercent(-1) // it makes little garbage, and a pause would show
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	signal.Ignore(syscall.SIGINT) // meant for the benchmark
	return flows.Serve(ctx, numbers[0], numbers[1], func() { fmt.Println("ready") })
}

func measureFlows(args []string) error {
	usage := fmt.Errorf("usage: %s ADDRESS FLOWS CPU", stage.Flows)
	if len(args) != 3 {
		return usage
	}
	to, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return usage
	}
	numbers, err := integers(args[1:])
	if err != nil {
		return usage
	}
	debug.SetGCPercent(-1)
	result, err := flows.Measure(to, numbers[0], numbers[1])
	if err != nil {
		return err
	}
	return result.Write(os.Stdout)
}

// options are the flags.
type options struct {
	args        []string // as they were given
	sizes       []int
	contestants []stage.Contestant
	rounds      int
	changes     int
	passes      int
	flows       int
	patience    time.Duration
	settle      time.Duration
	out         string
	bin         string
	before      string
	cpu         int
}

func parse(args []string) (options, error) {
	o := options{args: args, cpu: runtime.NumCPU() - 1}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	sizes := flags.String("sizes", "10,1000,10000,30000", "numbers of Services, rising")
	modes := flags.String("modes", "", "what takes part, with -before also before-iptables and the like; empty: all but legacy iptables")
	flags.IntVar(&o.rounds, "rounds", 3, "how often everything is measured")
	flags.IntVar(&o.changes, "changes", 40, "changes of endpoints in a round")
	flags.IntVar(&o.passes, "passes", 40, "passes of flows in a round; in each, every mode comes once")
	flags.IntVar(&o.flows, "flows", 500, "flows of a mode in a pass")
	flags.DurationVar(&o.patience, "patience", 15*time.Minute, "for a fill, and for the changes of a round; a mode that is not done by then is stopped, which the report says")
	flags.DurationVar(&o.settle, "settle", 30*time.Second, "how long to wait for the machine to become idle before a measurement")
	flags.StringVar(&o.out, "out", "", "the file to write the report to; empty: standard output")
	flags.StringVar(&o.bin, "bin", lab(), "where kube-apiserver, etcd and kube-proxy are")
	flags.StringVar(&o.before, "before", "", "an earlier build of the speaker, which takes part beside this one in the same run")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if *modes == "" {
		*modes = defaultModes(o.before != "")
	}
	var err error
	if o.sizes, err = figures.Sizes(*sizes); err != nil {
		return options{}, fmt.Errorf("-sizes: %w", err)
	}
	if len(o.sizes) == 0 || o.rounds < 1 || o.changes < 0 || o.passes < 1 || o.flows < 1 {
		return options{}, errors.New("-sizes must name one, and -rounds, -passes and -flows be 1 or more")
	}
	for name := range strings.SplitSeq(*modes, ",") {
		c, err := stage.Named(name)
		if err != nil {
			return options{}, fmt.Errorf("-modes: %w", err)
		}
		if c.Before && o.before == "" {
			return options{}, fmt.Errorf("-modes: %s needs -before", c.Name)
		}
		o.contestants = append(o.contestants, c)
	}
	return o, nil
}

// defaultModes leaves out legacy iptables, which hosts use less and less, and earlier builds
// unless there is one.
func defaultModes(before bool) string {
	var names []string
	for _, c := range stage.Contestants() {
		if c.Variant != "legacy" && (before || !c.Before) {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ",")
}

// lab is where the lab keeps the programs that it builds.
func lab() string {
	if dir := os.Getenv(apiserver.BinEnv); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "fairlead", "bin")
}

func integers(texts []string) ([]int, error) {
	var numbers []int
	for _, text := range texts {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
