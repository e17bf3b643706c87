package links_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
)

// watch runs a watcher in the host until the test ends.
func watch(t *testing.T, h *linkstest.Host) *links.Watcher {
	t.Helper()
	w := links.NewWatcher(testlog.New(t))
	w.Greets = true
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	done := h.Go(func() { err = w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		<-done
		if err != nil {
			t.Errorf("the watcher ended with %v", err)
		}
	})
	return w
}

// until waits for a snapshot of which the condition is true.
func until(t *testing.T, w *links.Watcher, what string, is func(*links.Snapshot) bool) *links.Snapshot {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		s := w.Snapshot()
		if s != nil && is(s) {
			return s
		}
		select {
		case <-w.Changed():
		case <-deadline:
			t.Fatalf("no snapshot with %s; the last one: %+v", what, s)
		}
	}
}

func named(s *links.Snapshot, name string) (links.Link, bool) {
	for _, l := range s.All() {
		if l.Name == name {
			return l, true
		}
	}
	return links.Link{}, false
}

func having(name string, is func(links.Link) bool) func(*links.Snapshot) bool {
	return func(s *links.Snapshot) bool {
		l, ok := named(s, name)
		return ok && is(l)
	}
}

func TestWatcherFollowsTheKernel(t *testing.T) {
	h, segment := linkstest.NewHost(t), linkstest.NewSegment(t)
	plug := segment.Attach(h, "eth0", "192.0.2.1/24")
	w := watch(t, h)
	up := func(l links.Link) bool { return l.Up && l.Running }
	s := until(t, w, "eth0 up", having("eth0", up))
	eth0, _ := named(s, "eth0")
	if lo, _ := named(s, "lo"); !lo.Loopback || eth0.Loopback || !eth0.Broadcast || eth0.NoARP || eth0.Kind != "veth" {
		t.Errorf("lo is %+v, eth0 is %+v", lo, eth0)
	}
	if !slices.Contains(eth0.Prefixes, netip.MustParsePrefix("192.0.2.1/24")) {
		t.Errorf("eth0 has %v", eth0.Prefixes)
	}
	if eth0.MAC.String() != h.MAC("eth0").String() {
		t.Errorf("eth0 has MAC %s, want %s", eth0.MAC, h.MAC("eth0"))
	}

	segment.Pull(plug)
	until(t, w, "eth0 without carrier", having("eth0", func(l links.Link) bool { return l.Up && !l.Running }))
	segment.Plug(plug)
	until(t, w, "eth0 up once more", having("eth0", func(l links.Link) bool { return up(l) && l.Ups == eth0.Ups+1 }))
	h.SetDown("eth0")
	until(t, w, "eth0 off", having("eth0", func(l links.Link) bool { return !l.Up }))
	h.SetUp("eth0")
	until(t, w, "eth0 on", having("eth0", func(l links.Link) bool { return up(l) && l.Ups == eth0.Ups+2 }))

	second, six := netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("2001:db8::1/64")
	h.AddAddress("eth0", second.String())
	h.AddAddress("eth0", six.String())
	has := func(p netip.Prefix) func(links.Link) bool {
		return func(l links.Link) bool { return slices.Contains(l.Prefixes, p) }
	}
	until(t, w, "a second address", having("eth0", has(second)))
	until(t, w, "an IPv6 address", having("eth0", has(six)))
	h.DeleteAddress("eth0", second.String())
	until(t, w, "no second address", having("eth0", func(l links.Link) bool { return !has(second)(l) }))

	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	if err := h.Netlink.LinkSetHardwareAddr(h.Link("eth0"), mac); err != nil {
		t.Fatal(err)
	}
	until(t, w, "another MAC", having("eth0", func(l links.Link) bool { return l.MAC.String() == mac.String() }))
}

// Neighbours that were asked for in vain while a cable was out are asked for at once when it is in
// again, and not when the kernel would ask the next time; those that answered stay known.
func TestNeighboursAreAskedForAtOnceAfterACableWasOut(t *testing.T) {
	for name, lan := range map[string]struct{ own, gone netip.Prefix }{
		"IPv4": {netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("192.0.2.9/24")},
		"IPv6": {netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("2001:db8::9/64")},
	} {
		t.Run(name, func(t *testing.T) {
			h, segment := linkstest.NewHost(t), linkstest.NewSegment(t)
			plug := segment.Attach(h, "eth0", lan.own.String())
			w := watch(t, h)
			up := func(l links.Link) bool { return l.Up && l.Running }
			until(t, w, "eth0 up", having("eth0", up))
			segment.Pull(plug)
			until(t, w, "eth0 without a carrier", having("eth0", func(l links.Link) bool { return !up(l) }))
			h.Ask(lan.gone.Addr())
			asked := func() bool {
				all, err := h.Netlink.NeighList(h.Link("eth0").Attrs().Index, netlink.FAMILY_ALL)
				if err != nil {
					t.Fatal(err)
				}
				return slices.ContainsFunc(all, func(n netlink.Neigh) bool { return n.IP.Equal(lan.gone.Addr().AsSlice()) })
			}
			if !asked() {
				t.Fatal("the kernel does not ask for the neighbour")
			}
			segment.Plug(plug)
			until(t, w, "eth0 up again", having("eth0", up))
			// Else the entry would stay: nobody answers.
			for deadline := time.Now().Add(20 * time.Second); asked(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the kernel still waits for the answer to a question that went nowhere")
				}
			}
		})
	}
}

