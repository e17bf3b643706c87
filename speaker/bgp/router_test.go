package bgp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// restartable makes the test binary a speaker process, for tests that kill it.
const restartable = "FAIRLEAD_BGP_TEST_SPEAK"

// toRouter is a session to the real router from one of this side's addresses.
func toRouter(source netip.Addr) desired.Identity {
	id := desired.Identity{
		MyASN: nodeASN, PeerASN: routerASN, PeerAddress: router4, SourceAddress: source, RouterID: node4,
		HoldTime: longHold, KeepaliveTime: longHold / 3, GracefulRestart: true,
		NextHop4: node4, NextHop6: node6,
	}
	if source.Is6() {
		id.PeerAddress = router6
	} else {
		id.RouterID = source
	}
	return id
}

// neighborLines configure a neighbor that may dial, for both families.
func neighborLines(addr netip.Addr, asn uint32, more ...string) string {
	lines := []string{
		fmt.Sprintf(" neighbor %v remote-as %d", addr, asn),
		fmt.Sprintf(" neighbor %v passive", addr),
	}
	for _, m := range more {
		lines = append(lines, fmt.Sprintf(" neighbor %v %s", addr, m))
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		lines = append(lines, " address-family "+family+" unicast", fmt.Sprintf("  neighbor %v activate", addr), " exit-address-family")
	}
	return strings.Join(lines, "\n") + "\n"
}

// watchKernel records every route that the router's kernel loses from now on.
func (r *router) watchKernel() (lost func() []netip.Prefix) {
	r.t.Helper()
	ns, err := netns.GetFromName(r.ns)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = ns.Close() })
	updates, done := make(chan netlink.RouteUpdate, 1000), make(chan struct{})
	if err := netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{Namespace: &ns}); err != nil {
		r.t.Fatal(err)
	}
	return func() (gone []netip.Prefix) {
		defer close(done)
		const last = "203.0.113.99/32"
		r.must("ip", "-n", r.ns, "route", "add", "blackhole", last)
		r.must("ip", "-n", r.ns, "route", "del", "blackhole", last)
		for update := range updates {
			if update.Type != unix.RTM_DELROUTE || update.Dst == nil {
				continue
			}
			prefix := netip.MustParsePrefix(update.Dst.String())
			if prefix.String() == last {
				return gone
			}
			gone = append(gone, prefix)
		}
		r.t.Fatal("the subscription to routes ended")
		return nil
	}
}

func (r *router) waitForKernel(prefix string, gateways ...string) {
	r.t.Helper()
	r.waitFor(fmt.Sprintf("the kernel routes %s to %v", prefix, gateways), func() bool {
		have := r.kernel(prefix)
		slices.Sort(have)
		return slices.Equal(have, gateways)
	})
}

func TestFRRBalancesWithdrawsAndChanges(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node4, nodeASN)+neighborLines(node4b, nodeASN))
	a, b := newSpeaker(t), newSpeaker(t)
	idA, idB := toRouter(node4), toRouter(node4b)
	idB.NextHop6 = netip.MustParseAddr("fd98::3")
	wantA := map[string]desired.Session{"tor": {Identity: idA, Routes: prefixes(vip, vip6)}}
	wantB := map[string]desired.Session{"tor": {Identity: idB, Routes: prefixes(vip, vip6)}}
	mustApply(t, a, wantA)
	mustApply(t, b, wantB)
	r.waitForKernel(vip, "10.98.0.2", "10.98.0.3")
	r.waitForKernel(vip6, "fd98::2", "fd98::3")

	// A new route on a running session.
	wantA["tor"].Routes[netip.MustParsePrefix(vip2)] = desired.RouteAttrs{Communities: []uint32{64512<<16 | 5}}
	start := time.Now()
	mustApply(t, a, wantA)
	r.waitForKernel(vip2, "10.98.0.2")
	t.Logf("Apply to the router's kernel: %v, of which FRR holds BGP changes back for 50ms", time.Since(start))
	paths := r.paths(vip2)
	if len(paths) != 1 || paths[0].Communities.String != "64512:5" || paths[0].Origin != "IGP" || paths[0].ASPath.String != "64512" {
		t.Errorf("%s: %+v", vip2, paths)
	}

	// Another community and none: the path is replaced, the route stays.
	lost := r.watchKernel()
	wantA["tor"].Routes[netip.MustParsePrefix(vip2)] = desired.RouteAttrs{Communities: []uint32{64512<<16 | 6}}
	mustApply(t, a, wantA)
	r.waitFor("community 64512:6", func() bool { p := r.paths(vip2); return len(p) == 1 && p[0].Communities.String == "64512:6" })
	wantA["tor"].Routes[netip.MustParsePrefix(vip2)] = desired.RouteAttrs{}
	mustApply(t, a, wantA)
	r.waitFor("no community", func() bool { p := r.paths(vip2); return len(p) == 1 && p[0].Communities.String == "" })
	if gone := lost(); len(gone) != 0 {
		t.Errorf("a change of communities took routes away: %v", gone)
	}

	// One node withdraws: the other goes on alone.
	delete(wantA["tor"].Routes, netip.MustParsePrefix(vip))
	mustApply(t, a, wantA)
	r.waitForKernel(vip, "10.98.0.3")

	// A planned stop takes the rest at once, although graceful restart was agreed.
	if !b.States()["tor"].GracefulRestart {
		t.Error("FRR did not agree to graceful restart")
	}
	start = time.Now()
	if err := b.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	r.waitForKernel(vip)
	r.waitForKernel(vip6, "fd98::2")
	t.Logf("planned stop: routes gone after %v", time.Since(start))
}

