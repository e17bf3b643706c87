package command_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse"
)

// A node with two interfaces on the network answers on both, so that each hears what is asked and said on the other
// one. That is no word of the node that it is to hand an address over to, and which has not learned of it.
func TestANodeWithTwoInterfacesOnANetworkAnswersUntilItsSuccessorDoes(t *testing.T) { inBoth(t, twice) }

func twice(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	first, second := l.nodes[0], l.nodes[1]
	l.segment.Attach(first.Host, "eth1", netip.PrefixFrom(p.host(11), p.lan.Bits()).String())
	l.start(t)
	moved := l.table(first)
	moved.Claims[l.vip] = desired.Candidacy{Candidates: []string{second.name, first.name}}
	first.say(moved)
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if s, _ := first.client.State(); !owns(s) {
			t.Fatal("it has stopped, and no other node answers")
		}
	}
	moved = l.table(second)
	moved.Claims[l.vip] = desired.Candidacy{Candidates: []string{second.name, first.name}}
	second.say(moved)
	second.until("owner", owns)
	first.until("without the address", func(s pulse.State) bool { return !owns(s) })
}
