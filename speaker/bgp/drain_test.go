package bgp

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestDrainWaitsForRouters: routers have the time that they are given to prefer others, and
// nobody waits where none has a route, or longer than he wants to.
func TestDrainWaitsForRouters(t *testing.T) {
	if runsApart(t) {
		return
	}
	s, p := newSpeaker(t), startPeer(t, "127.0.0.11:0", nil)
	want := map[string]desired.Session{"tor": {Identity: p.identity()}}
	drain := func(ctx context.Context, grace time.Duration) (took time.Duration) {
		t.Helper()
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- s.Drain(ctx, grace) }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatalf("draining for %v has not ended after %v", grace, patience)
		}
		return time.Since(began)
	}
	mustApply(t, s, want)
	waitFor(t, "a session", func() bool { return s.States()["tor"].Phase == Established })
	drain(t.Context(), time.Hour) // of no route
	want["tor"] = desired.Session{Identity: p.identity(), Routes: prefixes(vip)}
	mustApply(t, s, want)
	p.waitFor(t, vip)
	asked := func() bool {
		return slices.Contains(p.routes()[netip.MustParsePrefix(vip)].communities, uint32(packet.COMMUNITY_PLANNED_SHUT))
	}
	if asked() {
		t.Error("the router is asked to prefer others before")
	}
	const grace = time.Second
	if took := drain(t.Context(), grace); took < grace {
		t.Errorf("routers had %v to prefer others, want %v", took, grace)
	}
	waitFor(t, "the router is asked to prefer others", asked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	drain(ctx, time.Hour)
}

// TestDrainingSaysNothingTwice: a route may have the community of those that are about to go all along.
func TestDrainingSaysNothingTwice(t *testing.T) {
	if runsApart(t) {
		return
	}
	s, p := newSpeaker(t), startPeer(t, "127.0.0.11:0", func(p *peer) { p.asn = nodeASN })
	id := p.identity()
	id.PeerASN = nodeASN
	said := []uint32{7, gracefulShutdown}
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: map[netip.Prefix]desired.RouteAttrs{
		netip.MustParsePrefix(vip): {LocalPref: 200, Communities: said},
	}}})
	p.waitFor(t, vip)
	if err := s.Drain(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the router is asked to prefer others", func() bool { return p.routes()[netip.MustParsePrefix(vip)].localPref == 0 })
	if got := p.routes()[netip.MustParsePrefix(vip)].communities; !slices.Equal(got, said) {
		t.Errorf("communities %v, want %v", got, said)
	}
}