// TestFRRSeesAttributesAndAggregates reads in the router's table what it chooses by.
func TestFRRSeesAttributesAndAggregates(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node4, nodeASN))
	s := newSpeaker(t)
	attrs := desired.RouteAttrs{
		MED: new(uint32(70)), Prepend: 2, Communities: []uint32{0xffff0000, 0xffffff01},
		LargeCommunities: []view.LargeCommunity{{Global: 4200000000, Local1: 1, Local2: 2}},
	}
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: toRouter(node4), Routes: map[netip.Prefix]desired.RouteAttrs{
		netip.MustParsePrefix("192.0.2.0/24"): attrs, netip.MustParsePrefix("2001:db8:a::/64"): attrs,
	}}})
	r.waitForKernel("192.0.2.0/24", "10.98.0.2")
	r.waitForKernel("2001:db8:a::/64", "fd98::2")
	for _, prefix := range []string{"192.0.2.0/24", "2001:db8:a::/64"} {
		p := r.paths(prefix)
		if len(p) != 1 || p[0].MED == nil || *p[0].MED != 70 || p[0].ASPath.String != "64512 64512 64512" ||
			p[0].Communities.String != "graceful-shutdown no-export" || p[0].Large.String != "4200000000:1:2" {
			t.Errorf("%s: %+v", prefix, p)
		}
	}
}

// TestFRRWeighsNodesByLinkBandwidth has two nodes of which one can take three times as much,
// and then as much as the other: the router's kernel shares flows out so.
func TestFRRWeighsNodesByLinkBandwidth(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node4, nodeASN)+neighborLines(node4b, nodeASN))
	a, b := newSpeaker(t), newSpeaker(t)
	announce := func(s *Speaker, node netip.Addr, mbits uint32) {
		id := toRouter(node)
		if node == node4b {
			id.NextHop6 = netip.MustParseAddr("fd98::3")
		}
		attrs := desired.RouteAttrs{Bandwidth: mbits}
		mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: map[netip.Prefix]desired.RouteAttrs{
			netip.MustParsePrefix(vip): attrs, netip.MustParsePrefix(vip6): attrs,
		}}})
	}
	announce(b, node4b, 1000)
	for _, mbits := range []uint32{3000, 1000} {
		announce(a, node4, mbits)
		for prefix, gateways := range map[string][2]string{vip: {"10.98.0.2", "10.98.0.3"}, vip6: {"fd98::2", "fd98::3"}} {
			r.waitFor(fmt.Sprintf("%s goes to %s with %d and %s with 1000 Mbit/s", prefix, gateways[0], mbits, gateways[1]), func() bool {
				weights := r.weights(prefix)
				return weights[gateways[0]] > 0 && weights[gateways[0]]*1000 == weights[gateways[1]]*int(mbits)
			})
			want := fmt.Sprintf("LB:%d:%d", nodeASN, mbits*125_000)
			if paths := r.paths(prefix); !slices.ContainsFunc(paths, func(p path) bool { return strings.HasPrefix(p.Extended.String, want) }) {
				t.Errorf("%s: no path with %s: %+v", prefix, want, paths)
			}
		}
	}
}

