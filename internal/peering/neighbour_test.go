package peering_test

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/peering"
	"fairlead.dev/fairlead/internal/view"
)

// TestNeighbours: whether two peers are one router to it, surely or perhaps. Neither depends on which
// of them is asked.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddr
	first := view.BGPPeer{PeerAddress: at("192.0.2.1"), PeerPort: 179}
	changed := func(do func(*view.BGPPeer)) view.BGPPeer {
		p := first
		do(&p)
		return p
	}
	passive := func(port uint16) view.BGPPeer {
		return changed(func(p *view.BGPPeer) { p.Passive, p.PeerPort = true, port })
	}
	from := func(source string) view.BGPPeer {
		return changed(func(p *view.BGPPeer) { p.SourceAddress = at(source) })
	}
	over := func(eth string) view.BGPPeer { return view.BGPPeer{Interface: eth, PeerPort: 179} }
	for name, c := range map[string]struct {
		a, b      view.BGPPeer
		is, maybe bool
	}{
		"the same":                         {first, first, true, true},
		"of another AS and password":       {first, changed(func(p *view.BGPPeer) { p.PeerASN, p.Password = 64512, "secret" }), true, true},
		"one of them waits":                {first, passive(179), true, true},
		"another address":                  {first, changed(func(p *view.BGPPeer) { p.PeerAddress = at("192.0.2.2") }), false, false},
		"another port":                     {first, changed(func(p *view.BGPPeer) { p.PeerPort = 180 }), false, false},
		"another port, and one waits":      {first, passive(180), false, false},
		"another port, and both wait":      {passive(179), passive(180), false, true},
		"one says from where":              {first, from("192.0.2.11"), false, true},
		"both say so, and it is the same":  {from("192.0.2.11"), from("192.0.2.11"), true, true},
		"both say so, and it is not":       {from("192.0.2.11"), from("192.0.2.12"), false, false},
		"over one interface":               {over("eth1"), over("eth1"), true, true},
		"over two":                         {over("eth1"), over("eth2"), false, false},
		"by address and over an interface": {first, over("eth1"), false, false},
	} {
		a, b := peering.Of(&c.a), peering.Of(&c.b)
		if a.Is(b) != c.is || b.Is(a) != c.is {
			t.Errorf("%s: is one: %t and %t, want %t", name, a.Is(b), b.Is(a), c.is)
		}
		if a.MayBe(b) != c.maybe || b.MayBe(a) != c.maybe {
			t.Errorf("%s: may be one: %t and %t, want %t", name, a.MayBe(b), b.MayBe(a), c.maybe)
		}
	}
}
