package figures_test

import (
	"math"
	"strings"
	"testing"

	"fairlead.dev/fairlead/e2e/bench/figures"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	r := figures.New()
	if got := r.Median("a", 10, figures.Rate); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
	for i := range 200 {
		r.Add("a", 10, figures.Change, float64((i*7)%200+1)) // 1 to 200, mixed
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 100, 0.99: 198, 1: 200} {
		if got := r.Quantile("a", 10, figures.Change, q); got != want {
			t.Errorf("quantile %v of 1 to 200 is %v, want %v", q, got, want)
		}
	}
}

// TestReport: rows that have nothing to say are left out, ratios say who is better.
func TestReport(t *testing.T) {
	t.Parallel()
	r := figures.New()
	for _, size := range []int{10, 1000} {
		r.Add("none", size, figures.Rate, 200, 100, 300)
		r.Add("ours", size, figures.Rate, 150, 100, 170)
		r.Add("ours", size, figures.RateFirst, 300, 200)
		r.Add("ours", size, figures.Change, 2)
		r.Add("theirs", size, figures.Change, 300)
	}
	report := r.Report(figures.Setup{
		Command: "make it", Facts: []string{"a machine"}, Sizes: []int{10, 1000},
		Contestants: []figures.Contestant{
			{Name: "none", NoNAT: true}, {Name: "ours", Ours: true, Rival: "theirs"}, {Name: "theirs", Rival: "ours"},
		},
	})
	for _, want := range []string{
		"`make it`", "- a machine\n",
		"| flows a second (quartiles) | 10 | 1000 |\n|---|---|---|\n| none | 200 (100–300) | 200 (100–300) |\n| ours | 150 (100–170) | 150 (100–170) |\n\n",
		"| rate ÷ rate without NAT | 10 | 1000 |\n|---|---|---|\n| ours | 0.75 | 0.75 |\n",
		"in the same passes | 10 | 1000 |\n|---|---|---|\n| ours | 0.50 | 0.50 |\n",
		"| ours | 2.00 / 2.00 (1) | 2.00 / 2.00 (1) |\n| theirs | 300 / 300 (1) |",
		"99th percentile | 10 | 1000 |\n|---|---|---|\n| ours | 150 / 150 | 150 / 150 |\n",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}

// TestAllocation: each contestant has a row in every table, and pools have their names.
func TestAllocation(t *testing.T) {
	t.Parallel()
	r := figures.New()
	for name, giving := range map[string]float64{"ours": 2, "theirs": 30} {
		r.Add(name, 1000, figures.Giving, giving)
		r.Add(name, 8, figures.FirstOfPool, 7)
	}
	r.Add("ours", 1000, figures.Single, 4, 5)
	report := r.Allocation(figures.Setup{
		Command: "make it", Facts: []string{"a machine"}, Sizes: []int{1000, 10000},
		Contestants: []figures.Contestant{{Name: "ours", Ours: true, Rival: "theirs"}, {Name: "theirs"}},
	}, []figures.Pool{{Name: "IPv4 /24", Bits: 8}})
	for _, want := range []string{
		"# Allocation\n", "Made by `make it`", "- a machine\n",
		"| s until all have addresses | 1000 | 10000 |\n|---|---|---|\n| ours | 2.00 | – |\n| theirs | 30.0 | – |\n",
		"| time until all have addresses: theirs ÷ ours | 1000 | 10000 |\n|---|---|---|\n| ours | 15.0 | – |\n",
		"| ours | 4.00 / 5.00 (2) | – |\n",
		"| ms to the first address | IPv4 /24 |\n|---|---|\n| ours | 7.00 |\n| theirs | 7.00 |\n",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}
