package gotest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/testrun/plan"
)

// slow is how long a test takes before it gets a progress line of its own.
const slow = 5 * time.Second

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail, instead of Package
	Test        string // empty for an event of the whole package
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // of a package's fail: the ImportPath that did not build
}

// report counts the tests of all runs of go test, and tells about them as they end. A test
// with subtests counts only through them, unless it fails by itself.
type report struct {
	kept string // the folder for what failed tests said

	mu       sync.Mutex // guards what follows, and the packages of each run
	out      io.Writer
	passed   int
	failures []failure
	secondly []failure // of tests that passed when they were run again
	took     []packageTook
	leftOut  []string // groups for which there was no time
}

// packageTook is how long the tests of a package took, in seconds.
type packageTook struct {
	name    string
	seconds float64
}

type failure struct {
	name, reason string
	said         []string // by the test itself; see said
	group        plan.Group
	pkg, test    string // what to run again; empty: running it again would prove nothing
}

// goRun is one run of go test. Several may be going on.
type goRun struct {
	*report
	group          plan.Group
	packages       map[string]*packageRun
	builds         map[string]string // compiler output not told yet, by ImportPath
	passed, failed int
}

type packageRun struct {
	running        map[string]*testRun
	output         strings.Builder
	passed, failed int
}

type testRun struct {
	output     strings.Builder
	hasSubtest bool
	failedSub  bool
}

// begin begins one run of go test.
func (r *report) begin(g plan.Group) *goRun {
	return &goRun{report: r, group: g, packages: map[string]*packageRun{}, builds: map[string]string{}}
}

// end ends it. A run that went wrong without a failed test, or that ran no test at all, is a
// failure too.
func (r *goRun) end(err error, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pkg := range slices.Sorted(maps.Keys(r.packages)) {
		r.endPackage(event{Package: pkg, Action: "fail"})
	}
	switch {
	case err != nil && r.failed == 0:
		r.fail(failure{name: r.group.String(), reason: err.Error()}, "")
	case r.passed+r.failed == 0:
		r.fail(failure{name: r.group.String(), reason: "no test was run"}, "")
	}
	fmt.Fprintf(r.out, "     %s: ended after %s\n", r.group, took.Round(time.Second))
}

// print shows a line that is no event.
func (r *report) print(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprint(r.out, line)
}

// leaveOut takes note of groups that are not run, as the phases before took so long.
func (r *report) leaveOut(p plan.Phase, took time.Duration) {
	for _, g := range p.Groups() {
		r.leftOut = append(r.leftOut, fmt.Sprintf("%s: what came before took %s", g, took.Round(time.Second)))
	}
}

// close tells the slowest packages, the failures again, with what the tests said, then the counts and where all of
// it is kept, and reports success: the end of a long output tells what went wrong.
func (r *report) close() bool {
	slices.SortFunc(r.took, func(a, b packageTook) int { return cmp.Compare(b.seconds, a.seconds) })
	fmt.Fprintln(r.out, "\nThe slowest packages:")
	for _, p := range r.took[:min(10, len(r.took))] {
		fmt.Fprintf(r.out, "%6.0fs %s\n", p.seconds, p.name)
	}
	for _, g := range r.leftOut {
		fmt.Fprintf(r.out, "\nNOT RUN: %s\n", g)
	}
	r.list("Passed only when it was run again with nothing beside it:", r.secondly)
	r.list("Not passed:", r.failures)
	fmt.Fprintf(r.out, "\n%d passed, %d failed\n", r.passed, len(r.failures))
	if len(r.failures)+len(r.secondly) > 0 {
		fmt.Fprintf(r.out, "outputs, logs and rules of what failed are in %s\n", r.kept)
	}
	return len(r.failures) == 0
}

// list tells failures again, if there are any.
func (r *report) list(title string, failures []failure) {
	if len(failures) > 0 {
		fmt.Fprintln(r.out, "\n"+title)
	}
	for _, f := range failures {
		fmt.Fprintf(r.out, "  %s: %s\n", f.name, f.reason)
		for _, line := range f.said {
			fmt.Fprintf(r.out, "    %s\n", line)
		}
	}
}

// fail counts one failure, and shows and keeps the output that came with it.
func (r *goRun) fail(f failure, output string) {
	r.failed++
	f.said, f.group = said(output), r.group
	if strings.Contains(output, "race detected during execution of test") || strings.Contains(output, "panic: ") {
		f.test = "" // a fault, however seldom it shows; after a panic other tests were not run either
	}
	r.failures = append(r.failures, f)
	fmt.Fprintf(r.out, "FAIL %s: %s\n", f.name, f.reason)
	r.tell(f.name, output)
}

// tell shows output, and keeps it in a file that bears the name of the test or package.
func (r *report) tell(name, output string) {
	r.show(output)
	if output == "" {
		return
	}
	const longest = 200 // of the name of a file, with room for what is added
	file := strings.ReplaceAll(name, "/", "_")
	file = filepath.Join(r.kept, file[max(0, len(file)-longest):]+".log")
	if err := os.WriteFile(file, []byte(output), 0o644); err != nil {
		fmt.Fprintln(r.out, err)
	}
}

// Of what a test said, how much is told again: lines from its beginning and its end, and
// bytes of a line.
const (
	saidFirst = 2
	saidLast  = 6
	saidWidth = 300
)

