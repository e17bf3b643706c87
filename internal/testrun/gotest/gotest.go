// Package gotest runs go test, tells about each test as it ends, and counts.
package gotest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/testrun/plan"
)

// stopDelay is how long tests have to clean up after an interrupt.
const stopDelay = time.Minute

// rerunMost is how many failed tests are run again. A busy machine fails a few; more of them are a fault.
const rerunMost = 8

// Run runs all groups, the lanes of a phase beside one another, whatever the result of the phase
// before, but no phase that could not begin within a time, if that is not zero, and tells which; then each of a few failed tests again, subtests beside their siblings alone, and reports whether all is well.
func Run(ctx context.Context, phases []plan.Phase, within time.Duration, folder string, stdout, stderr io.Writer) bool {
	r := &report{kept: folder, out: stdout}
	kept, err := emptied(folder)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return false
	}
	start := time.Now()
	for i, p := range phases {
		if took := time.Since(start); i > 0 && within > 0 && took > within {
			r.leaveOut(p, took)
			continue
		}
		var beside sync.WaitGroup
		for _, lane := range p {
			beside.Go(func() {
				for _, g := range lane {
					one := r.begin(g)
					began := time.Now()
					one.end(goTest(ctx, g, kept, one, stderr), time.Since(began))
				}
			})
		}
		beside.Wait()
	}
	if len(r.failures) <= rerunMost {
		r.rerun(ctx, kept, stderr)
	}
	return r.close()
}

// rerun runs each failed test again, with nothing beside it but what failed of the same test, and has those that pass then told of apart. The packages
// of a phase share the processors with many others, and a machine may stand still for seconds: a test that waits for
// what a timer does tells of that as of a fault. A test that was skipped, that did
// not end, that panicked or that found a data race has failed for good.
func (r *report) rerun(ctx context.Context, kept string, stderr io.Writer) {
	failures := r.failures
	r.failures = nil
	for len(failures) > 0 {
		f := failures[0]
		var beside []failure
		beside, failures = split(failures, f.siblingOf)
		if f.test == "" || ctx.Err() != nil {
			r.failures = append(r.failures, beside...)
			continue
		}
		g := f.group
		g.Packages, g.Gentle = []string{f.pkg}, false
		g.Flags += " -run=" + exactly(beside)
		second := &report{kept: r.kept, out: r.out}
		one := second.begin(g)
		began := time.Now()
		one.end(goTest(ctx, g, kept, one, stderr), time.Since(began))
		for _, f := range beside {
			if slices.ContainsFunc(second.failures, f.sharesFateOf) || second.passed+len(second.failures) < len(beside) {
				f.reason += ", and when it was run again"
				r.failures = append(r.failures, f)
				continue
			}
			r.passed++
			r.secondly = append(r.secondly, f)
		}
	}
}

// siblingOf tells whether the two are subtests of one test, or one and the same: what that test sets up, a lab maybe, is set up for both.
func (f failure) siblingOf(other failure) bool {
	return f.name == other.name || f.test != "" && f.pkg == other.pkg && f.group.String() == other.group.String() &&
		strings.Contains(f.test, "/") && path.Dir(f.test) == path.Dir(other.test)
}

// sharesFateOf tells whether the failure of the other in the same run is that of f, too: as of f itself, of a test within it, of one that it is
// within, which may not have come to it, or of all.
func (f failure) sharesFateOf(other failure) bool {
	return other.test == "" || strings.HasPrefix(f.test+"/", other.test+"/") || strings.HasPrefix(other.test, f.test+"/")
}

// split returns those of which it is true, and the others.
func split(all []failure, is func(failure) bool) (these, others []failure) {
	for _, f := range all {
		if is(f) {
			these = append(these, f)
		} else {
			others = append(others, f)
		}
	}
	return these, others
}

// exactly returns the pattern of go test's -run that only these siblings match.
func exactly(siblings []failure) string {
	parts := strings.Split(siblings[0].test, "/")
	for i, part := range parts[:len(parts)-1] {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	var last []string
	for _, f := range siblings {
		last = append(last, regexp.QuoteMeta(path.Base(f.test)))
	}
	parts[len(parts)-1] = "^(" + strings.Join(last, "|") + ")$"
	return strings.Join(parts, "/")
}

// emptied makes the folder anew, and is its absolute path.
func emptied(folder string) (string, error) {
	path, err := filepath.Abs(folder)
	return path, errors.Join(err, os.RemoveAll(path), os.MkdirAll(path, 0o755))
}

// goTest runs go test once, feeding what happens to r. Its error is that of
// the process, which r may know the reason for already.
func goTest(ctx context.Context, g plan.Group, kept string, r *goRun, stderr io.Writer) error {
	if ctx.Err() != nil {
		return errors.New("not run: interrupted")
	}
	packages, err := g.Listed(ctx)
	if err != nil {
		return err
	}
	var command []string
	if g.Gentle {
		command = []string{"nice"}
	}
	// make lint vets, and more strictly.
	command = append(command, "go", "test", "-json", "-count=1", "-vet=off", "-artifacts", "-outputdir="+kept)
	flags := strings.Fields(g.Flags)
	command = slices.Concat(command, flags, packages)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	if slices.Contains(flags, "-race") {
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1") // the race detector is written in C
	}
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
