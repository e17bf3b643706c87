package conformance

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// spec is one of Kubernetes' tests that was run, as the JUnit report tells of it.
type spec struct {
	name   string
	passed bool
	// skips is why the test skipped itself, "" if it did not.
	skips string
	took  time.Duration
	// log is why it failed and all that it said; a test that passed has none.
	log string
}

// The report's elements, as far as they matter here.
type (
	junitReport struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Cases []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string  `xml:"name,attr"`
		Status  string  `xml:"status,attr"`
		Seconds float64 `xml:"time,attr"`
		Skipped struct {
			Message string `xml:"message,attr"`
		} `xml:"skipped"`
		Failure string `xml:"failure"`
		Error   string `xml:"error"`
		Log     string `xml:"system-err"`
	}
)

// readReport gives the specs that were run, and the steps of the whole run that
// failed, but not the thousands that were not selected.
func readReport(from io.Reader) ([]spec, error) {
	var report junitReport
	if err := xml.NewDecoder(from).Decode(&report); err != nil {
		return nil, fmt.Errorf("read the JUnit report: %w", err)
	}
	if len(report.Suites) == 0 {
		return nil, errors.New("read the JUnit report: it has no test suite")
	}
	var specs []spec
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			if s, ran := c.spec(); ran {
				specs = append(specs, s)
			}
		}
	}
	return specs, nil
}

// spec tells what became of a case, and whether it is one that was run.
func (c junitCase) spec() (spec, bool) {
	name, isSpec := strings.CutPrefix(c.Name, "[It] ")
	s := spec{name: name, passed: c.Status == "passed", took: time.Duration(c.Seconds * float64(time.Second))}
	if s.passed {
		return s, isSpec
	}
	if c.Status == "skipped" {
		// One that was not selected has no reason.
		var selected bool
		_, s.skips, selected = strings.Cut(c.Skipped.Message, " - ")
		return s, selected
	}
	// Failed, or one of Ginkgo's many other words for not passed.
	s.log = c.Status + ": " + strings.TrimSpace(c.Failure+c.Error) + "\n" + c.Log
	return s, true
}
