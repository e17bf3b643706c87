package main

import "fairlead.dev/fairlead/e2e/bench/figures"

// measure is a kind of figure, in milliseconds.
type measure = figures.Measure

// report renders the figures in Markdown.
func report(o options, facts []string, results *figures.Results) string {
	setup := figures.Setup{Command: o.command(), Facts: append(facts,
		"three nodes, a router (FRR) and a client in network namespaces of one machine, which all share its processors;\n"+
			"  each contestant in a lab of its own, one after the other")}
	for _, c := range contestants() {
		setup.Contestants = append(setup.Contestants, figures.Contestant{Name: c.name})
	}
	for _, note := range o.protocol.notes {
		results.Note(note)
	}
	return results.Beside(o.protocol.title+", beside MetalLB", setup, o.protocol.measures)
}
