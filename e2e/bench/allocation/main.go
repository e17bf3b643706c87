// Command allocation compares how controllers give addresses to Services: Fairlead's and
// MetalLB's, each on a real API server of its own. It measures many Services at once, one among
// many, the memory used, and what large pools cost. It needs the programs of the lab, but no lab
// and no root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

func main() {
	machine.Main("allocation", func(ctx context.Context, args []string) error {
		o, err := parse(args)
		if err != nil {
			return err
		}
		return bench(ctx, o)
	})
}

// options are the flags.
type options struct {
	args         []string // as they were given
	ours, theirs []int    // numbers of Services
	pools        []pool   // that are measured
	singles      int
	rounds       int
	patience     time.Duration
	settle       time.Duration
	out          string
	bin          string
}

func parse(args []string) (options, error) {
	o := options{args: args, pools: pools()}
	flags := flag.NewFlagSet("allocation", flag.ContinueOnError)
	ours := flags.String("ours", "1000,10000", "numbers of Services for our controller, rising; empty: leave it out")
	theirs := flags.String("theirs", "1000", "numbers of Services for MetalLB's, rising; empty: leave it out")
	flags.IntVar(&o.singles, "singles", 200, "how many Services are created one after another")
	flags.IntVar(&o.rounds, "rounds", 3, "how often everything is measured")
	flags.DurationVar(&o.patience, "patience", 10*time.Minute, "for all Services of a round to have addresses")
	flags.DurationVar(&o.settle, "settle", 30*time.Second, "how long to wait for the machine to become idle before a measurement")
	flags.StringVar(&o.out, "out", "", "the file to write the report to; empty: standard output")
	flags.StringVar(&o.bin, "bin", os.Getenv(apiserver.BinEnv), "where kube-apiserver, etcd and metallb-controller are")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	var err, err2 error
	o.ours, err = figures.Sizes(*ours)
	o.theirs, err2 = figures.Sizes(*theirs)
	if err := errors.Join(err, err2); err != nil {
		return options{}, err
	}
	if o.rounds < 1 || o.singles < 1 || o.bin == "" {
		return options{}, fmt.Errorf("-rounds and -singles must be 1 or more, and -bin (or %s) name a directory", apiserver.BinEnv)
	}
	o.bin, err = filepath.Abs(o.bin)
	return o, err
}
