package command_test

import (
	"bytes"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

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

// A copy with a key of its own, which has run apart, comes onto the LAN while it runs. Both clusters tell which station has the
// address, too. What each does about that has clients change sides at first: soon the node with the higher MAC is silent
// unless it is asked, and clients stay with the other one.
func TestACopyComesOntoTheLANWhileItRuns(t *testing.T) {
	t.Parallel()
	inBothAtOnce(t, comesLater)
}

func comesLater(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	twin := &lab{plan: p, segment: l.segment, client: linkstest.NewHost(t), first: 11}
	twin.populate(t, 2, patient...)
	l.part(t, []string{"port1", l.nodes[0].plug, l.nodes[1].plug}, []string{p.attach(l.segment, twin.client, 98), twin.nodes[0].plug, twin.nodes[1].plug})
	l.start(t)
	twin.startWith(t, func(n *node) api.Table {
		table := twin.table(n)
		table.Key = "the key of the copy, 32 bytes too"
		return table
	})
	low, high := l.nodes[0], twin.nodes[0]
	l.resolves(t, low)
	twin.resolves(t, high)

	for _, n := range twin.nodes {
		l.segment.Pull(n.plug)
	}
	high.until("without its cable", ownsNot)
	l.heal(t)
	for _, n := range twin.nodes {
		l.segment.Plug(n.plug)
	}
	low.until("told of the copy", l.contested(high.Host, false))
	high.until("told of the first cluster", l.contested(low.Host, false))
	if testing.Short() {
		return
	}
	if bytes.Compare(low.mac(), high.mac()) > 0 {
		low, high = high, low
	}
	took := high.until("leaving clients to the lower MAC", func(s api.State) bool { return s.Contested[p.vip].Yielded })
	t.Logf("one of two is silent after %v", took.Round(time.Second))
	l.neighbour(t, low)
	twin.neighbour(t, low)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		for _, client := range []*linkstest.Host{l.client, twin.client} {
			if at := client.Neighbour("eth0", p.vip); bytes.Equal(at, high.mac()) {
				t.Fatal("a client has changed sides")
			}
		}
	}
	if s, _ := low.client.State(); s.Contested[p.vip].Yielded || !owns(s) {
		t.Errorf("the lower one says %+v", s)
	}
}
