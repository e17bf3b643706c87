package bgp

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestCommunitiesThatNoMessageHasRoomFor: as many as there may be reach the router, with all else that can be in a
// message, also when the node asks it to prefer others. A route with more is told, is there no more if it was,
// and nothing else is the worse for it.
func TestCommunitiesThatNoMessageHasRoomFor(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	peers := map[string]*peer{
		"eBGP":           startPeer(t, "127.0.0.11:0", nil),
		"AS of 16 bits":  startPeer(t, "127.0.0.12:0", func(p *peer) { p.old = true }),
		"iBGP":           startPeer(t, "127.0.0.13:0", func(p *peer) { p.asn = nodeASN }),
		"IPv6 next hops": startPeer(t, "[::1]:0", nil),
	}
	full := desired.RouteAttrs{LocalPref: 200, MED: new(uint32(70)), Prepend: 16, Bandwidth: 1000, Communities: []uint32{7, 8}}
	for n := range uint32(view.MostCommunityOctets / 12) {
		full.LargeCommunities = append(full.LargeCommunities, view.LargeCommunity{Global: 64512, Local1: n})
	}
	if octets := view.CommunityOctets(len(full.Communities), len(full.LargeCommunities)); octets != view.MostCommunityOctets {
		t.Fatalf("a full route has %d octets of communities, want %d", octets, view.MostCommunityOctets)
	}
	over := full
	over.Communities = []uint32{7, 8, 9}
	apply := func(attrs desired.RouteAttrs) {
		t.Helper()
		want := map[string]desired.Session{}
		for name, p := range peers {
			id := p.identity()
			id.PeerASN = p.asn
			want[name] = desired.Session{Identity: id, Routes: prefixes(vip2)}
			for _, prefix := range []string{vip, vip6} {
				want[name].Routes[netip.MustParsePrefix(prefix)] = attrs
			}
		}
		mustApply(t, s, want)
	}
	has := func(prefix string, communities []uint32) {
		t.Helper()
		for name, p := range peers {
			waitFor(t, name+" has all communities of "+prefix, func() bool {
				got := p.routes()[netip.MustParsePrefix(prefix)]
				return slices.Equal(got.communities, communities) && len(got.large) == len(full.LargeCommunities)
			})
		}
	}
	apply(full)
	has(vip, full.Communities)
	has(vip6, full.Communities)
	apply(over)
	for name, p := range peers {
		p.waitFor(t, vip2)
		state := s.States()[name]
		if len(state.Unannounced) != 2 || state.Advertised != 1 || state.Pending != 2 {
			t.Errorf("%s: state %+v", name, state)
		}
		for _, u := range state.Unannounced {
			if _, told := errors.AsType[tooLongError](u.Err); !told {
				t.Errorf("%s: %v", name, u)
			}
		}
	}
	apply(full)
	has(vip, full.Communities)
	if err := s.Drain(t.Context(), 0); err != nil {
		t.Error(err)
	}
	for _, prefix := range []string{vip, vip6} {
		has(prefix, append(slices.Clone(full.Communities), uint32(packet.COMMUNITY_PLANNED_SHUT)))
	}
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		if established, _ := peers[name].sessions(); established != 1 {
			t.Errorf("%s: the session came up %d times", name, established)
		}
	}
}
