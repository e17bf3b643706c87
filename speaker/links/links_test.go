package links_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/links"
)

var (
	vip  = netip.MustParseAddr("192.0.2.10")
	node = []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")}
)

func link(index int, name string, prefixes ...string) links.Link {
	l := links.Link{
		Index: index, Name: name, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)},
		Kind: "device", Up: true, Running: true, Broadcast: true,
	}
	for _, p := range prefixes {
		l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
	}
	return l
}

func with(l links.Link, change func(*links.Link)) links.Link {
	change(&l)
	return l
}

// TestNetworks: those that other hosts may be in, whatever the state of the links, but no link-local ones.
func TestNetworks(t *testing.T) {
	t.Parallel()
	all := links.NewSnapshot(
		link(1, "lo", "127.0.0.1/8", "::1/128", "203.0.113.1/32"), link(2, "eth0", "192.0.2.7/24", "192.0.2.8/24", "fd00:30::11/64", "fe80::1/64"),
		link(3, "eth1", "10.0.0.1/31", "169.254.1.1/16", "192.0.2.9/24"), with(link(4, "cni0", "10.244.1.1/24"), func(l *links.Link) { l.Up = false }),
	)
	want := "[10.0.0.0/31 10.244.1.0/24 192.0.2.0/24 fd00:30::/64]"
	if got := fmt.Sprint(all.Networks()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAnswering(t *testing.T) {
	onSubnet := link(2, "eth0", "192.0.2.1/24")
	onNode := link(3, "eth1", "198.51.100.1/24")
	elsewhere := link(4, "eth2", "203.0.113.1/24")
	down := func(l *links.Link) { l.Running = false }
	beside := func(l *links.Link) { l.Aside = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }
	for name, c := range map[string]struct {
		links []links.Link
		named []string
		want  []string
	}{
		"its subnet before the node's":      {links: []links.Link{onNode, onSubnet, elsewhere}, want: []string{"eth0"}},
		"every link with its subnet":        {links: []links.Link{onSubnet, link(9, "eth9", "192.0.2.2/25")}, want: []string{"eth0", "eth9"}},
		"the one by which it is routed":     {links: []links.Link{with(onSubnet, beside), link(9, "eth9", "192.0.2.2/24")}, want: []string{"eth9"}},
		"the routed one is down":            {links: []links.Link{with(onSubnet, beside), with(link(9, "eth9", "192.0.2.2/24"), down)}, want: []string{"eth0"}},
		"the routed one is down, of three":  {links: []links.Link{with(onSubnet, beside), with(link(8, "eth8", "192.0.2.3/24"), beside), with(link(9, "eth9", "192.0.2.2/24"), down)}, want: []string{"eth0"}},
		"both are named":                    {links: []links.Link{with(onSubnet, beside), link(9, "eth9", "192.0.2.2/24")}, named: []string{"eth0", "eth9"}, want: []string{"eth0", "eth9"}},
		"no subnet: the node's":             {links: []links.Link{elsewhere, onNode}, want: []string{"eth1"}},
		"neither":                           {links: []links.Link{elsewhere}},
		"the named ones only":               {links: []links.Link{onSubnet, onNode, elsewhere}, named: []string{"eth2"}, want: []string{"eth2"}},
		"several named, one missing":        {links: []links.Link{onSubnet, onNode}, named: []string{"eth1", "eth0", "eth7"}, want: []string{"eth0", "eth1"}},
		"the named one is missing":          {links: []links.Link{onSubnet}, named: []string{"eth7"}},
		"the named one is down":             {links: []links.Link{onSubnet, with(elsewhere, down)}, named: []string{"eth2"}},
		"its subnet is down: not the node":  {links: []links.Link{with(onSubnet, down), onNode}},
		"switched off":                      {links: []links.Link{with(onSubnet, func(l *links.Link) { l.Up, l.Running = false, false })}},
		"loopback":                          {links: []links.Link{with(onSubnet, func(l *links.Link) { l.Loopback = true })}},
		"no ARP":                            {links: []links.Link{with(onSubnet, func(l *links.Link) { l.NoARP = true })}},
		"point to point":                    {links: []links.Link{with(onSubnet, func(l *links.Link) { l.Broadcast = false })}},
		"InfiniBand":                        {links: []links.Link{with(onSubnet, func(l *links.Link) { l.MAC = make([]byte, 20) })}},
		"the port of a bridge, even named":  {links: []links.Link{with(link(2, "port"), func(l *links.Link) { l.Master = 5 }), bridge}, named: []string{"port"}},
		"the bridge over the port":          {links: []links.Link{with(link(2, "port"), func(l *links.Link) { l.Master = 5 }), bridge}, want: []string{"br0"}},
		"a member of a VRF":                 {links: []links.Link{with(onSubnet, func(l *links.Link) { l.Master = 6 }), vrf}, want: []string{"eth0"}},
		"the port of a master not seen yet": {links: []links.Link{with(onSubnet, func(l *links.Link) { l.Master = 7 })}},
	} {
		t.Run(name, func(t *testing.T) {
			got := links.NewSnapshot(c.links...).Answering(vip, c.named, node)
			if !sameNames(got, c.want) {
				t.Errorf("got %v, want %v", names(got), c.want)
			}
		})
	}
}

// TestConnects: subnets count whether or not anything comes through, as a cable that is out changes
// nothing about where a router is.
func TestConnects(t *testing.T) {
	s := links.NewSnapshot(link(2, "eth0", "192.0.2.1/24", "2001:db8::1/64"),
		with(link(3, "eth1", "198.51.100.1/24"), func(l *links.Link) { l.Up, l.Running = false, false }),
		with(link(4, "eth2", "203.0.113.1/24"), func(l *links.Link) { l.Master = vrf.Index }), vrf, link(7, "own", "192.0.3.1/32"),
		with(link(8, "tunnel", "2001:db8:2::1/128"), func(l *links.Link) { l.Peered = []netip.Prefix{netip.MustParsePrefix("2001:db8:2::1/64")} }))
	for address, want := range map[string]bool{
		"192.0.2.254": true, "2001:db8::ffff": true, "198.51.100.7": true, "203.0.113.7": false,
		"192.0.3.1": true, "192.0.3.2": false, "2001:db8:1::1": false, "2001:db8:2::2": true,
	} {
		if got := s.Connects(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

// TestNobodyAnswersForAPeersNetwork: behind the other end of a tunnel nobody asks.
func TestNobodyAnswersForAPeersNetwork(t *testing.T) {
	s := links.NewSnapshot(with(link(2, "tunnel", "2001:db8::1/128"), func(l *links.Link) { l.Peered = []netip.Prefix{netip.MustParsePrefix("2001:db8::1/64")} }))
	if got := s.Answering(netip.MustParseAddr("2001:db8::10"), nil, nil); len(got) != 0 {
		t.Errorf("answering on %v", names(got))
	}
}

func TestAnsweringIPv6(t *testing.T) {
	vip6 := netip.MustParseAddr("2001:db8::10")
	for name, c := range map[string]struct {
		links []links.Link
		named []string
		want  []string
	}{
		"its subnet before the node's": {links: []links.Link{
			link(2, "eth0", "2001:db8::1/128"), link(3, "eth1", "fe80::1/64", "2001:db8::7/64"),
		}, want: []string{"eth1"}},
		"no subnet: the node's":                    {links: []links.Link{link(2, "eth0", "2001:db8::1/128"), link(3, "eth1", "fe80::1/64")}, want: []string{"eth0"}},
		"no subnet: the node's of the other":       {links: []links.Link{link(2, "eth0", "198.51.100.1/24", "fe80::1/64")}, want: []string{"eth0"}},
		"the node's, without IPv6":                 {links: []links.Link{link(2, "eth0", "198.51.100.1/24")}},
		"the named one has a link-local address":   {links: []links.Link{link(2, "eth0", "fe80::1/64")}, named: []string{"eth0"}, want: []string{"eth0"}},
		"the named one has no IPv6":                {links: []links.Link{link(2, "eth0", "192.0.2.1/24")}, named: []string{"eth0"}},
		"one of the named ones has no IPv6":        {links: []links.Link{link(2, "eth0", "192.0.2.1/24"), link(3, "eth1", "fe80::1/64")}, named: []string{"eth0", "eth1"}, want: []string{"eth1"}},
		"its subnet is down: not the node's other": {links: []links.Link{with(link(2, "eth0", "2001:db8::7/64"), func(l *links.Link) { l.Running = false }), link(3, "eth1", "198.51.100.1/24", "fe80::1/64")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := links.NewSnapshot(c.links...).Answering(vip6, c.named, node)
			if !sameNames(got, c.want) {
				t.Errorf("got %v, want %v", names(got), c.want)
			}
		})
	}
}

var (
	bridge = with(link(5, "br0", "192.0.2.5/24"), func(l *links.Link) { l.Kind = "bridge" })
	vrf    = with(link(6, "red"), func(l *links.Link) { l.Kind, l.NoARP = "vrf", true })
)

func names(all []links.Link) []string {
	var n []string
	for _, l := range all {
		n = append(n, l.Name)
	}
	return n
}

func sameNames(all []links.Link, want []string) bool {
	got := names(all)
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

// Whatever the links are like: only links that can carry an answer are chosen,
// named ones win, and a link that goes down takes only itself out.
func TestAnsweringProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []links.Link
		for i := range rapid.IntRange(0, 6).Draw(t, "links") {
			l := link(i+1, string(rune('a'+i)))
			l.Prefixes = rapid.SliceOfN(rapid.SampledFrom([]netip.Prefix{
				netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("198.51.100.1/24"),
				netip.MustParsePrefix("203.0.113.1/24"), netip.MustParsePrefix("2001:db8::1/64"),
			}), 0, 3).Draw(t, "prefixes")
			l.Running, l.NoARP = rapid.Bool().Draw(t, "running"), rapid.Bool().Draw(t, "noarp")
			l.Master = rapid.IntRange(0, 3).Draw(t, "master")
			all = append(all, l)
		}
		named := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "z"}), 0, 2).Draw(t, "named")
		got := links.NewSnapshot(all...).Answering(vip, named, node)
		for _, l := range got {
			if !l.Up || !l.Running || l.NoARP || l.Loopback || l.Master != 0 {
				t.Fatalf("chose %+v", l)
			}
			if len(named) > 0 && l.Name != named[0] && l.Name != named[len(named)-1] {
				t.Fatalf("chose %s, named are %v", l.Name, named)
			}
		}
		if len(got) == 0 {
			return
		}
		all[got[0].Index-1].Running = false
		less := links.NewSnapshot(all...).Answering(vip, named, node)
		if !sameNames(less, names(got[1:])) {
			t.Fatalf("%s went down: %v became %v", got[0].Name, names(got), names(less))
		}
	})
}

// TestOnlySomeLinksAnswerAsAmongAll: a member of a VRF answers also where the VRF itself is left out.
func TestOnlySomeLinksAnswerAsAmongAll(t *testing.T) {
	vrf := link(2, "blue")
	vrf.Kind = "vrf"
	bridge := link(3, "br0")
	bridge.Kind = "bridge"
	member := with(link(4, "eth0", "192.0.2.1/24"), func(l *links.Link) { l.Master = 2 })
	slave := with(link(5, "eth1", "192.0.2.2/24"), func(l *links.Link) { l.Master = 3 })
	some := links.NewSnapshot(vrf, bridge, member, slave).Only(func(l links.Link) bool { return len(l.Prefixes) > 0 })
	if all := some.All(); len(all) != 2 {
		t.Errorf("kept %+v", all)
	}
	if got := some.Answering(vip, nil, nil); len(got) != 1 || got[0].Name != "eth0" {
		t.Errorf("answering on %+v, want eth0", got)
	}
	bridge.Kind = "vrf"
	if other := links.NewSnapshot(vrf, bridge, member, slave).Only(func(l links.Link) bool { return len(l.Prefixes) > 0 }); other.Equal(some) {
		t.Error("the same as where another one answers")
	}
}
