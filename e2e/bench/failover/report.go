package failover

import (
	"fmt"

	"fairlead.dev/fairlead/e2e/bench/figures"
)

// measure is a kind of figure.
type measure = figures.Measure

// report renders the figures in Markdown.
func report(o Options, facts []string, results *figures.Results) string {
	setup := figures.Setup{Command: o.Command, Facts: append(facts,
		"three nodes, a router (FRR) and a client in network namespaces of one machine, which all share its processors;\n"+
			"  each contestant in a lab of its own, one after the other")}
	for _, c := range o.contestants {
		setup.Contestants = append(setup.Contestants, figures.Contestant{Name: c.name})
	}
	for _, note := range o.notes {
		results.Note(note)
	}
	tables := []figures.Comparison{{Text: "Milliseconds", Measures: o.asked(o.measures, results)}}
	if lost := o.asked(o.lost, results); len(lost) > 0 {
		tables = append(tables, figures.Comparison{Text: "Questions without an answer", Measures: lost})
	}
	if memory := o.asked(o.memory, results); len(memory) > 0 {
		tables = append(tables, figures.Comparison{Text: "MiB", Measures: memory})
		results.Note(fmt.Sprintf("many addresses are %d, each of a Service with one endpoint, over two sessions of each node; forwarding is in place before they are announced.\n"+
			"  While they are created, speakers and kube-proxy are stopped; the API server hands out ClusterIPs as that of 1.33 can", o.Many))
		results.Note("until they are withdrawn, Fairlead announces them for two seconds as routes that are about to go (RFC 8326), since the nodes still serve them")
	}
	text := results.Beside(o.title+", beside MetalLB", setup, tables...)
	if results.Has(helloCPU) {
		text += results.Alone("What it costs us that nodes know of each other, of one node: so many real pulse processes say hello\n"+
			fmt.Sprintf("on one segment of this machine, for %v.", helloTime),
			setup.Contestants[0].Name, helloNodes(), []measure{helloCPU, helloSent, helloReceived, helloDeaths})
	}
	return text
}
