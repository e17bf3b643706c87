// Testrun runs the tests of the project and closes with a plain count: "N passed, N failed",
// alone on its line. It is stricter than go test in one thing: a skipped test is a failed one,
// so that a machine that lacks what a test needs cannot pass for one that has run it.
//
//	testrun gate     what a merge must pass
//	testrun 3        the third share of all tests
//	testrun b2ec46…  the share that falls to this commit
//	testrun all      every share
//
// Several words are several runs, one after the other, with one count. What a failed test said,
// and the files that it kept (testing's ArtifactDir), are then in the folder build/test-failures.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopDelay is how long tests have to clean up after an interrupt.
const stopDelay = time.Minute

// failuresFolder is emptied by each run.
const failuresFolder = "build/test-failures"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	phases, err := plan(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !run(ctx, phases, failuresFolder, os.Stdout, os.Stderr) {
		os.Exit(1)
	}
}

// run runs all groups, those of a phase beside one another, whatever the result of the phase
// before, and reports whether all is well.
func run(ctx context.Context, phases []phase, folder string, stdout, stderr io.Writer) bool {
	r := &report{kept: folder, out: stdout}
	kept, err := emptied(folder)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return false
	}
	for _, p := range phases {
		var beside sync.WaitGroup
		for _, g := range p {
			beside.Go(func() {
				one := r.begin(g.String())
				began := time.Now()
				one.end(goTest(ctx, g, kept, one, stderr), time.Since(began))
			})
		}
		beside.Wait()
	}
	return r.close()
}

// emptied makes the folder anew, and is its absolute path.
func emptied(folder string) (string, error) {
	path, err := filepath.Abs(folder)
	return path, errors.Join(err, os.RemoveAll(path), os.MkdirAll(path, 0o755))
}

// goTest runs go test once, feeding what happens to r. Its error is that of
// the process, which r may know the reason for already.
func goTest(ctx context.Context, g group, kept string, r *goRun, stderr io.Writer) error {
	if ctx.Err() != nil {
		return errors.New("not run: interrupted")
	}
	packages, err := g.listed(ctx)
	if err != nil {
		return err
	}
	var command []string
	if g.gentle {
		command = []string{"nice"}
	}
	// make lint vets, and more strictly.
	command = append(command, "go", "test", "-json", "-count=1", "-vet=off", "-artifacts", "-outputdir="+kept)
	command = slices.Concat(command, strings.Fields(g.flags), packages)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopDelay
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return errors.Join(feed(events, r), cmd.Wait())
}

// feed reads one event from each line. What is no event is shown as it is.
func feed(lines io.Reader, r *goRun) error {
	reader := bufio.NewReader(lines)
	for {
		line, err := reader.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			r.print(line)
		default:
			r.add(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events of go test: %w", err)
		}
	}
}
