package bgp

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

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
