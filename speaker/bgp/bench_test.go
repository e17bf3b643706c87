package bgp

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

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
		want[name] = desired.Session{Identity: p.identity(), Routes: manyRoutes(10_000)}
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
		want["a"].Routes[one] = desired.RouteAttrs{}
		mustApply(b, s, want)
		delete(want["a"].Routes, one)
		mustApply(b, s, want)
	}
	b.ReportMetric(float64(first.Milliseconds()), "ms-first-Apply")
}
