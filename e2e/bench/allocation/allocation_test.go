package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// TestAllocation: with few Services there is a figure of both in every table.
func TestAllocation(t *testing.T) {
	bin := os.Getenv(apiserver.BinEnv)
	if _, err := os.Stat(filepath.Join(bin, "metallb-controller")); bin == "" || err != nil {
		t.Skipf("%s names no directory that has metallb-controller: run make test-build", apiserver.BinEnv)
	}
	out := filepath.Join(t.TempDir(), "report.md")
	o, err := parse([]string{"-ours", "5", "-theirs", "5", "-rounds", "1", "-singles", "2", "-settle", "0s", "-out", out})
	if err != nil {
		t.Fatal(err)
	}
	o.pools = o.pools[len(o.pools)-1:] // each costs an API server
	if err := bench(t.Context(), o); err != nil {
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

func TestParse(t *testing.T) {
	t.Setenv(apiserver.BinEnv, "bin")
	for _, args := range [][]string{{"-ours", "10,1"}, {"-theirs", "x"}, {"-ours", "0"}, {"-rounds", "0"}, {"-singles", "0"}, {"-bin", ""}} {
		if o, err := parse(args); err == nil {
			t.Errorf("%q give %+v", args, o)
		}
	}
	if o, err := parse([]string{"-theirs", "", "-ours", "1,2"}); err != nil || len(o.theirs) != 0 || len(o.ours) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}
