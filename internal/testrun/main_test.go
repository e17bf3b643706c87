package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// module has one package for each way that tests can end.
const module = `
-- go.mod --
module ends
go 1.26
-- good/good_test.go --
package good
import "testing"
func TestPlain(t *testing.T) {}
func TestSubtests(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Run("b/c", func(t *testing.T) { t.Parallel() })
}
-- bad/bad_test.go --
package bad
import "testing"
func TestGood(t *testing.T) {}
func TestBad(t *testing.T) { t.Error("one is not two") }
func TestBadSubtest(t *testing.T) {
	t.Run("good", func(t *testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Error("left is not right") })
}
-- talks/talks_test.go --
package talks
import "testing"
func TestTalks(t *testing.T) {
	t.Log("the first words")
	for range 20 {
		t.Log("more words")
	}
	t.Error("the last words\n", "go on")
}
-- skips/skips_test.go --
package skips
import "testing"
func TestGood(t *testing.T) {}
func TestSkipped(t *testing.T) { t.Skip("needs a moon") }
-- panics/panics_test.go --
package panics
import "testing"
func TestPanics(t *testing.T) { panic("lost") }
-- exits/exits_test.go --
package exits
import (
	"os"
	"testing"
)
func TestExits(t *testing.T) { os.Exit(3) }
-- main/main_test.go --
package main
import (
	"os"
	"testing"
)
func TestGood(t *testing.T) {}
func TestMain(m *testing.M) { m.Run(); os.Exit(1) }
-- broken/broken_test.go --
package broken
import "testing"
func TestBroken(t *testing.T) { undefined() }
-- none/none.go --
package none
`

func TestRunCountsEveryEnd(t *testing.T) {
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(module)).Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)

	tests := map[string]struct {
		args []string
		ok   bool
		last string
		says []string
	}{
		"all pass": {
			args: []string{"./good", "./none"},
			ok:   true,
			last: "3 passed, 0 failed",
			says: []string{"ok   ends/good: 3 passed"},
		},
		"a failed subtest counts once": {
			args: []string{"./bad"},
			last: "2 passed, 2 failed",
			says: []string{"FAIL ends/bad.TestBad:", "one is not two", "FAIL ends/bad.TestBadSubtest/bad:", "left is not right"},
		},
		"what a test said is said again at the end": {
			args: []string{"./talks"},
			last: "0 passed, 1 failed",
			says: []string{"Not passed:\n  ends/talks.TestTalks: failed after", "s\n    talks_test.go:4: the first words\n", "\n    (14 more)\n", "\n    talks_test.go:8: the last words\n\n0 passed"},
		},
		"a skip is a failure": {
			args: []string{"./skips"},
			last: "1 passed, 1 failed",
			says: []string{"FAIL ends/skips.TestSkipped: skipped: skips_test.go:4: needs a moon"},
		},
		"a panic": {
			args: []string{"./panics"},
			last: "0 passed, 1 failed",
			says: []string{"FAIL ends/panics.TestPanics:", "panic: lost"},
		},
		"an exit inside a test": {
			args: []string{"./exits"},
			last: "0 passed, 1 failed",
			says: []string{"FAIL ends/exits.TestExits:"},
		},
		"a package that fails with good tests": {
			args: []string{"./main"},
			last: "1 passed, 1 failed",
			says: []string{"FAIL ends/main: failed outside its tests"},
		},
		"a package that does not build": {
			args: []string{"./broken"},
			last: "0 passed, 1 failed",
			says: []string{"undefined: undefined", "FAIL ends/broken: does not build"},
		},
		"a package that does not exist": {
			args: []string{"./nowhere"},
			last: "0 passed, 1 failed",
			says: []string{"FAIL ./nowhere: does not build"},
		},
		"no test at all": {
			args: []string{"./none"},
			last: "0 passed, 1 failed",
			says: []string{"FAIL go test ./none: no test was run"},
		},
		"bad arguments": {
			args: []string{"-timeout=never", "./good"},
			last: "0 passed, 1 failed",
			says: []string{"FAIL go test -timeout=never ./good: exit status"},
		},
		"groups run in turn, the failed ones too": {
			args: []string{"./skips", "--", "-p=1", "./good"},
			last: "4 passed, 1 failed",
			says: []string{"ok   ends/good: 3 passed"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, stderr strings.Builder
			ok := run(t.Context(), tt.args, &out, &stderr)
			t.Logf("%s%s", out.String(), stderr.String())
			if ok != tt.ok {
				t.Errorf("run reported %v, want %v", ok, tt.ok)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if diff := cmp.Diff(tt.last, lines[len(lines)-1]); diff != "" {
				t.Errorf("last line (-want +got):\n%s", diff)
			}
			for _, want := range tt.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output does not say %q", want)
				}
			}
		})
	}
}

func TestRunStopsWhenInterrupted(t *testing.T) {
	var out strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if run(ctx, []string{"."}, &out, &out) {
		t.Error("an interrupted run reported success")
	}
	if want := "\n0 passed, 1 failed\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("output %q does not end with %q", out.String(), want)
	}
}
