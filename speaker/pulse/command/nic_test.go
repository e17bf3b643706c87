package command_test

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"
)

// The client does not ask in these tests: what it knows it was told, and gratuitous frames
// change an entry that it has.

// A card that is given another MAC while it carries an address.
func TestAChangedMACIsAnnouncedAtOnce(t *testing.T) { inBoth(t, changedMAC) }

func changedMAC(t *testing.T, p plan) {
	l := newLabOf(t, p, 1)
	l.start(t)
	n := l.nodes[0]
	l.resolves(t, n)
	for i := range 5 {
		mac := net.HardwareAddr{2, 0, 0, 0, 9, byte(i)}
		if err := n.Netlink.LinkSetHardwareAddr(n.Link("eth0"), mac); err != nil {
			t.Fatal(err)
		}
		t.Logf("another MAC: the client knew it after %v", l.neighbour(t, n).Round(time.Millisecond))
	}
}

// A cable that is in and out: each time that it is in for good the client knows the node which
// has the address, and no two nodes think that they do.
func TestALinkThatFlapsEndsWhereItBegan(t *testing.T) { inBoth(t, flappingLink) }

func flappingLink(t *testing.T, p plan) {
	l := newLabOf(t, p, 3)
	l.start(t)
	first := l.nodes[0]
	l.resolves(t, first)
	s := l.traffic(t)
	s.served(t, first, 20)
	for _, pause := range []time.Duration{0, 5 * time.Millisecond, 60 * time.Millisecond, 400 * time.Millisecond} {
		s.anew()
		for range 5 {
			l.segment.Pull(first.plug)
			time.Sleep(pause)
			l.segment.Plug(first.plug)
			time.Sleep(pause)
		}
		began := time.Now()
		first.until("owner", owns)
		for _, n := range l.nodes[1:] {
			n.until("without the address", ownsNot)
		}
		l.neighbour(t, first)
		took := time.Since(began)
		s.served(t, first, 20)
		t.Logf("five times out and in for %v: at its place %v later; the longest gap was %v", pause, took.Round(time.Millisecond), s.longestGap().Round(time.Millisecond))
	}
}

// A card that is put in: the node takes over what it is the first candidate for.
func TestANewCardIsAnsweredOnAtOnce(t *testing.T) { inBoth(t, newCard) }

func newCard(t *testing.T, p plan) {
	l := newApartLab(t, p, 3)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	index := first.Link("eth1").Attrs().Index
	if err := first.Netlink.LinkDel(first.Link("eth1")); err != nil {
		t.Fatal(err)
	}
	second.until("owner", owns)
	l.neighbour(t, second) // nobody asked
	first.plug = l.segment.Attach(first.Host, "eth1", netip.PrefixFrom(p.host(1), p.lan.Bits()).String())
	began := time.Now()
	if first.Link("eth1").Attrs().Index == index {
		t.Fatal("it is the same card")
	}
	first.until("owner", owns)
	second.until("without the address", ownsNot)
	l.neighbour(t, first)
	t.Logf("a new card: the client knew it after %v", time.Since(began).Round(time.Millisecond))
}

// An interface that was moved to another network namespace and back, or made anew with its index, while pulse stood
// still: all that it knows is that a link with this index and MAC was there before, and is there now.
func TestALinkWithTheIndexOfAFormerOneIsAnsweredOn(t *testing.T) { inBoth(t, sameIndex) }

func sameIndex(t *testing.T, p plan) {
	l := newLabOf(t, p, 1)
	l.start(t)
	n := l.nodes[0]
	l.resolves(t, n)
	for range 5 {
		n.signal(syscall.SIGSTOP)
		n.plug = l.segment.Replace(n.Host, "eth0", netip.PrefixFrom(p.host(1), p.lan.Bits()).String())
		n.signal(syscall.SIGCONT)
		n.until("owner", owns)
		l.resolves(t, n)
	}
}

// The first candidate is in no subnet of the address, and would answer on the interface with its
// InternalIP, where no client asks: the next one answers, which is in the subnet. It does
// not where that one cannot.
func TestNodesInTheSubnetComeFirst(t *testing.T) { inBoth(t, subnetFirst) }

func subnetFirst(t *testing.T, p plan) {
	l := newApartLab(t, p, 3)
	first, second := l.nodes[0], l.nodes[1]
	if err := first.Netlink.LinkDel(first.Link("eth1")); err != nil {
		t.Fatal(err)
	}
	for _, n := range l.nodes {
		n.startPulse()
		n.startAgent()
		n.say(l.table(n))
	}
	second.until("owner", owns)
	first.until("without the address", func(s api.State) bool { return ownsNot(s) && s.Settled && len(s.Unable) == 0 })
	l.resolves(t, second)

	l.segment.Pull(second.plug)
	third := l.nodes[2]
	third.until("owner", owns)
	l.segment.Pull(third.plug)
	first.until("owner, by its fallback", owns)
	l.segment.Plug(second.plug)
	second.until("owner", owns)
	first.until("without the address", ownsNot)
	l.resolves(t, second)
}

// A cable that is plugged in again: the node takes its addresses back from the one that answers for
// them meanwhile, and clients get replies all the time. While the cable was out the kernel asked in vain for those to
// whom the node sends, and must not wait with what it sends until it would ask again.
func TestAPluggedInCableLeavesNoGap(t *testing.T) { inBoth(t, pluggedIn) }

func pluggedIn(t *testing.T, p plan) {
	l := newLabOf(t, p, 3)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	s, asking := l.traffic(t), l.asking(t)
	oneOf(t, func() error {
		var worst time.Duration
		for range 4 {
			l.segment.Pull(first.plug)
			second.until("owner", owns)
			l.resolves(t, second)
			first.Ask(l.host(99))
			time.Sleep(1200 * time.Millisecond) // after which the kernel tells at once of a carrier
			s.anew()
			asking.anew()
			s.served(t, second, 20)
			l.segment.Plug(first.plug)
			first.until("owner", owns)
			second.until("without the address", ownsNot)
			s.served(t, first, 20)
			l.neighbour(t, first)
			unanswered, gap := asking.longestGap(t), s.longestGap()
			t.Logf("plugged in: nobody answered for %v at most, the client got no reply for %v", unanswered.Round(time.Millisecond), gap.Round(time.Millisecond))
			worst = max(worst, unanswered, gap)
		}
		if worst > detection/2 {
			return fmt.Errorf("no reply for %v", worst)
		}
		return nil
	})
}
