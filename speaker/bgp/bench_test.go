package bgp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/desired"
)

// manyRoutes are n host routes.
func manyRoutes(n int) map[netip.Prefix]desired.RouteAttrs {
	routes := make(map[netip.Prefix]desired.RouteAttrs, n)
	for i := range n {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 10<<24|uint32(i))
		routes[netip.PrefixFrom(netip.AddrFrom4(a), 32)] = desired.RouteAttrs{}
	}
	return routes
}

// BenchmarkChange adds and removes one of 10,000 routes on two sessions.
func BenchmarkChange(b *testing.B) {
	s := newSpeaker(b)
	want := map[string]desired.Session{}
	for name, address := range map[string]string{"a": "127.0.0.31:0", "b": "127.0.0.32:0"} {
		p := startPeer(b, address, nil)
		want[name] = desired.Session{Identity: p.identity(), Routes: manyRoutes(10_000), Delta: desired.Delta[netip.Prefix]{Revision: 1}}
		defer waitFor(b, name+" has the routes", func() bool { return len(p.routes()) == 10_000 })
	}
	start := time.Now()
	mustApply(b, s, want)
	first := time.Since(start)
	waitFor(b, "both sessions are up", func() bool {
		return s.States()["a"].Advertised == 10_000 && s.States()["b"].Advertised == 10_000
	})
	one := netip.MustParsePrefix(vip)
	for b.Loop() {
		reroute(want, one, true)
		mustApply(b, s, want)
		reroute(want, one, false)
		mustApply(b, s, want)
	}
	b.ReportMetric(float64(first.Milliseconds()), "ms-first-Apply")
}

// reroute adds or removes a route of session a, and says that nothing else has changed.
func reroute(want map[string]desired.Session, prefix netip.Prefix, there bool) {
	session := want["a"]
	if delete(session.Routes, prefix); there {
		session.Routes[prefix] = desired.RouteAttrs{}
	}
	session.Since, session.Changed = session.Revision, map[netip.Prefix]struct{}{prefix: {}}
	session.Revision++
	want["a"] = session
}

// BenchmarkRoute measures the time from Apply with a new route until a router that does
// nothing else has read the UPDATE, and until the route is in the kernel of a real one; and
// the same for a route that goes. Beside no others, beside 10,000 that stay, and behind an
// Apply of 10,000 that has just begun. It reports medians.
func BenchmarkRoute(b *testing.B) {
	for _, others := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("wire/%d", others), func(b *testing.B) {
			p := startPeer(b, "127.0.0.33:0", nil)
			changeRoutes(b, p.identity(), others, func(prefix netip.Prefix, there bool) {
				for range p.updated {
					if _, has := p.routes()[prefix]; has == there {
						return
					}
				}
			})
		})
		b.Run(fmt.Sprintf("kernel/%d", others), func(b *testing.B) {
			r := startRouter(b, neighborLines(node4, nodeASN))
			changed := r.changes()
			changeRoutes(b, toRouter(node4), others, func(prefix netip.Prefix, there bool) {
				for update := range changed {
					if update.Dst != nil && update.Dst.String() == prefix.String() && (update.Type == unix.RTM_NEWROUTE) == there {
						return
					}
				}
			})
		})
	}
	b.Run("behind", func(b *testing.B) {
		p := startPeer(b, "127.0.0.33:0", nil)
		s, one := newSpeaker(b), netip.MustParsePrefix(vip)
		want := map[string]desired.Session{"a": {Identity: p.identity(), Routes: manyRoutes(0)}}
		mustApply(b, s, want)
		waitFor(b, "the session is up", func() bool { return s.States()["a"].Phase == Established })
		for b.Loop() {
			many := manyRoutes(10_000)
			mustApply(b, s, map[string]desired.Session{"a": {Identity: p.identity(), Routes: many}})
			many[one] = desired.RouteAttrs{}
			mustApply(b, s, map[string]desired.Session{"a": {Identity: p.identity(), Routes: many}})
			for {
				if _, has := p.routes()[one]; has {
					break
				}
				<-p.updated
			}
			b.StopTimer()
			mustApply(b, s, want)
			waitFor(b, "the routes are gone", func() bool { return len(p.routes()) == 0 })
			b.StartTimer()
		}
	})
}

// changeRoutes adds and removes routes beside others, and waits for each to be seen.
func changeRoutes(b *testing.B, id desired.Identity, others int, seen func(prefix netip.Prefix, there bool)) {
	s := newSpeaker(b)
	want := map[string]desired.Session{"a": {Identity: id, Routes: manyRoutes(others), Delta: desired.Delta[netip.Prefix]{Revision: 1}}}
	first := netip.MustParsePrefix("198.18.255.255/32")
	want["a"].Routes[first] = desired.RouteAttrs{}
	mustApply(b, s, want)
	seen(first, true)
	waitFor(b, "the session is up", func() bool { return s.States()["a"].Advertised == others+1 })
	time.Sleep(2 * time.Second) // until the router has nothing else to do
	var come, gone []time.Duration
	for n := 0; n < 25 || b.Loop(); n++ { // who has said that it is enough is not asked again
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}), 32)
		began := time.Now()
		reroute(want, prefix, true)
		mustApply(b, s, want)
		seen(prefix, true)
		come = append(come, time.Since(began))
		began = time.Now()
		reroute(want, prefix, false)
		mustApply(b, s, want)
		seen(prefix, false)
		gone = append(gone, time.Since(began))
	}
	for name, times := range map[string][]time.Duration{"come-ms": come, "gone-ms": gone} {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, name)
	}
}

// changes are those of the routes in the router's kernel, from now on.
func (r *router) changes() <-chan netlink.RouteUpdate {
	r.t.Helper()
	ns, err := netns.GetFromName(r.ns)
	if err != nil {
		r.t.Fatal(err)
	}
	updates, done := make(chan netlink.RouteUpdate, 1000), make(chan struct{})
	r.t.Cleanup(func() { close(done); _ = ns.Close() })
	if err := netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{Namespace: &ns}); err != nil {
		r.t.Fatal(err)
	}
	return updates
}
