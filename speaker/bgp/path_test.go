package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

func TestWhatRoutersChooseBy(t *testing.T) {
	if runsApart(t) {
		return
	}
	for name, test := range map[string]struct {
		asn  uint32
		path []uint32
	}{
		"eBGP": {routerASN, []uint32{nodeASN, nodeASN, nodeASN}},
		"iBGP": {nodeASN, nil}, // our own ASN in a path would have the router refuse it
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpeaker(t)
			p := startPeer(t, "127.0.0.11:0", func(p *peer) { p.asn = test.asn })
			id := p.identity()
			id.PeerASN = test.asn
			all := desired.RouteAttrs{
				MED: new(uint32(70)), Prepend: 2, Communities: []uint32{0xffffff01},
				LargeCommunities: []view.LargeCommunity{{Global: 4200000000, Local1: 1, Local2: 2}, {Global: 64512}},
			}
			want := map[string]desired.Session{"tor": {Identity: id, Routes: map[netip.Prefix]desired.RouteAttrs{
				netip.MustParsePrefix("192.0.2.0/24"):       all,
				netip.MustParsePrefix("2001:db8:a::/64"):    all,
				netip.MustParsePrefix("198.51.100.0/24"):    {MED: new(uint32)},
				netip.MustParsePrefix("2001:db8:b::10/128"): {},
			}}}
			mustApply(t, s, want)
			p.waitFor(t, "192.0.2.0/24", "2001:db8:a::/64", "198.51.100.0/24", "2001:db8:b::10/128")
			for _, prefix := range []string{"192.0.2.0/24", "2001:db8:a::/64"} {
				got := p.routes()[netip.MustParsePrefix(prefix)]
				if got.med != 70 || !slices.Equal(got.asPath, test.path) || !slices.Equal(got.communities, all.Communities) ||
					!slices.Equal(got.large, []string{"4200000000:1:2", "64512:0:0"}) {
					t.Errorf("%s: %+v", prefix, got)
				}
			}
			for prefix, med := range map[string]int{"198.51.100.0/24": 0, "2001:db8:b::10/128": -1} {
				if got := p.routes()[netip.MustParsePrefix(prefix)]; got.med != med || got.large != nil {
					t.Errorf("%s: %+v, want MED %d (-1: none)", prefix, got, med)
				}
			}
			// A change of each replaces the path on the same session.
			for i, change := range []func(*desired.RouteAttrs){
				func(a *desired.RouteAttrs) { a.MED = new(uint32(71)) },
				func(a *desired.RouteAttrs) { a.MED = nil },
				func(a *desired.RouteAttrs) { a.Prepend = 1 },
				func(a *desired.RouteAttrs) { a.LargeCommunities = a.LargeCommunities[:1] },
			} {
				attrs := want["tor"].Routes[netip.MustParsePrefix("192.0.2.0/24")]
				change(&attrs)
				want["tor"].Routes[netip.MustParsePrefix("192.0.2.0/24")] = attrs
				mustApply(t, s, want)
				waitFor(t, fmt.Sprintf("change %d", i), func() bool {
					got := p.routes()[netip.MustParsePrefix("192.0.2.0/24")]
					return (got.med == -1) == (attrs.MED == nil) && (attrs.MED == nil || got.med == int(*attrs.MED)) &&
						len(got.large) == len(attrs.LargeCommunities) && (test.path == nil || len(got.asPath) == attrs.Prepend+1)
				})
			}
			if established, _ := p.sessions(); established != 1 {
				t.Errorf("the session was restarted %d times", established-1)
			}
		})
	}
}