// pair is a cable with both ends in one host.
func pair(name string) *netlink.Veth {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}
}

func TestWatcherFollowsLinksThatComeAndGo(t *testing.T) {
	h := linkstest.NewHost(t)
	w := watch(t, h)
	until(t, w, "lo", having("lo", func(links.Link) bool { return true }))
	h.Add(pair("d0"))
	h.AddAddress("d0", "192.0.2.1/24")
	first, _ := named(until(t, w, "d0", having("d0", func(l links.Link) bool { return len(l.Prefixes) > 0 })), "d0")
	if err := h.Netlink.LinkDel(h.Link("d0")); err != nil {
		t.Fatal(err)
	}
	gone := func(s *links.Snapshot) bool { _, ok := named(s, "d0"); return !ok }
	until(t, w, "no d0", gone)
	h.Add(pair("d0"))
	again, _ := named(until(t, w, "d0 again", having("d0", func(links.Link) bool { return true })), "d0")
	if again.Index == first.Index || len(again.Prefixes) != 0 {
		t.Errorf("the second d0 is %+v, the first was %+v", again, first)
	}

	// A port that enters and leaves a bridge is a link all the time, although
	// the bridge tells of its port as "deleted".
	h.Add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
	bridge := h.Link("br0")
	if err := h.Netlink.LinkSetMaster(h.Link("d0"), bridge); err != nil {
		t.Fatal(err)
	}
	until(t, w, "d0 as a port", having("d0", func(l links.Link) bool { return l.Master == bridge.Attrs().Index }))
	if err := h.Netlink.LinkSetNoMaster(h.Link("d0")); err != nil {
		t.Fatal(err)
	}
	until(t, w, "d0 free", having("d0", func(l links.Link) bool { return l.Master == 0 }))
	h.Add(pair("last"))
	s := until(t, w, "a later link", having("last", func(links.Link) bool { return true }))
	if gone(s) {
		t.Error("d0 was lost when it left the bridge")
	}
}

// A storm of notices overflows no state: at the end the snapshot is what the
// kernel has.
func TestWatcherSurvivesAStorm(t *testing.T) {
	h := linkstest.NewHost(t)
	w := watch(t, h)
	h.Add(pair("d0"))
	for i := range 200 {
		h.AddAddress("d0", fmt.Sprintf("10.0.%d.1/24", i))
		if i%2 == 1 {
			h.DeleteAddress("d0", fmt.Sprintf("10.0.%d.1/24", i))
		}
	}
	h.AddAddress("d0", "192.0.2.1/32")
	until(t, w, "100 addresses and the last one", having("d0", func(l links.Link) bool {
		return len(l.Prefixes) == 101 && slices.Contains(l.Prefixes, netip.MustParsePrefix("192.0.2.1/32"))
	}))
}

// pointToPoint is an address with a peer, as tunnels have them.
func pointToPoint(own, peer string) *netlink.Addr {
	ip := net.ParseIP(own)
	if four := ip.To4(); four != nil {
		ip = four
	}
	other, network, _ := net.ParseCIDR(peer)
	all := 8 * len(ip)
	return &netlink.Addr{
		IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(all, all)},
		Peer:  &net.IPNet{IP: other, Mask: network.Mask}, Flags: unix.IFA_F_NODAD,
	}
}

