package command_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// gateway attaches a router, to which the nodes have a default route.
func (l *lab) gateway(t *testing.T) (plug string) {
	t.Helper()
	router := linkstest.NewHost(t)
	plug = l.attach(l.segment, router, 250)
	for _, n := range l.nodes {
		route := &netlink.Route{LinkIndex: n.Link("eth0").Attrs().Index, Gw: l.host(250).AsSlice()}
		if err := n.Netlink.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
	}
	return plug
}

// cut has the segment drop what goes from one of the plugs to one of the others.
func (l *lab) cut(t *testing.T, from, to []string) {
	t.Helper()
	l.switches(t, fmt.Sprintf("add table bridge cut; add chain bridge cut forward { type filter hook forward priority 0; }; "+
		"add rule bridge cut forward iifname { %s } oifname { %s } drop", strings.Join(from, ", "), strings.Join(to, ", ")))
}

// part has it drop that both ways.
func (l *lab) part(t *testing.T, some, others []string) {
	t.Helper()
	l.cut(t, some, others)
	l.cut(t, others, some)
}

// filter has it drop hellos from one plug to another.
func (l *lab) filter(t *testing.T, from, to string) {
	t.Helper()
	l.switches(t, fmt.Sprintf("add table bridge cut; add chain bridge cut forward { type filter hook forward priority 0; }; "+
		"add rule bridge cut forward iifname %s oifname %s udp dport 7475 drop", from, to))
}

// heal takes all of these back.
func (l *lab) heal(t *testing.T) {
	t.Helper()
	l.switches(t, "delete table bridge cut")
}

func (l *lab) switches(t *testing.T, commands string) {
	t.Helper()
	for command := range strings.SplitSeq(commands, "; add ") {
		command = "add " + strings.TrimPrefix(command, "add ")
		if strings.HasPrefix(commands, "delete") {
			command = commands
		}
		if out, err := l.segment.Exec("nft", command); err != nil {
			t.Fatalf("nft %s: %v: %s", command, err, out)
		}
	}
}

func ownsNot(s api.State) bool { return !owns(s) }

func isCutOff(s api.State) bool { return len(s.CutOff) > 0 && !owns(s) }

// answering waits until this node answers, and no other one.
func (l *lab) answering(t *testing.T, n *node) {
	t.Helper()
	n.until("owner", owns)
	for _, other := range l.nodes {
		if other != n {
			other.until("without the address", ownsNot)
		}
	}
	l.resolves(t, n)
}

// A node behind a switch that is cut off from the others and the gateway, and not from the client:
// it is up, has its cable, and stops all the same.
func TestACutOffNodeStops(t *testing.T) { inBoth(t, cutOffNode) }

func cutOffNode(t *testing.T, p plan) {
	l := newLabOf(t, p, 2)
	router := l.gateway(t)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.counted(t, func() {
		l.part(t, []string{first.plug}, []string{second.plug, router})
		second.until("owner", owns)
		first.until("cut off", isCutOff)
	}, second, first)
	l.answering(t, second)
	if s, _ := first.client.State(); !slices.Equal(s.CutOff, []netip.Addr{l.host(250)}) {
		t.Errorf("gateways that do not answer: %v", s.CutOff)
	}
	l.heal(t)
	l.answering(t, first)
	if s, _ := first.client.State(); len(s.CutOff) > 0 {
		t.Errorf("cut off from %v, and hears all", s.CutOff)
	}
}

// longestDetection is what a silent node is waited for at most, which is when the machine was
// busy before (20 intervals), and what follows from it.
const longestDetection = time.Second + 200*time.Millisecond

// counted does something that moves the address, and fails if the one node still answered the
// client when the other had done so for a detection time.
func (l *lab) counted(t *testing.T, do func(), begins, stops *node) {
	t.Helper()
	asking := l.asking(t)
	asking.anew()
	do()
	time.Sleep(detection) // what was wrong would go on
	both := asking.both(begins, stops)
	t.Logf("two nodes answered for %v", both.Round(time.Millisecond))
	if both > longestDetection {
		t.Errorf("two nodes answered for %v", both)
	}
}

// Two of five nodes lose the others and the gateway; the client is on their side.
func TestTwoOfFiveAreCutOff(t *testing.T) { inBoth(t, twoOfFive) }

