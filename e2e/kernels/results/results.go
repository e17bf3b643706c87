// Package results counts what tests of several backends came to on several kernels, as a table.
package results

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"fairlead.dev/fairlead/e2e/kernels/guest"
)

// Run is the tests on one kernel.
type Run struct {
	Release, Version, Processor string
	Settings                    map[string]string // of the kernel's configuration
	Output                      string            // of test binaries with -test.v
	Err                         error             // of the whole
}

// Count is what tests came to.
type Count struct{ Passed, Failed, Skipped int }

// String is the count as the tables have it.
func (c Count) String() string {
	switch {
	case c == Count{}:
		return "–"
	case c.Failed > 0:
		return fmt.Sprintf("**%d failed**, %d passed", c.Failed, c.Passed)
	default:
		return fmt.Sprintf("%d passed", c.Passed)
	}
}

// outcome is a line that tells of a test, or of the part of it for one backend.
var outcome = regexp.MustCompile(`(?m)^( *)--- (PASS|FAIL|SKIP): ([^\s/]+)(?:/([^\s/]+))?(/\S+)? \(`)

// Count is what the tests came to for one backend, or with "" those that ask no backend by name.
func (r Run) Count(backend string, backends []string) Count {
	var n Count
	all := outcome.FindAllStringSubmatch(r.Output, -1)
	split := map[string]bool{}
	for _, m := range all {
		if slices.Contains(backends, m[4]) {
			split[m[3]] = true
		}
	}
	for _, m := range all {
		if m[5] != "" || backend != "" && m[4] != backend || backend == "" && (m[4] != "" || split[m[3]]) {
			continue
		}
		switch m[2] {
		case "PASS":
			n.Passed++
		case "FAIL":
			n.Failed++
		default:
			n.Skipped++
		}
	}
	return n
}

// Feature is what a kernel may lack, by the name of its configuration.
type Feature struct{ Setting, For string }

// Write writes the tables. An error is the writer's.
func Write(out io.Writer, runs []Run, backends []string, features []Feature) error {
	var b strings.Builder
	head(&b, slices.Concat([]string{"Kernel", "`-cpu`"}, backends, []string{"other tests", "skipped"}))
	for _, r := range runs {
		cells := []string{r.Version + " (" + r.Release + ")", "`" + r.Processor + "`"}
		skipped := 0
		for _, backend := range append(slices.Clone(backends), "") {
			n := r.Count(backend, backends)
			skipped += n.Skipped
			cells = append(cells, n.String())
		}
		if r.Err != nil && !strings.Contains(r.Output, guest.Ended) {
			cells[2] += ", and then ended"
		}
		row(&b, append(cells, fmt.Sprint(skipped)))
	}
	b.WriteString("\n")
	var kernels []Run
	for _, r := range runs {
		if !slices.ContainsFunc(kernels, func(has Run) bool { return has.Version == r.Version }) {
			kernels = append(kernels, r)
		}
	}
	cells := []string{"Setting", "For"}
	for _, r := range kernels {
		cells = append(cells, r.Version)
	}
	head(&b, cells)
	for _, f := range features {
		cells := []string{"`CONFIG_" + f.Setting + "`", f.For}
		for _, r := range kernels {
			cells = append(cells, map[string]string{"y": "built in", "m": "a module", "": "no"}[r.Settings[f.Setting]])
		}
		row(&b, cells)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func head(b *strings.Builder, cells []string) {
	row(b, cells)
	b.WriteString(strings.Repeat("| --- ", len(cells)) + "|\n")
}

func row(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}
