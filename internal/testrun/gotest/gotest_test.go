package gotest

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"fairlead.dev/fairlead/internal/testrun/plan"
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
-- once/once_test.go --
package once
import (
	"os"
	"testing"
)
func TestGood(t *testing.T) {}
func TestOnce(t *testing.T) {
	_, err := os.Stat("ran")
	os.WriteFile("ran", nil, 0o600)
	busy := false
	t.Run("good", func(t *testing.T) {})
	t.Run("a busy (machine)", func(t *testing.T) {
		if busy = true; err != nil {
			t.Error("late")
		}
	})
	t.Run("a sibling", func(t *testing.T) {
		if err != nil || !busy {
			t.Error("late, too")
		}
	})
}
-- setup/setup_test.go --
package setup
import (
	"os"
	"testing"
)
func TestSetUp(t *testing.T) {
	if _, err := os.Stat("ran"); err == nil {
		t.Fatal("no lab")
	}
	os.WriteFile("ran", nil, 0o600)
	t.Run("late", func(t *testing.T) { t.Error("late") })
}
-- races/races_test.go --
package races
import (
	"os"
	"testing"
)
func TestRace(t *testing.T) {
	if _, err := os.Stat("ran"); err != nil {
		os.WriteFile("ran", nil, 0o600)
		t.Error("race detected during execution of test")
	}
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
-- waits/left/left_test.go --
package left
import (
	"testing"
	"ends/waits"
)
func TestWaits(t *testing.T) { waits.ForTheOther(t, "left", "right") }
-- waits/right/right_test.go --
package right
import (
	"testing"
	"ends/waits"
)
func TestWaits(t *testing.T) { waits.ForTheOther(t, "right", "left") }
-- waits/waits.go --
package waits
import (
	"os"
	"testing"
	"time"
)
func ForTheOther(t *testing.T, one, other string) {
	os.WriteFile("../"+one+".runs", nil, 0o600)
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
		if _, err := os.Stat("../"+other+".runs"); err == nil {
			return
		}
	}
	t.Error("the other never ran")
}
-- keeps/keeps_test.go --
package keeps
import (
	"os"
	"path/filepath"
	"testing"
)
func TestKeeps(t *testing.T) {
	t.Error("what it says")
	os.WriteFile(filepath.Join(t.ArtifactDir(), "rules"), []byte("what it keeps"), 0o600)
}
-- none/none.go --
package none
`

// inModule has the test run in the module.
func inModule(t *testing.T) {
	t.Helper()
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
}

func TestRunCountsEveryEnd(t *testing.T) {
	inModule(t)
	tests := map[string]struct {
		run    []plan.Phase
		within time.Duration
		ok     bool
		last   string
		says   []string
	}{
		"all pass": {
			run:  one("./good", "./none"),
			ok:   true,
			last: "3 passed, 0 failed",
			says: []string{"ok   ends/good: 3 passed", "\nThe slowest packages:\n     0s ends/"},
		},
		"a failed subtest counts once": {
			run:  one("./bad"),
			last: "2 passed, 2 failed",
			says: []string{"FAIL ends/bad.TestBad:", "one is not two", "FAIL ends/bad.TestBadSubtest/bad:", "left is not right"},
		},
		"what a test said is said again at the end": {
			run:  one("./talks"),
			last: "0 passed, 1 failed",
			says: []string{"Not passed:\n  ends/talks.TestTalks: failed after", " again\n    talks_test.go:4: the first words\n", "\n    (14 more)\n", "\n    talks_test.go:8: the last words\n\n0 passed"},
		},
		"what passes beside its siblings alone is told of": {
			run:  one("./once"),
			ok:   true,
			last: "4 passed, 0 failed",
			says: []string{"FAIL ends/once.TestOnce/a_busy_(machine):", "\nPassed only when it was run again with nothing beside it:\n  ends/once.TestOnce/a_busy_(machine): failed after", "late"},
		},
		"what fails again has failed": {
			run:  one("./bad"),
			last: "2 passed, 2 failed",
			says: []string{"failed after 0s, and when it was run again"},
		},
		"what is not come to again has failed": {
			run:  one("./setup"),
			last: "0 passed, 1 failed",
			says: []string{"FAIL ends/setup.TestSetUp:", "  ends/setup.TestSetUp/late: failed after 0s, and when it was run again"},
		},
		"a race has failed for good": {
			run:  one("./races"),
			last: "0 passed, 1 failed",
			says: []string{"FAIL ends/races.TestRace"},
		},
		"a skip is a failure": {
			run:  one("./skips"),
			last: "1 passed, 1 failed",
			says: []string{"FAIL ends/skips.TestSkipped: skipped: skips_test.go:4: needs a moon"},
		},
		"a panic": {
			run:  one("./panics"),
			last: "0 passed, 1 failed",
			says: []string{"FAIL ends/panics.TestPanics:", "panic: lost"},
		},
		"an exit inside a test": {
			run:  one("./exits"),
			last: "0 passed, 1 failed",
			says: []string{"FAIL ends/exits.TestExits:"},
		},
		"a package that fails with good tests": {
			run:  one("./main"),
			last: "1 passed, 1 failed",
			says: []string{"FAIL ends/main: failed outside its tests"},
		},
		"a package that does not build": {
			run:  one("./broken"),
			last: "0 passed, 1 failed",
			says: []string{"undefined: undefined", "FAIL ends/broken: does not build"},
		},
		"a package that does not exist": {
			run:  one("./nowhere"),
			last: "0 passed, 1 failed",
			says: []string{"FAIL ./nowhere: does not build"},
		},
		"no test at all": {
			run:  one("./none"),
			last: "0 passed, 1 failed",
			says: []string{"FAIL go test  ./none: no test was run"},
		},
		"bad arguments": {
			run:  []plan.Phase{{{{Flags: "-timeout=never", Packages: []string{"./good"}}}}},
			last: "0 passed, 1 failed",
			says: []string{"FAIL go test -timeout=never ./good: exit status"},
		},
		"lanes of a phase run beside one another": {
			run:  []plan.Phase{{{{Packages: []string{"./waits/left"}, Gentle: true}}, {{Packages: []string{"./waits/right"}}, {Packages: []string{"./bad"}}}}},
			last: "4 passed, 2 failed",
			says: []string{"ok   ends/waits/left: 1 passed", "ok   ends/waits/right: 1 passed", "go test  ./bad: ended after"},
		},
		"phases run in turn, the failed ones too": {
			run:  []plan.Phase{{{{Packages: []string{"./skips"}}}}, {{{Flags: "-p=1", Packages: []string{"./good"}}}}},
			last: "4 passed, 1 failed",
			says: []string{"ok   ends/good: 3 passed"},
		},
		"a phase for which there is no time is told of": {
			run:    []plan.Phase{{{{Packages: []string{"./good"}}}}, {{{Packages: []string{"./bad"}}}}},
			within: time.Nanosecond,
			ok:     true,
			last:   "3 passed, 0 failed",
			says:   []string{"\nNOT RUN: go test  ./bad: what came before took "},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out, stderr strings.Builder
			ok := Run(t.Context(), tt.run, tt.within, "failures", &out, &stderr)
			t.Logf("%s%s", out.String(), stderr.String())
			if ok != tt.ok {
				t.Errorf("run reported %v, want %v", ok, tt.ok)
			}
			last := "\n" + tt.last + "\n"
			if !tt.ok || strings.Contains(out.String(), "Passed only") {
				last += "outputs, logs and rules of what failed are in failures\n"
			}
			if !strings.HasSuffix(out.String(), last) {
				t.Errorf("it does not end with %q", last)
			}
			for _, want := range tt.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output does not say %q", want)
				}
			}
		})
	}
}

// one is a run of go test with nothing beside it.
func one(packages ...string) []plan.Phase { return []plan.Phase{{{{Packages: packages}}}} }

func TestWhatFailedTestsLeaveIsInOneFolder(t *testing.T) {
	inModule(t)
	for range 2 { // the second empties what the first left
		if Run(t.Context(), one("./keeps"), 0, "failures", io.Discard, t.Output()) {
			t.Fatal("a failed test passed")
		}
	}
	said, err := os.ReadFile("failures/ends_keeps.TestKeeps.log")
	if err != nil || !strings.Contains(string(said), "what it says") {
		t.Errorf("%q, %v", said, err)
	}
	_, dir, _ := strings.Cut(string(said), "=== ARTIFACTS TestKeeps ")
	kept, err := os.ReadFile(filepath.Join(strings.TrimSpace(dir), "rules"))
	if err != nil || string(kept) != "what it keeps" || !strings.Contains(dir, "/failures/") {
		t.Errorf("%q is in %q, %v", kept, dir, err)
	}
}

func TestRunStopsWhenInterrupted(t *testing.T) {
	var out strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Run(ctx, one("."), 0, t.TempDir(), &out, &out) {
		t.Error("an interrupted run reported success")
	}
	if want := "\n0 passed, 1 failed\n"; !strings.Contains(out.String(), want) {
		t.Errorf("output %q does not say %q", out.String(), want)
	}
}
