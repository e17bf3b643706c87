package failover

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/machine"
)

func TestReport(t *testing.T) {
	t.Parallel()
	o := Options{Protocol: Layer2(), Options: machine.Options{Command: "make it"}}
	results := figures.New()
	results.Add("fairlead", 0, cable, 100, 200, 300)
	results.Add("metallb", 0, cable, 5000, 5600, 7000)
	results.Add("fairlead", 0, killedLost, 0)
	results.Add("metallb", 0, killedLost, 40)
	results.Add("fairlead", 50, helloCPU, 1.5)
	text := report(o, []string{"a fact"}, results)
	for _, want := range []string{
		"Made by `make it`", "- a fact",
		"| " + string(cable) + " | 200 / 300 (3) | 5600 / 7000 (3) | 28.0 |",
		"| " + string(killed) + " | – | – | – |",
		"| " + string(killedLost) + " | 0.00 / 0.00 (1) | 40.0 / 40.0 (1) | – |",
		"| " + string(helloCPU) + " | – | – | 1.50 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestReportOfBGP: BGP says no hello, and has MetalLB in both of its modes.
func TestReportOfBGP(t *testing.T) {
	t.Parallel()
	results := figures.New()
	results.Add("fairlead", 0, slowBFD, 600)
	results.Add("metallb-frr-k8s", 0, slowBFD, 900)
	results.Add("metallb-frr-k8s", 0, frrLost, 40)
	text := report(Options{Protocol: BGP()}, nil, results)
	for _, strange := range []string{"hello", "!["} {
		if strings.Contains(text, strange) {
			t.Errorf("%q in\n%s", strange, text)
		}
	}
	for _, want := range []string{
		"| | fairlead | metallb | metallb-frr-k8s | metallb ÷ ours, medians | metallb-frr-k8s ÷ ours, medians |\n|---|---|---|---|---|---|\n",
		"| " + string(slowBFD) + " | 600 / 600 (1) | – | 900 / 900 (1) | – | 1.50 |",
		"| " + string(frrLost) + " | – | – | 40.0 / 40.0 (1) | – | – |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestMeasuresDiffer: the figures of two that were called the same would be mixed.
func TestMeasuresDiffer(t *testing.T) {
	t.Parallel()
	for _, p := range []Protocol{Layer2(), BGP()} {
		seen := map[measure]bool{}
		for _, m := range slices.Concat(p.measures, p.lost, p.memory) {
			if seen[m] {
				t.Errorf("%s: two measures are called %q", p.title, m)
			}
			seen[m] = true
		}
	}
}

func TestFirstUpdate(t *testing.T) {
	t.Parallel()
	packets := []string{"1795377193.680371 02:00 > 02:01, ethertype IPv4: ...", "1795377193.784799 02:00 > 02:01", "1795377193.855224 x"}
	at, err := firstUpdate(packets, time.UnixMicro(1795377193_700000))
	if err != nil || at.UnixMicro() != 1795377193_784799 {
		t.Errorf("%v, %v", at, err)
	}
	if _, err := firstUpdate(packets, time.UnixMicro(1795377194_000000)); err == nil {
		t.Error("an UPDATE is found that came before")
	}
}

// TestOnly: what is not asked for has no line in the report, but what came of the same event.
func TestOnly(t *testing.T) {
	t.Parallel()
	o := Options{Protocol: Layer2(), Only: regexp.MustCompile("label taken off")}
	if !o.wants(killed, returned) || o.wants(killed, killedLost) {
		t.Error("it wants other figures")
	}
	o, err := o.Choose("metallb", "fairlead")
	if err != nil || o.contestants[0].name != "metallb" {
		t.Errorf("%v, %v", o.contestants, err)
	}
	results := figures.New()
	results.Add("fairlead", 0, returned, 4)
	results.Add("fairlead", 0, returnedLost, 0)
	text := report(o, nil, results)
	for m, want := range map[measure]bool{returned: true, returnedLost: true, drained: false, drainedLost: false, helloCPU: false} {
		if got := strings.Contains(text, "| "+string(m)+" |"); got != want {
			t.Errorf("%q is in the report: %v", m, got)
		}
	}
}
