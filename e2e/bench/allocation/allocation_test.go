package allocation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// TestAllocationIsMeasured: with few Services there is a figure of both in every table.
func TestAllocationIsMeasured(t *testing.T) {
	bin := os.Getenv(apiserver.BinEnv)
	if _, err := os.Stat(filepath.Join(bin, "metallb-controller")); bin == "" || err != nil {
		t.Skipf("%s names no directory that has metallb-controller: run make test-build", apiserver.BinEnv)
	}
	out := filepath.Join(t.TempDir(), "report.md")
	o := Options{
		Options: machine.Options{Rounds: 1, Patience: 10 * time.Minute, Out: out, Bin: bin},
		Ours:    []int{5}, Theirs: []int{5}, Singles: 2,
		pools: pools()[len(pools())-1:], // each costs an API server
	}
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	const tables = 11
	for _, name := range []string{"fairlead", "metallb"} {
		if got := strings.Count(string(text), "\n| "+name+" |"); got < tables {
			t.Errorf("%s is in %d tables only:\n%s", name, got, text)
		}
	}
	if strings.Contains(string(text), "–") {
		t.Errorf("something was not measured:\n%s", text)
	}
}
