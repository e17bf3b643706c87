package endedflows

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

var (
	vip4  = netip.MustParseAddr("198.51.100.1")
	vip6  = netip.MustParseAddr("2001:db8::1")
	other = netip.MustParseAddr("198.51.100.2")
)

// put puts a connection in a state into the connection table.
func put(t *testing.T, to netip.Addr, port uint16, state uint8) {
	t.Helper()
	client, inet := netip.MustParseAddr("192.0.2.9"), netlink.InetFamily(unix.AF_INET)
	if to.Is6() {
		client, inet = netip.MustParseAddr("2001:db8::9"), unix.AF_INET6
	}
	tuple := func(from, to netip.Addr, sport, dport uint16) netlink.IPTuple {
		return netlink.IPTuple{Protocol: unix.IPPROTO_TCP, SrcIP: from.AsSlice(), SrcPort: sport, DstIP: to.AsSlice(), DstPort: dport}
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, inet, &netlink.ConntrackFlow{
		FamilyType: uint8(inet), TimeOut: 600, ProtoInfo: &netlink.ProtoInfoTCP{State: state},
		Forward: tuple(client, to, port, 80), Reverse: tuple(to, client, 80, port),
	}); err != nil {
		t.Fatal(err)
	}
}

// entries are the destinations and client ports in the connection table.
func entries(t *testing.T) (all []string) {
	t.Helper()
	for _, inet := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, inet)
		if err != nil {
			t.Error(err)
		}
		for _, f := range flows {
			all = append(all, fmt.Sprint(f.Forward.DstIP, " from ", f.Forward.SrcPort))
		}
	}
	slices.Sort(all)
	return all
}

// owned are addresses that are this node's since then.
func owned(since time.Time, some ...netip.Addr) map[netip.Addr]time.Time {
	all := map[netip.Addr]time.Time{}
	for _, a := range some {
		all[a] = since
	}
	return all
}

// TestEndedConnectionsAreForgotten: those to an address that this node has taken, once for each time that it took it. What is
// not known to have ended stays, and so does what goes elsewhere.
func TestEndedConnectionsAreForgotten(t *testing.T) {
	netlab.NewHost(t, "node").Do(func() {
		deleted := map[addr.Family]int{}
		s := New(func(f addr.Family, n int) { deleted[f] += n }, blackbox.Quiet())
		for state := uint8(nl.TCP_CONNTRACK_SYN_SENT); state <= nl.TCP_CONNTRACK_CLOSE; state++ {
			for _, a := range []netip.Addr{vip4, vip6, other} {
				put(t, a, uint16(state), state)
			}
		}
		want := entries(t)
		ended := func(a netip.Addr) func(string) bool {
			return func(entry string) bool { return entry == fmt.Sprint(a, " from 7") || entry == fmt.Sprint(a, " from 8") }
		}
		sweep := func(owns map[netip.Addr]time.Time) {
			t.Helper()
			s.Owns(owns)
			if err := s.sweep(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, entries(t)); diff != "" {
				t.Error(diff)
			}
		}
		sweep(owned(time.Now()))
		first := time.Now()
		want = slices.DeleteFunc(want, ended(vip6))
		sweep(owned(first, vip6))
		want = slices.DeleteFunc(want, ended(vip4))
		sweep(owned(first, vip4, vip6))
		if diff := cmp.Diff(map[addr.Family]int{addr.IPv4: 2, addr.IPv6: 2}, deleted); diff != "" {
			t.Error(diff)
		}
		// What ends while the address is here is of no concern, until it has been elsewhere.
		put(t, vip4, 99, nl.TCP_CONNTRACK_TIME_WAIT)
		want = entries(t)
		sweep(owned(first, vip4, vip6))
		want = slices.DeleteFunc(want, func(entry string) bool { return entry == fmt.Sprint(vip4, " from 99") })
		sweep(owned(first.Add(time.Second), vip4, vip6))
	})
}

// TestSearchesRest: addresses that are taken all the time take a third of a processor, and none is forgotten.
func TestSearchesRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(func(addr.Family, int) {}, blackbox.Quiet())
		const takes = time.Second
		searches, last := 0, time.Time{}
		s.del = func(addr.Family, func(netip.Addr) bool) (int, error) {
			time.Sleep(takes)
			searches, last = searches+1, time.Now()
			return 0, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		const all = time.Minute
		for began := time.Now(); time.Since(began) < all; time.Sleep(10 * time.Millisecond) {
			s.Owns(owned(time.Now(), vip4))
		}
		at := time.Now()
		time.Sleep(2 * (1 + rest) * takes)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if most := int(all/takes)/(1+rest) + 2; searches > most || searches < most/2 || !last.After(at) {
			t.Errorf("%d searches of %v in %v, want %d at most; the last one %v after the last address", searches, takes, all, most, last.Sub(at))
		}
	})
}

// TestAFailureIsToldOnceAndTriedAgain: without the right, and with it.
func TestAFailureIsToldOnceAndTriedAgain(t *testing.T) {
	netlab.NewHost(t, "node").Do(func() {
		var log bytes.Buffer
		s := New(func(addr.Family, int) {}, slog.New(slog.NewTextHandler(&log, nil)))
		put(t, vip4, 1, nl.TCP_CONNTRACK_CLOSE)
		s.Owns(owned(time.Now(), vip4))
		blackbox.Powerless(t, func() {
			for range 2 {
				if err := s.sweep(); err == nil {
					t.Error("no error without the right")
				}
			}
		})
		if n := strings.Count(log.String(), "may hang"); n != 1 {
			t.Errorf("told %d times, want once: %s", n, &log)
		}
		if err := s.sweep(); err != nil || len(entries(t)) > 0 {
			t.Errorf("with the right: %v, left %v", err, entries(t))
		}
	})
}