// weights are those of the gateways of a prefix in the router's kernel.
func (r *router) weights(prefix string) map[string]int {
	r.t.Helper()
	out, err := exec.Command("ip", "-n", r.ns, "-j", "route", "show", prefix, "proto", "bgp").Output()
	if strings.Contains(prefix, ":") {
		out, err = exec.Command("ip", "-n", r.ns, "-6", "-j", "route", "show", prefix, "proto", "bgp").Output()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	var routes []struct {
		NextHops []struct {
			Gateway string `json:"gateway"`
			Weight  int    `json:"weight"`
		} `json:"nexthops"`
	}
	if err := json.Unmarshal(out, &routes); err != nil {
		r.t.Fatalf("%v in %q", err, out)
	}
	weights := map[string]int{}
	for _, route := range routes {
		for _, hop := range route.NextHops {
			weights[hop.Gateway] = hop.Weight
		}
	}
	return weights
}

func TestFRRKeepsRoutesOverAnIdentityChange(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node4, nodeASN)+neighborLines(node4b, nodeASN))
	s := newSpeaker(t)
	id := toRouter(node4)
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	r.waitForKernel(vip, "10.98.0.2")

	// Same neighbour, other timer: the connection closes, the route stays.
	lost := r.watchKernel()
	id.HoldTime = longHold + 3*time.Second
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	waitFor(t, "the new hold time is agreed", func() bool {
		state := s.States()["tor"]
		return state.Phase == Established && state.HoldTime == id.HoldTime
	})
	r.waitFor("the route is no longer stale", func() bool { p := r.paths(vip); return len(p) == 1 && !p[0].Stale })
	if gone := lost(); len(gone) != 0 {
		t.Errorf("routes were lost: %v", gone)
	}

	// Another source address is another neighbour: the old one is told.
	id.SourceAddress = node4b
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	r.waitForKernel(vip, "10.98.0.3")
	if n := r.neighbor(node4); n.State == "Established" {
		t.Errorf("the old session: %+v", n)
	}

	// Without graceful restart the routes go with the session and come back. Where the next
	// one comes at once nobody would see it: it is kept from that.
	id.GracefulRestart, id.PeerPort = false, 1
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	r.waitForKernel(vip)
	id.PeerPort = defaultPort
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	waitFor(t, "a session without graceful restart", func() bool {
		state := s.States()["tor"]
		return state.Phase == Established && !state.GracefulRestart
	})
	r.waitForKernel(vip, "10.98.0.3")
}

func TestFRRPassword(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node4, nodeASN, "password right"))
	s := newSpeaker(t)
	id := toRouter(node4)
	id.Password = "wrong"
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	waitFor(t, "the password is suspected", func() bool {
		return strings.Contains(s.States()["tor"].LastError, "password differs")
	})
	if got := r.kernel(vip); len(got) != 0 {
		t.Errorf("route %v with a wrong password", got)
	}
	id.Password = ""
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	waitFor(t, "a password is missed", func() bool {
		return strings.Contains(s.States()["tor"].LastError, "asks for a TCP MD5 password")
	})
	id.Password = "right"
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	r.waitForKernel(vip, "10.98.0.2")
}

// speakUntilKilled is the process that TestFRRKeepsRoutesOverARestart kills.
func speakUntilKilled() int {
	s := New(slog.New(slog.DiscardHandler))
	_, err := s.Apply(context.Background(), map[string]desired.Session{"tor": {Identity: toRouter(node4), Routes: prefixes(vip, vip2, vip6)}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	<-terminated
	if err := s.Close(context.Background(), false); err != nil {
		return 1
	}
	return 0
}

// TestFRRKeepsRoutesOverARestart kills a speaker process outright, and ends one
// as a rolling update does; another takes over.
func TestFRRKeepsRoutesOverARestart(t *testing.T) {
	t.Parallel()
	for name, death := range map[string]os.Signal{"killed": syscall.SIGKILL, "updated": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			r := startRouter(t, neighborLines(node4, nodeASN))
			speaker := exec.Command("/proc/self/exe")
			speaker.Env = append(os.Environ(), restartable+"=1")
			speaker.Stderr = t.Output()
			if err := speaker.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = speaker.Process.Kill(), speaker.Wait() }) // lest it write to a test that is over
			for _, prefix := range []string{vip, vip2} {
				r.waitForKernel(prefix, "10.98.0.2")
			}
			r.waitForKernel(vip6, "fd98::2")

			lost := r.watchKernel()
			if err := speaker.Process.Signal(death); err != nil {
				t.Fatal(err)
			}
			_ = speaker.Wait()
			r.waitFor("the route is kept as a stale one", func() bool { p := r.paths(vip); return len(p) == 1 && p[0].Stale })

			s := newSpeaker(t)
			mustApply(t, s, map[string]desired.Session{"tor": {Identity: toRouter(node4), Routes: prefixes(vip, vip6)}})
			r.waitForKernel(vip2) // what the new speaker does not announce is swept after End-of-RIB
			r.waitFor("the routes are no longer stale", func() bool {
				p, p6 := r.paths(vip), r.paths(vip6)
				return len(p) == 1 && !p[0].Stale && len(p6) == 1 && !p6[0].Stale
			})
			if gone := lost(); !slices.Equal(gone, []netip.Prefix{netip.MustParsePrefix(vip2)}) {
				t.Errorf("the router lost %v, want %s only", gone, vip2)
			}
		})
	}
}