func twoOfFive(t *testing.T, p plan) {
	l := newLabOf(t, p, 5)
	router := l.gateway(t)
	l.start(t)
	var few, most []string
	for i, n := range l.nodes {
		if i < 2 {
			few = append(few, n.plug)
		} else {
			most = append(most, n.plug)
		}
	}
	l.counted(t, func() {
		l.part(t, few, append(most, router))
		l.nodes[2].until("owner", owns)
		for _, n := range l.nodes[:2] {
			n.until("cut off", isCutOff)
		}
	}, l.nodes[2], l.nodes[0])
	l.answering(t, l.nodes[2])
	l.heal(t)
	l.answering(t, l.nodes[0])
}

// Frames are lost between two nodes only, and a third one hears both: the first goes on, and the second takes over
// when it is dead.
func TestFramesAreLostBetweenTwoNodes(t *testing.T) { inBoth(t, lostBetweenTwo) }

func lostBetweenTwo(t *testing.T, p plan) {
	l := newLabOf(t, p, 3)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	apart := func(s api.State) bool { return slices.Contains(s.Silent, first.name) && !owns(s) }
	l.counted(t, func() {
		l.part(t, []string{first.plug}, []string{second.plug})
		second.until("apart from the first", apart)
		time.Sleep(longestDetection) // it may have taken over since
	}, second, second)
	second.until("apart from the first", apart)
	l.answering(t, first)
	l.resolves(t, first)
	first.kill()
	second.until("owner", owns)
	l.resolves(t, second)
	l.heal(t)
	first.startPulse()
	l.answering(t, first)
}

// Hellos that pass in one direction, or in none, while frames do pass.
func TestOneOfTwoAnswersWhateverHellosAreLost(t *testing.T) {
	for name, gateway := range map[string]bool{"with a gateway": true, "without one": false} {
		t.Run(name, func(t *testing.T) { inBoth(t, func(t *testing.T, p plan) { lostHellos(t, p, gateway) }) })
	}
}

func lostHellos(t *testing.T, p plan, gateway bool) {
	l := newLabOf(t, p, 2)
	if gateway {
		l.gateway(t)
	}
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	t.Log("hellos of the first do not reach the second")
	l.counted(t, func() {
		l.filter(t, first.plug, second.plug)
		second.until("owner", owns)
		first.until("without the address", ownsNot)
	}, second, first)
	l.answering(t, second)
	l.heal(t)
	l.answering(t, first)

	t.Log("hellos of the second do not reach the first")
	l.filter(t, second.plug, first.plug)
	first.until("alone", func(s api.State) bool { return len(s.Alive) == 1 })
	l.answering(t, first)
	l.heal(t)
	first.until("not alone", func(s api.State) bool { return len(s.Alive) == 2 })

	t.Log("hellos reach nobody")
	l.counted(t, func() {
		l.filter(t, first.plug, second.plug)
		l.filter(t, second.plug, first.plug)
		for _, n := range l.nodes {
			n.until("alone", func(s api.State) bool { return len(s.Alive) == 1 })
		}
		second.until("sees the other", func(s api.State) bool { return s.Left[l.vip] == first.name })
	}, second, second)
	l.answering(t, first)
	first.kill() // and is seen no more
	second.until("owner", owns)
	l.resolves(t, second)
	l.heal(t)
	first.startPulse()
	l.answering(t, first)
}

// A node whose agent has another table than the others, as when it lost the API server.
func TestTwoNodesWithDifferentTables(t *testing.T) { inBoth(t, differentTables) }

func differentTables(t *testing.T, p plan) {
	l := newLabOf(t, p, 3, patient...)
	l.start(t)
	first, last := l.nodes[0], l.nodes[2]
	turned := l.table(last)
	turned.Claims[l.vip] = desired.Candidacy{Candidates: []string{last.name, first.name, l.nodes[1].name}}
	l.counted(t, func() {
		last.say(turned)
		first.until("left to the last", func(s api.State) bool { return s.Left[l.vip] == last.name })
	}, last, first)
	l.answering(t, last)
	last.say(l.table(last))
	l.answering(t, first)
	if s, _ := first.client.State(); len(s.Left) > 0 {
		t.Errorf("left: %v", s.Left)
	}
}
