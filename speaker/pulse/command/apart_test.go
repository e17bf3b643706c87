package command_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// apartLab is a lab in which the nodes know each other by addresses on a network of their own,
// eth0, and answer on the LAN of the client, eth1.
type apartLab struct {
	*lab
	nodesOnly *linkstest.Segment
	plugs     []string // of all that is on the LAN
}

func newApartLab(t *testing.T, p plan, nodes int, flags ...string) *apartLab {
	t.Helper()
	l := &apartLab{lab: newLabOf(t, p, 0), nodesOnly: linkstest.NewSegment(t), plugs: []string{"port1"}}
	for i := range nodes {
		n := &node{Host: linkstest.NewHost(t), t: t, name: fmt.Sprintf("node-%d", i+1), port: "eth1", flags: flags}
		n.inside(l, i+1)
		n.plug = l.segment.Attach(n.Host, "eth1", netip.PrefixFrom(p.host(i+1), p.lan.Bits()).String())
		n.Sysctl("ipv4/conf/all/arp_ignore", "1")
		n.Sysctl("ipv4/conf/all/arp_announce", "2")
		n.AddAddress("lo", netip.PrefixFrom(p.vip, p.vip.BitLen()).String())
		n.socket = t.TempDir() + "/run/pulse.sock"
		l.nodes, l.plugs = append(l.nodes, n), append(l.plugs, n.plug)
	}
	return l
}

// inside attaches a node to the network of the nodes.
func (n *node) inside(l *apartLab, i int) {
	l.nodesOnly.Attach(n.Host, "eth0", netip.PrefixFrom(l.inner(i), l.within.Bits()).String())
}

func (l *apartLab) table(n *node) api.Table {
	t := l.lab.table(n)
	for i, peer := range l.nodes {
		if peer == n {
			t.NodeAddrs = []netip.Addr{l.inner(i + 1)}
		} else {
			t.Peers[peer.name] = hello.Peer{Addrs: []netip.Addr{l.inner(i + 1)}, Ready: true}
		}
	}
	return t
}

func (l *apartLab) start(t *testing.T) {
	t.Helper()
	l.startWith(t, l.table)
}

// meet waits until the nodes have heard each other on the LAN: an answer to a frame is among the
// first few.
func (l *apartLab) meet(t *testing.T) {
	t.Helper()
	for _, n := range l.nodes {
		n.hears(t, `link_hellos_received_total \d\d`)
	}
}

// others are the plugs on the LAN but for that of a node.
func (l *apartLab) others(n *node) []string {
	return slices.DeleteFunc(slices.Clone(l.plugs), func(plug string) bool { return plug == n.plug })
}

// A port of the switch that is put into another VLAN: the link has its carrier, and the node is
// alive for all others, but for clients the address would be gone.
func TestALinkThatReachesNobodyIsTakenOver(t *testing.T) { inBoth(t, deadLink) }

func deadLink(t *testing.T, p plan) {
	l := newApartLab(t, p, 3)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	s := l.traffic(t)
	oneOf(t, func() error {
		s.anew()
		s.served(t, first, 20)
		begun := time.Now()
		l.part(t, []string{first.plug}, l.others(first))
		commands := time.Since(begun)
		s.served(t, second, 20)
		gap := s.longestGap()
		t.Logf("a link that reaches nobody: the client got no reply for %v; the cut took %v", gap.Round(time.Millisecond), commands.Round(time.Millisecond))
		second.until("owner", owns)
		first.until("cut off on eth1", func(s api.State) bool { return ownsNot(s) && slices.Equal(s.CutLinks, []string{"eth1"}) })
		for _, n := range l.nodes {
			n.until("with all alive", func(s api.State) bool { return len(s.Alive) == len(l.nodes) })
		}
		l.resolves(t, second)

		s.anew()
		l.heal(t)
		first.until("owner again", func(s api.State) bool { return owns(s) && len(s.CutLinks) == 0 })
		second.until("without the address", ownsNot)
		s.served(t, first, 20)
		l.neighbour(t, first)
		t.Logf("healed: the client got no reply for %v", s.longestGap().Round(time.Millisecond))
		if gap > detection {
			l.restart(t)
			return fmt.Errorf("no reply for %v", gap)
		}
		return nil
	})
}

