package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
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

// report counts tests and tells about them as they end. A test with subtests
// counts only through them, unless it fails by itself.
type report struct {
	out      io.Writer
	packages map[string]*packageRun
	builds   map[string]string // compiler output not told yet, by ImportPath
	passed   int
	failures []failure
	atStart  int // counted when the current run began
	toldAt   int // failures when the current run began
}

type failure struct {
	name, reason string
	said         []string // by the test itself; see said
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

func newReport(out io.Writer) *report {
	return &report{out: out, packages: map[string]*packageRun{}, builds: map[string]string{}}
}

// startRun begins one run of go test.
func (r *report) startRun() {
	r.atStart, r.toldAt = r.passed+len(r.failures), len(r.failures)
}

// endRun ends it. A run that went wrong without a failed test, or that ran no
// test at all, is a failure too.
func (r *report) endRun(name string, err error) {
	for _, pkg := range slices.Sorted(maps.Keys(r.packages)) {
		r.endPackage(event{Package: pkg, Action: "fail"})
	}
	switch {
	case err != nil && len(r.failures) == r.toldAt:
		r.fail(name, err.Error(), "")
	case r.passed+len(r.failures) == r.atStart:
		r.fail(name, "no test was run", "")
	}
}

// close tells the failures again, with what the tests said, then the counts, and reports
// success: whoever has only the end of a long output knows what went wrong.
func (r *report) close() bool {
	if len(r.failures) > 0 {
		fmt.Fprintln(r.out, "\nNot passed:")
	}
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "  %s: %s\n", f.name, f.reason)
		for _, line := range f.said {
			fmt.Fprintf(r.out, "    %s\n", line)
		}
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed\n", r.passed, len(r.failures))
	return len(r.failures) == 0
}

// fail counts one failure, and shows the output that came with it.
func (r *report) fail(name, reason, output string) {
	r.failures = append(r.failures, failure{name: name, reason: reason, said: said(output)})
	fmt.Fprintf(r.out, "FAIL %s: %s\n", name, reason)
	r.show(output)
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
func (r *report) add(e event) {
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
// the output of a test.
func isFrame(line string) bool {
	line = strings.TrimLeft(line, " ")
	for _, prefix := range []string{"=== ", "--- PASS", "--- FAIL", "--- SKIP"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// endTest counts one test or subtest.
func (r *report) endTest(pkg *packageRun, e event) {
	pkg.note(e) // a test may end without having been heard of
	test := pkg.running[e.Test]
	delete(pkg.running, e.Test)
	name := e.Package + "." + e.Test
	took := time.Duration(e.Elapsed * float64(time.Second))

	switch e.Action {
	case "skip":
		pkg.failed++
		r.fail(name, "skipped: "+strings.Join(strings.Fields(test.output.String()), " "), "")
	case "fail":
		if parent := pkg.parent(e.Test); parent != nil {
			parent.failedSub = true
		}
		if test.failedSub {
			r.show(test.output.String())
			break
		}
		pkg.failed++
		r.fail(name, fmt.Sprintf("failed after %s", took), test.output.String())
	case "pass":
		if !test.hasSubtest {
			pkg.passed++
			r.passed++
		}
		if took >= slow && !strings.Contains(e.Test, "/") {
			fmt.Fprintf(r.out, "     %s: passed after %s\n", name, took)
		}
	}
}

// endPackage tells how a package went. Tests still running then (a panic, a
// timeout, os.Exit) have failed, and so has a package that failed with no test
// to blame.
func (r *report) endPackage(e event) {
	pkg := r.packages[e.Package]
	delete(r.packages, e.Package)
	for _, name := range slices.Sorted(maps.Keys(pkg.running)) {
		test := pkg.running[name]
		pkg.failed++
		r.fail(e.Package+"."+name, "did not end", test.output.String())
	}
	if e.Action == "fail" {
		r.show(r.builds[e.FailedBuild])
		delete(r.builds, e.FailedBuild)
		r.show(pkg.output.String())
		if pkg.failed == 0 {
			pkg.failed++
			reason := "failed outside its tests"
			if e.FailedBuild != "" {
				reason = "does not build"
			}
			r.fail(e.Package, reason, "")
		}
	}
	switch {
	case pkg.failed > 0:
		fmt.Fprintf(r.out, "FAIL %s: %d passed, %d failed\n", e.Package, pkg.passed, pkg.failed)
	case pkg.passed > 0:
		cached := ""
		if strings.Contains(pkg.output.String(), "\t(cached)") {
			cached = ", cached"
		}
		fmt.Fprintf(r.out, "ok   %s: %d passed in %.1fs%s\n", e.Package, pkg.passed, e.Elapsed, cached)
	}
}

// show prints output indented below the line that it belongs to.
func (r *report) show(output string) {
	for line := range strings.Lines(output) {
		fmt.Fprintf(r.out, "     %s\n", strings.TrimRight(line, "\n"))
	}
}
