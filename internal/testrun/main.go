// Testrun runs the tests of the project and closes with a plain count: "N passed, N failed",
// alone on its line. It is stricter than go test in one thing: a skipped test is a failed one,
// so that a machine that lacks what a test needs cannot pass for one that has run it.
//
//	testrun gate     what a merge must pass
//	testrun 3        the third share of all tests
//	testrun b2ec46…  the share that falls to this commit
//	testrun all      every share
//
// With -begin-within=30m a later run that could not begin in that time is left out, and told of: continuous integration ends all
// that takes longer than it waits, and then nothing is known.
//
// Several words are several runs, one after the other, with one count. What a failed test said,
// and the files that it kept (testing's ArtifactDir), are then in the folder build/test-failures.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"fairlead.dev/fairlead/internal/testrun/gotest"
	"fairlead.dev/fairlead/internal/testrun/plan"
)

// failuresFolder is emptied by each run.
const failuresFolder = "build/test-failures"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	within := flag.Duration("begin-within", 0, "leave out each further run that could not begin within this `time`; 0: none")
	flag.Parse()
	phases, err := plan.Of(flag.Args(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !gotest.Run(ctx, phases, *within, failuresFolder, os.Stdout, os.Stderr) {
		os.Exit(1)
	}
}
