package command_test

import "testing"

// A copy of the cluster on its LAN, with the same key and names of nodes, answers for no address that is answered for,
// and says which station has it. It takes what the first cluster gives up, and neither disturbs the other's hellos.
func TestACopyOfTheCluster(t *testing.T) { inBoth(t, besideACopy) }

func besideACopy(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	l.start(t)
	twin := &lab{plan: p, segment: l.segment, client: l.client, first: 11}
	twin.populate(t, 2, patient...)
	twin.begin(t)
	for _, n := range twin.nodes {
		n.say(twin.table(n))
	}
	first, second := l.nodes[0], twin.nodes[0]
	second.until("told that another station has the address", twin.contested(first.Host, true))
	l.resolves(t, first)
	for _, n := range append(l.nodes, twin.nodes...) {
		n.hears(t, "nodes_heard 1$")
	}
	for _, n := range l.nodes {
		table := l.table(n)
		table.Claims = nil
		n.say(table)
	}
	second.until("owner", owns)
	l.resolves(t, second)
}