// TestFRRPrefersOthersToANodeThatDrains has two nodes of which one leaves: the router sends
// it nothing new while its routes are still there, and loses none. At a router of our own
// AS and of another.
func TestFRRPrefersOthersToANodeThatDrains(t *testing.T) {
	t.Parallel()
	for name, asn := range map[string]uint32{"eBGP": nodeASN, "iBGP": routerASN} {
		t.Run(name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			r := startRouter(t, neighborLines(node4, asn)+neighborLines(node4b, asn))
			a, b := newSpeaker(t), newSpeaker(t)
			for s, node := range map[*Speaker]netip.Addr{a: node4, b: node4b} {
				id := toRouter(node)
				id.MyASN = asn
				mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: map[netip.Prefix]desired.RouteAttrs{
					netip.MustParsePrefix(vip): {LocalPref: 300, Communities: []uint32{nodeASN<<16 | 5}},
				}}})
			}
			r.waitForKernel(vip, "10.98.0.2", "10.98.0.3")
			lost := r.watchKernel()
			drained := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { drained <- a.Drain(ctx, patience) }()
			r.waitForKernel(vip, "10.98.0.3")
			paths := r.paths(vip)
			if len(paths) != 2 || !slices.ContainsFunc(paths, func(p path) bool { return p.Communities.String == "64512:5 graceful-shutdown" }) {
				t.Errorf("paths while it drains: %+v", paths)
			}
			cancel()
			if err := <-drained; err != nil {
				t.Error(err)
			}
			if err := a.Close(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			r.waitFor("its path is gone", func() bool { return len(r.paths(vip)) == 1 })
			r.waitForKernel(vip, "10.98.0.3")
			if gone := lost(); len(gone) != 0 {
				t.Errorf("the router lost %v", gone)
			}
		})
	}
}

// TestFRRDropsRoutesOfASilentSpeakerAtHoldTime cuts the node off without a
// word. Graceful restart must not keep the routes of a dead node.
func TestFRRDropsRoutesOfASilentSpeakerAtHoldTime(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node4, nodeASN))
	s := newSpeaker(t)
	id := toRouter(node4)
	id.HoldTime, id.KeepaliveTime = 6*time.Second, 2*time.Second
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	r.waitForKernel(vip, "10.98.0.2")
	if !s.States()["tor"].GracefulRestart {
		t.Error("graceful restart was not agreed")
	}
	// Frames to a hardware address that nobody has are the cut cable.
	r.must("ip", "neigh", "replace", "10.98.0.1", "lladdr", "02:00:00:00:00:99", "dev", "flbgp0", "nud", "permanent")
	start := time.Now()
	r.waitForKernel(vip) // which has less patience than graceful restart
	t.Logf("hold time %v: route gone after %v", id.HoldTime, time.Since(start))
	r.must("ip", "neigh", "del", "10.98.0.1", "dev", "flbgp0")
	r.waitForKernel(vip, "10.98.0.2")
}

func TestFRROverIPv6AndInternal(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node6, routerASN))
	s := newSpeaker(t)
	id := toRouter(node6)
	id.MyASN = routerASN
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: map[netip.Prefix]desired.RouteAttrs{
		netip.MustParsePrefix(vip6): {LocalPref: 250},
		netip.MustParsePrefix(vip):  {},
	}}})
	r.waitForKernel(vip6, "fd98::2")
	if p := r.paths(vip6); len(p) != 1 || p[0].LocalPref != 250 || p[0].ASPath.String != "Local" {
		t.Errorf("%s: %+v", vip6, p)
	}
	r.waitForKernel(vip, "10.98.0.2") // an IPv4 prefix on an IPv6 session, by its explicit next hop
}

// TestFRRThatComesLateAndRestarts has a router that restarts gracefully itself:
// its kernel keeps the routes, and what we send must not make it drop them.
func TestFRRThatComesLateAndRestarts(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, " bgp graceful-restart\n"+neighborLines(node4, nodeASN))
	config, err := os.ReadFile(r.dir + "/bgpd.conf")
	if err != nil {
		t.Fatal(err)
	}
	r.kill("bgpd")
	s := newSpeaker(t)
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: toRouter(node4), Routes: prefixes(vip)}})
	waitFor(t, "the router refuses", func() bool {
		return strings.Contains(s.States()["tor"].LastError, "connection refused")
	})
	r.start("bgpd", string(config))
	start := time.Now()
	r.waitForKernel(vip, "10.98.0.2")
	t.Logf("route in the kernel %v after bgpd started", time.Since(start))

	lost := r.watchKernel()
	was := s.States()["tor"].Established
	r.kill("bgpd")
	r.start("bgpd", string(config))
	start = time.Now()
	waitFor(t, "a second session", func() bool { return s.States()["tor"].Established > was })
	t.Logf("session back %v after bgpd restarted", time.Since(start))
	r.waitFor("the restarted router has the route", func() bool { return len(r.paths(vip)) == 1 })
	if gone := lost(); len(gone) != 0 {
		t.Errorf("the router lost %v", gone)
	}
}