// byTest is the first line of what a test says by Error, Fatal or Log.
var byTest = regexp.MustCompile(`^ +(\S+_test\.go:\d+: .*)`)

// said picks what the test itself said out of its output.
func said(output string) []string {
	var lines []string
	for line := range strings.Lines(output) {
		if found := byTest.FindStringSubmatch(line); found != nil {
			lines = append(lines, found[1][:min(saidWidth, len(found[1]))])
		}
	}
	if left := len(lines) - saidFirst - saidLast; left > 0 {
		lines = slices.Replace(lines, saidFirst, saidFirst+left, fmt.Sprintf("(%d more)", left))
	}
	return lines
}

// add takes one event.
func (r *goRun) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Action {
	case "build-output":
		r.builds[e.ImportPath] += e.Output
		return
	case "build-fail":
		return // the package that needs it fails with FailedBuild
	}
	pkg, ok := r.packages[e.Package]
	if !ok {
		pkg = &packageRun{running: map[string]*testRun{}}
		r.packages[e.Package] = pkg
	}
	ended := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
	switch {
	case e.Test != "" && ended:
		r.endTest(pkg, e)
	case e.Test != "":
		pkg.note(e)
	case ended:
		r.endPackage(e)
	case e.Action == "output":
		pkg.output.WriteString(e.Output)
	}
}

// note keeps what a running test says, and that it is a subtest.
func (p *packageRun) note(e event) {
	test, ok := p.running[e.Test]
	if !ok {
		test = &testRun{}
		p.running[e.Test] = test
		if parent := p.parent(e.Test); parent != nil {
			parent.hasSubtest = true
		}
	}
	if e.Action == "output" && !isFrame(e.Output) {
		test.output.WriteString(e.Output)
	}
}

// parent is the running test that name is a subtest of, or nil. The name of a
// subtest may itself hold a slash.
func (p *packageRun) parent(name string) *testRun {
	for i := strings.LastIndexByte(name, '/'); i >= 0; i = strings.LastIndexByte(name[:i], '/') {
		if test := p.running[name[:i]]; test != nil {
			return test
		}
	}
	return nil
}

// isFrame reports whether the line is one that package testing puts around
// the output of a test and that says no more than the report does.
func isFrame(line string) bool {
	frames := []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "--- PASS", "--- FAIL", "--- SKIP"}
	line = strings.TrimLeft(line, " ")
	return slices.ContainsFunc(frames, func(frame string) bool { return strings.HasPrefix(line, frame) })
}

// endTest counts one test or subtest.
func (r *goRun) endTest(pkg *packageRun, e event) {
	pkg.note(e) // a test may end without having been heard of
	test := pkg.running[e.Test]
	delete(pkg.running, e.Test)
	name := e.Package + "." + e.Test
	took := time.Duration(e.Elapsed * float64(time.Second))

	switch e.Action {
	case "skip":
		pkg.failed++
		r.fail(failure{name: name, reason: "skipped: " + strings.Join(strings.Fields(test.output.String()), " ")}, "")
	case "fail":
		if parent := pkg.parent(e.Test); parent != nil {
			parent.failedSub = true
		}
		if test.failedSub {
			r.tell(name, test.output.String())
			break
		}
		pkg.failed++
		r.fail(failure{name: name, reason: fmt.Sprintf("failed after %s", took), pkg: e.Package, test: e.Test}, test.output.String())
	case "pass":
		if !test.hasSubtest {
			pkg.passed++
			r.passed++
			r.report.passed++
		}
		if took >= slow && !strings.Contains(e.Test, "/") {
			fmt.Fprintf(r.out, "     %s: passed after %s\n", name, took)
		}
	}
}

// endPackage tells how a package went. Tests still running then (a panic, a
// timeout, os.Exit) have failed, and so has a package that failed with no test
// to blame.
func (r *goRun) endPackage(e event) {
	pkg := r.packages[e.Package]
	delete(r.packages, e.Package)
	r.took = append(r.took, packageTook{e.Package, e.Elapsed})
	for _, name := range slices.Sorted(maps.Keys(pkg.running)) {
		test := pkg.running[name]
		pkg.failed++
		r.fail(failure{name: e.Package + "." + name, reason: "did not end"}, test.output.String())
	}
	if e.Action == "fail" {
		output := r.builds[e.FailedBuild] + pkg.output.String()
		delete(r.builds, e.FailedBuild)
		r.tell(e.Package, output)
		if pkg.failed == 0 {
			pkg.failed++
			reason := "failed outside its tests"
			if e.FailedBuild != "" {
				reason = "does not build"
			}
			r.fail(failure{name: e.Package, reason: reason}, "")
		}
	}
	switch {
	case pkg.failed > 0:
		fmt.Fprintf(r.out, "FAIL %s: %d passed, %d failed\n", e.Package, pkg.passed, pkg.failed)
	case pkg.passed > 0:
		fmt.Fprintf(r.out, "ok   %s: %d passed in %.1fs\n", e.Package, pkg.passed, e.Elapsed)
	}
}

// show prints output indented below the line that it belongs to.
func (r *report) show(output string) {
	for line := range strings.Lines(output) {
		fmt.Fprintf(r.out, "     %s\n", strings.TrimRight(line, "\n"))
	}
}