// What the node sends there is lost, or what is sent to it: either is as bad.
func TestALinkOfOneDirectionIsTakenOver(t *testing.T) {
	for name, out := range map[string]bool{"nothing leaves": true, "nothing comes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothAtOnce(t, func(t *testing.T, p plan) { linkOfOneDirection(t, p, out) })
		})
	}
}

func linkOfOneDirection(t *testing.T, p plan, out bool) {
	l := newApartLab(t, p, 3)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	from, to := []string{first.plug}, l.others(first)
	if !out {
		from, to = to, from
	}
	l.cut(t, from, to)
	second.until("owner", owns)
	first.until("without the address", ownsNot)
	l.resolves(t, second)
	l.heal(t)
	first.until("owner again", owns)
	l.resolves(t, first)
}

// Nobody is heard by anybody there, or only two nodes are, of which nobody knows whose link is dead:
// who has the address keeps it. It is better to answer in vain than that nobody does.
func TestWhereAllHearNothingAllStaysAsItIs(t *testing.T) {
	for name, nodes := range map[string]int{"three nodes": 3, "two nodes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothAtOnce(t, func(t *testing.T, p plan) { allHearNothing(t, p, nodes) })
		})
	}
}

func allHearNothing(t *testing.T, p plan, nodes int) {
	l := newApartLab(t, p, nodes)
	l.start(t)
	first := l.nodes[0]
	l.meet(t)
	l.switches(t, "add table bridge cut; add chain bridge cut forward { type filter hook forward priority 0; }; "+
		"add rule bridge cut forward ether type 0x88b6 drop")
	time.Sleep(3 * detection) // what is wrong would happen
	l.resolves(t, first)
	for _, n := range l.nodes {
		if s, _ := n.client.State(); owns(s) != (n == first) {
			t.Errorf("%s has %v", n.name, s.Owned)
		}
	}
}

// The only candidate answers though it hears nobody on the link, and others do.
func TestTheOnlyCandidateAnswersOverALinkThatIsCutOff(t *testing.T) {
	t.Parallel()
	inBothAtOnce(t, onlyCandidate)
}

func onlyCandidate(t *testing.T, p plan) {
	l := newApartLab(t, p, 3)
	l.start(t)
	first := l.nodes[0]
	l.meet(t)
	for _, n := range l.nodes {
		table := l.table(n)
		table.Claims[l.vip] = desired.Candidacy{Candidates: []string{first.name}}
		if n != first { // it has another address on the link
			delete(table.Claims, l.vip)
			table.Elsewhere = []netip.Addr{l.vip}
			table.Claims[l.host(201)] = desired.Candidacy{Candidates: []string{l.nodes[1].name, l.nodes[2].name}}
		}
		n.say(table)
	}
	var nodes []string
	for _, n := range l.nodes[1:] {
		nodes = append(nodes, n.plug)
	}
	l.part(t, []string{first.plug}, nodes) // and not from the client
	time.Sleep(3 * detection)              // what is wrong would happen
	l.resolves(t, first)
}

// While links are lossy nobody takes them for dead again and again.
func TestALossyLinkDoesNotFlap(t *testing.T) {
	t.Parallel()
	inBothAtOnce(t, lossyLink)
}

func lossyLink(t *testing.T, p plan) {
	l := newApartLab(t, p, 3)
	l.start(t)
	first := l.nodes[0]
	l.switches(t, "add table bridge cut; add chain bridge cut forward { type filter hook forward priority 0; }; "+
		"add rule bridge cut forward ether type 0x88b6 numgen random mod 100 < 30 drop")
	moves := func(in time.Duration) (n int) {
		for until := time.Now().Add(in); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			if s, _ := first.client.State(); !owns(s) {
				n++
				first.until("owner again", owns)
			}
		}
		return n
	}
	const learning, then = 3 * time.Second, 20 * time.Second
	learnt, moved := moves(learning), moves(then)
	t.Logf("the address moved away %d times in the first %v, and %d times in %v after that", learnt, learning, moved, then)
	// At first all may find their links silent together, and be heard again one by one.
	if learnt > len(l.nodes) || moved > 1 {
		t.Error("a link that loses 30 % of all frames flaps")
	}
	l.resolves(t, first)
}
