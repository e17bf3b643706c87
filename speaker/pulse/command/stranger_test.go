package command_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// begin starts the lab with nodes that answer for nothing yet.
func (l *lab) begin(t *testing.T) {
	t.Helper()
	for _, n := range l.nodes {
		n.startPulse()
		n.startAgent()
		table := l.table(n)
		table.Claims = nil
		n.say(table)
	}
	for _, n := range l.nodes {
		n.until("settled", func(s api.State) bool { return s.Settled && len(s.Alive) == len(l.nodes) })
	}
}

// stranger attaches a host whose kernel has the address.
func (l *lab) stranger(t *testing.T) *linkstest.Host {
	t.Helper()
	h := linkstest.NewHost(t)
	l.segment.Attach(h, "eth0", l.address())
	return h
}

// address is the one that moves, with its network.
func (l *lab) address() string { return netip.PrefixFrom(l.vip, l.lan.Bits()).String() }

// contested tells whether the host is told as having the address, and the address withheld.
func (l *lab) contested(by *linkstest.Host, withheld bool) func(api.State) bool {
	return func(s api.State) bool {
		c, is := s.Contested[l.vip]
		return is && c.Station == by.MAC("eth0").String() && c.Interface == "eth0" && c.Withheld == withheld && owns(s) != withheld
	}
}

func TestAnAddressThatAStrangerHasIsWithheld(t *testing.T) { inBoth(t, withhold) }

func withhold(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	l.begin(t)
	stranger := l.stranger(t)
	first, second := l.nodes[0], l.nodes[1]
	second.say(l.table(second))
	first.say(l.table(first))
	first.until("told that a stranger has the address", l.contested(stranger, true))
	if s, _ := second.client.State(); len(s.Contested) > 0 || owns(s) {
		t.Errorf("the second node says %+v", s)
	}
	// The stranger goes on undisturbed: nothing of ours was ever heard of.
	l.ask()
	for deadline := time.Now().Add(soon); !bytes.Equal(l.client.Neighbour("eth0", l.vip), stranger.MAC("eth0")); {
		if time.Now().After(deadline) {
			t.Fatalf("the client has the address at %s, want the stranger's %s", l.client.Neighbour("eth0", l.vip), stranger.MAC("eth0"))
		}
		time.Sleep(time.Millisecond)
	}
	stranger.DeleteAddress("eth0", l.address())
	took := first.until("owner", owns)
	t.Logf("the address was taken %v after the stranger was gone", took.Round(time.Millisecond))
	first.until("without a contest", func(s api.State) bool { return len(s.Contested) == 0 })
	l.neighbour(t, first)
}

// A new address that nobody has is answered for after a few probes, and one that moves
// without any. No hand-over is taken for a conflict.
func TestAFreeAddressIsTakenSoon(t *testing.T) { inBoth(t, takeSoon) }

func takeSoon(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	l.begin(t)
	first, second := l.nodes[0], l.nodes[1]
	second.say(l.table(second))
	begun := time.Now()
	first.say(l.table(first))
	first.until("owner", owns)
	took := time.Since(begun)
	if took < 75*time.Millisecond {
		t.Errorf("the address was taken after %v, without asking who has it", took)
	}
	l.resolves(t, first)
	t.Logf("a new address was answered for after %v", took.Round(time.Millisecond))

	// Now the other comes first, which never asked.
	turned := func(n *node) api.Table {
		table := l.table(n)
		claim := table.Claims[l.vip]
		claim.Candidates = []string{second.name, first.name}
		table.Claims[l.vip] = claim
		return table
	}
	if s := second.say(turned(second)); !owns(s) {
		t.Error("an address that moves waits")
	}
	first.say(turned(first))
	l.neighbour(t, second)
	first.say(l.table(first))
	second.say(l.table(second))
	l.neighbour(t, first)
	for _, n := range l.nodes {
		if s, _ := n.client.State(); len(s.Contested) > 0 {
			t.Errorf("%s takes a node for a stranger: %+v", n.name, s.Contested)
		}
	}
}

// An address that a stranger gives itself while it is ours stays ours: clients are told
// again where it is.
func TestAnAddressIsDefended(t *testing.T) { inBoth(t, defend) }

func defend(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	l.start(t)
	first := l.nodes[0]
	l.resolves(t, first)
	stranger := l.stranger(t)
	stranger.Ask(l.host(77)) // a question to all by which they learn where the asker is
	first.until("told of the stranger", l.contested(stranger, false))
	l.neighbour(t, first)
	if s, _ := l.nodes[1].client.State(); len(s.Contested) > 0 {
		t.Errorf("the node that does not answer tells of %+v", s.Contested)
	}
}

// An interface of a node has the address, be it of the one that is to answer, and no pulse claims it, as with
// keepalived.
func TestAnAddressOnAnInterfaceOfANodeIsWithheld(t *testing.T) { inBoth(t, occupy) }

func occupy(t *testing.T, p plan) {
	for holder := range 2 {
		const tries = 3
		for try := 1; !occupyBy(t, p, holder, try == tries); try++ {
			t.Log("the kernel of a busy machine answered later than probes wait: once more")
		}
	}
}

// occupyBy tells whether the address was probed in vain, since an interface of that node has it; the last time it has to
// be.
func occupyBy(t *testing.T, p plan, holder int, last bool) (withheld bool) {
	l := newLabOf(t, p, 2, patient...)
	l.begin(t)
	first, by := l.nodes[0], l.nodes[holder]
	by.AddAddress("eth0", l.address())
	for _, n := range l.nodes {
		n.say(l.table(n))
	}
	first.until("told that an interface has the address", func(s api.State) bool {
		c, is := s.Contested[l.vip]
		withheld = is && c.Withheld && c.Node == by.name && c.Station == by.mac().String() && !owns(s)
		return withheld || !last && owns(s)
	})
	if !withheld {
		return false
	}
	if s, _ := l.nodes[1].client.State(); len(s.Contested) > 0 || owns(s) {
		t.Errorf("the second node says %+v", s)
	}
	by.DeleteAddress("eth0", l.address())
	first.until("owner, as soon as the address is free", owns)
	return true
}
