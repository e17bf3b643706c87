package conformance

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/e2e/lab"
)

// junit is cut from a report that Ginkgo wrote.
const junit = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="7592" disabled="7558" errors="0" failures="2" time="600.8">
  <testsuite name="Kubernetes e2e suite" tests="7592">
    <testcase name="[SynchronizedBeforeSuite]" classname="Kubernetes e2e suite" status="passed" time="16.1"></testcase>
    <testcase name="[It] [sig-auth] not selected" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
    <testcase name="[It] [sig-network] good" status="passed" time="1.5"></testcase>
    <testcase name="[It] [sig-network] bad" status="failed" time="2">
      <failure message="" type="failed">[FAILED] no reply</failure>
      <system-err>all that it said</system-err>
    </testcase>
    <testcase name="[It] [sig-network] endless" status="timedout" time="3">
      <failure message="" type="timedout">[TIMEDOUT] too long</failure>
    </testcase>
    <testcase name="[It] [sig-network] choosy" status="skipped" time="0.1">
      <skipped message="skipped - needs a moon - or two"></skipped>
    </testcase>
    <testcase name="[AfterSuite]" status="failed" time="0"><failure type="failed">cannot clean up</failure></testcase>
  </testsuite>
</testsuites>`

func TestReadReport(t *testing.T) {
	got, err := readReport(strings.NewReader(junit))
	if err != nil {
		t.Fatal(err)
	}
	want := []spec{
		{name: "[sig-network] good", passed: true, took: 1500 * time.Millisecond},
		{name: "[sig-network] bad", took: 2 * time.Second, log: "failed: [FAILED] no reply\nall that it said"},
		{name: "[sig-network] endless", took: 3 * time.Second, log: "timedout: [TIMEDOUT] too long\n"},
		{name: "[sig-network] choosy", skips: "needs a moon - or two", took: 100 * time.Millisecond},
		{name: "[AfterSuite]", log: "failed: cannot clean up\n"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(spec{})); diff != "" {
		t.Errorf("readReport (-want +got):\n%s", diff)
	}
}

func TestReadReportRefusesWhatIsNone(t *testing.T) {
	for _, text := range []string{"", "<html></html>", "<testsuites></testsuites>", junit[:len(junit)/2]} {
		if specs, err := readReport(strings.NewReader(text)); err == nil {
			t.Errorf("readReport(%.20q) = %v, want an error", text, specs)
		}
	}
}

func TestARequiredTestThatIsNotRunIsNamed(t *testing.T) {
	var specs []spec
	required := required(lab.KubernetesVersion)
	for _, title := range required {
		specs = append(specs, spec{name: "[sig-network] " + title, passed: true})
	}
	if got := notRun(required, specs); len(got) > 0 {
		t.Errorf("all were run, and %q are missed", got)
	}
	specs[0].skips = "no such feature"
	if diff := cmp.Diff([]string{required[0], required[len(required)-1]}, notRun(required, specs[:len(specs)-1])); diff != "" {
		t.Errorf("one skipped itself and one is not there (-want +got):\n%s", diff)
	}
}

// What is required is selected, in both scopes, and nothing takes it away.
func TestRequiredTestsAreSelected(t *testing.T) {
	anyOf := func(patterns []string, name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return regexp.MustCompile(p).MatchString(name) })
	}
	for _, title := range slices.Concat(required(lab.KubernetesVersion), required(lab.OlderKubernetesVersion)) {
		name := "[sig-network] " + title
		if !anyOf(conforming, name) || !anyOf(whole, name) || anyOf(skipPatterns(true), name) {
			t.Errorf("%s is not run", name)
		}
	}
}
