package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/bench/figures"
)

// at makes questions, one every millisecond: "x" was answered, "." was not.
func at(pattern string) []question {
	var asked []question
	for i, c := range pattern {
		asked = append(asked, question{sent: time.Unix(0, 0).Add(time.Duration(i) * time.Millisecond), answered: c == 'x'})
	}
	return asked
}

func TestGap(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]struct{ gap, lost int64 }{
		"":           {0, 0},
		"xxxx":       {1, 0},
		"xx...xx":    {4, 4},
		"x.x...x.x":  {4, 7},
		"...x":       {3, 2},
		"xx.....":    {5, 6},
		"......":     {5, 5},
		"x.....x..x": {6, 8},
	} {
		asked := at(pattern)
		if got, want := lost(asked), strings.Count(pattern, "."); got != want {
			t.Errorf("%s: %d lost, want %d", pattern, got, want)
		}
		if got := gap(asked).Milliseconds(); got != want.gap {
			t.Errorf("%s: gap %d ms, want %d", pattern, got, want.gap)
		}
		if got := lastLost(asked, time.Unix(0, 0)).Milliseconds(); got != want.lost {
			t.Errorf("%s: the last was lost after %d ms, want %d", pattern, got, want.lost)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-protocol", "layer2", "-rounds", "3"})
	if err != nil {
		t.Fatal(err)
	}
	results := figures.New()
	results.Add("fairlead", 0, cable, 100, 200, 300)
	results.Add("metallb", 0, cable, 5000, 5600, 7000)
	results.Add("fairlead", 0, killedLost, 0)
	results.Add("metallb", 0, killedLost, 40)
	results.Add("fairlead", 50, helloCPU, 1.5)
	text, picture := report(o, []string{"a fact"}, results, "layer2.svg")
	for _, want := range []string{
		"go run ./e2e/bench/failover -protocol layer2 -rounds 3", "- a fact",
		"| " + string(cable) + " | 200 / 300 (3) | 5600 / 7000 (3) | 28.0 |",
		"| " + string(killed) + " | – | – | – |",
		"| " + string(killedLost) + " | 0.00 / 0.00 (1) | 40.0 / 40.0 (1) | – |",
		"| " + string(helloCPU) + " | – | – | 1.50 |", "](layer2.svg)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if !strings.Contains(picture, string(cable)) {
		t.Errorf("no panel of %s in\n%s", cable, picture)
	}
}

// TestReportOfBGP: BGP counts no questions and says no hello.
func TestReportOfBGP(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-protocol", "bgp"})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := report(o, nil, figures.New(), "")
	for _, strange := range []string{"hello", "Questions", "!["} {
		if strings.Contains(text, strange) {
			t.Errorf("%q in\n%s", strange, text)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-protocol", "ospf"}, {"-rounds", "0"}, {"-window", "1ms"}, {"-many", "-1"}, {"-patience", "0s"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

// TestMeasuresDiffer: the figures of two that were called the same would be mixed.
func TestMeasuresDiffer(t *testing.T) {
	t.Parallel()
	for _, p := range []protocol{layer2(), bgp()} {
		seen := map[measure]bool{}
		for _, m := range slices.Concat(p.measures, p.lost, p.memory) {
			if seen[m] {
				t.Errorf("%s: two measures are called %q", p.name, m)
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
