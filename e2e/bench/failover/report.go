package main

import (
	"fmt"
	"math"
	"strings"

	"fairlead.dev/fairlead/e2e/bench/figures"
)

// measure is a kind of figure, in milliseconds.
type measure = figures.Measure

// report renders the figures in Markdown.
func report(o options, facts []string, results *figures.Results) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s, beside MetalLB\n\nMade by `%s`, which writes this page.\n\n", o.protocol.title, o.command())
	for _, fact := range facts {
		fmt.Fprintf(&text, "- %s\n", fact)
	}
	text.WriteString(`- three nodes, a router (FRR) and a client in network namespaces of one machine, which all share its processors;
  each contestant in a lab of its own, one after the other
`)
	for _, note := range o.protocol.notes {
		fmt.Fprintf(&text, "- %s\n", note)
	}
	text.WriteString("\nMilliseconds: median / most (figures).\n\n| |")
	for _, c := range contestants() {
		fmt.Fprintf(&text, " %s |", c.name)
	}
	text.WriteString(" theirs ÷ ours, medians |\n|---|")
	text.WriteString(strings.Repeat("---|", len(contestants())+1) + "\n")
	for _, m := range o.protocol.measures {
		fmt.Fprintf(&text, "| %s |", m)
		for _, c := range contestants() {
			fmt.Fprintf(&text, " %s |", cell(results, c.name, m))
		}
		fmt.Fprintf(&text, " %s |\n", ratio(results, m))
	}
	return text.String()
}

func cell(results *figures.Results, contestant string, m measure) string {
	n := results.Count(contestant, 0, m)
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%s / %s (%d)", digits(results.Median(contestant, 0, m)), digits(results.Quantile(contestant, 0, m, 1)), n)
}

// ratio of the medians of the second contestant and the first, which is ours.
func ratio(results *figures.Results, m measure) string {
	all := contestants()
	ours, theirs := results.Median(all[0].name, 0, m), results.Median(all[1].name, 0, m)
	if r := theirs / ours; ours > 0 && !math.IsNaN(r) {
		return digits(r)
	}
	return "–"
}

// digits renders three of them, or all before the point.
func digits(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