// TestAddressesWithAPeer: what an address with a peer connects the node to is known of one that was there
// before the watcher and of one that came later, and goes with it, be its peer another one by then.
func TestAddressesWithAPeer(t *testing.T) {
	h := linkstest.NewHost(t)
	h.Add(pair("d0"))
	h.SetUp("d0")
	six, later, four := pointToPoint("2001:db8::1", "2001:db8::2/64"), pointToPoint("2001:db8:1::1", "2001:db8:1::2/64"), pointToPoint("192.0.2.1", "192.0.2.2/24")
	add := func(a *netlink.Addr) {
		t.Helper()
		if err := h.Netlink.AddrAdd(h.Link("d0"), a); err != nil {
			t.Fatal(err)
		}
	}
	connects := func(a string) func(*links.Snapshot) bool {
		return func(s *links.Snapshot) bool { return s.Connects(netip.MustParseAddr(a)) }
	}
	add(six)
	w := watch(t, h)
	until(t, w, "the peer of an address that was there", connects("2001:db8::2"))
	add(later)
	add(four)
	until(t, w, "the peer of one that came", connects("2001:db8:1::2"))
	s := until(t, w, "the IPv4 address", connects("192.0.2.1"))
	if connects("192.0.2.2")(s) {
		t.Error("the node is connected to the peer of an IPv4 address, as for no FRR")
	}
	other := pointToPoint("2001:db8::1", "2001:db8::3/64")
	if err := h.Netlink.AddrReplace(h.Link("d0"), other); err != nil {
		t.Fatal(err)
	}
	d0, _ := named(s, "d0")
	for _, want := range []string{"192.0.2.1/32", "2001:db8::1/128", "2001:db8:1::1/128"} {
		if !slices.Contains(d0.Prefixes, netip.MustParsePrefix(want)) {
			t.Errorf("d0 has %v, want %s among them", d0.Prefixes, want)
		}
	}
	for _, gone := range []struct {
		address *netlink.Addr
		peer    string
	}{{other, "2001:db8::2"}, {later, "2001:db8:1::2"}} {
		if err := h.Netlink.AddrDel(h.Link("d0"), gone.address); err != nil {
			t.Fatal(err)
		}
		until(t, w, "no "+gone.peer, func(s *links.Snapshot) bool { return !connects(gone.peer)(s) })
	}
}

// TestAnAddressWithTwoPeers: one that a link has towards two others stays while one of them is left.
func TestAnAddressWithTwoPeers(t *testing.T) {
	h := linkstest.NewHost(t)
	h.Add(pair("d0"))
	w := watch(t, h)
	towards := []*netlink.Addr{pointToPoint("192.0.2.1", "192.0.2.2/32"), pointToPoint("192.0.2.1", "192.0.2.3/32")}
	own := func(l links.Link) bool {
		return slices.Equal(l.Prefixes, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")})
	}
	for _, a := range towards {
		if err := h.Netlink.AddrAdd(h.Link("d0"), a); err != nil {
			t.Fatal(err)
		}
	}
	until(t, w, "the address", having("d0", own))
	if err := h.Netlink.AddrDel(h.Link("d0"), towards[0]); err != nil {
		t.Fatal(err)
	}
	h.AddAddress("lo", "192.0.2.9/32") // by which it is known that the notice has come
	s := until(t, w, "the notice behind", having("lo", func(l links.Link) bool {
		return slices.Contains(l.Prefixes, netip.MustParsePrefix("192.0.2.9/32"))
	}))
	if !having("d0", own)(s) {
		d0, _ := named(s, "d0")
		t.Errorf("d0 has %v, and the kernel still has 192.0.2.1 towards 192.0.2.3", d0.Prefixes)
	}
	if err := h.Netlink.AddrDel(h.Link("d0"), towards[1]); err != nil {
		t.Fatal(err)
	}
	until(t, w, "no address", having("d0", func(l links.Link) bool { return len(l.Prefixes) == 0 }))
}

// TestOneLinkOfASegment: of two with a subnet it is known by which one the kernel routes it, also when that changes
// with the links.
func TestOneLinkOfASegment(t *testing.T) {
	for name, own := range map[string][2]string{"IPv4": {"192.0.2.1/24", "192.0.2.2/24"}, "IPv6": {"2001:db8::1/64", "2001:db8::2/64"}} {
		t.Run(name, func(t *testing.T) {
			h, segment := linkstest.NewHost(t), linkstest.NewSegment(t)
			segment.Attach(h, "eth0", own[0])
			segment.Attach(h, "eth1", own[1])
			w := watch(t, h)
			asked := netip.MustParsePrefix(own[0]).Addr().Next().Next().Next()
			answers := func(link string) func(*links.Snapshot) bool {
				return func(s *links.Snapshot) bool {
					on := s.Answering(asked, nil, nil)
					return len(on) == 1 && on[0].Name == link
				}
			}
			until(t, w, "the first one", answers("eth0"))
			h.DeleteAddress("eth0", own[0])
			until(t, w, "the second one alone", answers("eth1"))
			h.AddAddress("eth0", own[0])
			until(t, w, "the second one, by which the kernel routes now", answers("eth1"))
		})
	}
}
