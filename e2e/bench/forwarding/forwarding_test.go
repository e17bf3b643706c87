package forwarding

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/bench/machine"
	"fairlead.dev/fairlead/e2e/bench/stage"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// TestMain lets the test's program be the parts of the benchmark that are processes of
// their own.
func TestMain(m *testing.M) {
	if ok, err := stage.Part(os.Args[1:]); ok {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestForwardingIsMeasured: with few Services and rounds there is a figure in every table, of ours and
// of kube-proxy.
func TestForwardingIsMeasured(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	out := filepath.Join(t.TempDir(), "report.md")
	modes, err := stage.Choose("no-nat,fairlead-iptables,kube-proxy-iptables", false)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Options: machine.Options{Rounds: 1, Patience: 15 * time.Minute, Out: out, Bin: cmp.Or(os.Getenv(apiserver.BinEnv), lab.Programs())},
		Sizes:   []int{2, 20}, Contestants: modes, Changes: 3, Passes: 3, Flows: 500,
	}
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range o.Contestants {
		if c := strings.Count(string(text), "\n| "+mode.Name+" |"); c < 3 {
			t.Errorf("%s is in %d tables only:\n%s", mode.Name, c, text)
		}
	}
	if strings.Contains(string(text), "took no further part") || strings.Contains(string(text), "–\n") {
		t.Errorf("something was not measured:\n%s", text)
	}
}

// TestFarewell: who was stopped is told from who failed, and neither with a whole log.
func TestFarewell(t *testing.T) {
	t.Parallel()
	late := fmt.Errorf("more: %w", &unfinished{"programming 10 Services", time.Minute, errors.New("refused"), "a log\nof lines"})
	want := "x did not finish programming 10 Services within its patience of 1m0s; it was stopped and took no further part"
	if got := farewell("x", 10, late); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	want = "x took no further part from 10 Services on: of lines"
	const failure = "x ended; its log:\na log\nof lines\n"
	if got := farewell("x", 10, errors.New(failure)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
