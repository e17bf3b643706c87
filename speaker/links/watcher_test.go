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
