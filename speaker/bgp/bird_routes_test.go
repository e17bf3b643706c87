package bgp

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestBIRD has BIRD 2 as the router, over both families, of our AS and of another.
func TestBIRD(t *testing.T) {
	t.Parallel()
	attrs := desired.RouteAttrs{
		LocalPref: 250, MED: new(uint32(70)), Prepend: 1, Communities: []uint32{0xffff0000, nodeASN<<16 | 5},
		LargeCommunities: []view.LargeCommunity{{Global: 4200000000, Local1: 1, Local2: 2}}, Bandwidth: 3000,
	}
	common := []string{"BGP.med: 70", "BGP.community: (65535,0) (64512,5)", "BGP.large_community: (4200000000, 1, 2)"}
	for name, test := range map[string]struct {
		node  netip.Addr
		asn   uint32
		lines []string
	}{
		// BIRD does not know the community: its last number is 3e9/8 as a float, 0x4db2d05e.
		"eBGP over IPv4": {node4, nodeASN, []string{"BGP.as_path: 64512 64512\n", "BGP.ext_community: (unknown 0x4004, 64512, 1303564382)"}},
		"eBGP over IPv6": {node6, nodeASN, []string{"BGP.as_path: 64512 64512\n", "BGP.ext_community: (unknown 0x4004, 64512, 1303564382)"}},
		"iBGP over IPv4": {node4, routerASN, []string{"BGP.as_path: \n", "BGP.local_pref: 250", "BGP.ext_community: (unknown 0x4004, 64999, 1303564382)"}},
		"iBGP over IPv6": {node6, routerASN, []string{"BGP.as_path: \n", "BGP.local_pref: 250", "BGP.ext_community: (unknown 0x4004, 64999, 1303564382)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			r := startBIRD(t, test.node, test.asn)
			s := newSpeaker(t)
			id := toRouter(test.node)
			id.MyASN = test.asn
			want := map[string]desired.Session{"tor": {Identity: id, Routes: map[netip.Prefix]desired.RouteAttrs{
				netip.MustParsePrefix(vip): attrs, netip.MustParsePrefix(vip6): attrs, netip.MustParsePrefix("203.0.113.0/24"): {},
			}}}
			mustApply(t, s, want)
			r.waitForKernel(vip, "10.98.0.2")
			r.waitForKernel(vip6, "fd98::2")
			r.waitForKernel("203.0.113.0/24", "10.98.0.2")
			for _, prefix := range []string{vip, vip6} {
				r.waitForAnswer("show route "+prefix+" all", append(test.lines, common...)...)
			}
			r.waitForAnswer("show protocols all node", "Established")
			if !s.States()["tor"].GracefulRestart {
				t.Error("BIRD did not agree to graceful restart")
			}
			delete(want["tor"].Routes, netip.MustParsePrefix(vip))
			mustApply(t, s, want)
			r.waitForKernel(vip)
			if err := s.Close(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			r.waitForKernel(vip6)
			r.waitForKernel("203.0.113.0/24")
		})
	}
}

// TestBIRDKeepsRoutesOverARestart closes the connection as a dying process does.
func TestBIRDKeepsRoutesOverARestart(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startBIRD(t, node4, nodeASN)
	first := newSpeaker(t)
	want := map[string]desired.Session{"tor": {Identity: toRouter(node4), Routes: prefixes(vip, vip6)}}
	mustApply(t, first, want)
	r.waitForKernel(vip, "10.98.0.2")
	r.waitForKernel(vip6, "fd98::2")
	lost := r.watchKernel()
	if err := first.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.waitForAnswer("show protocols all node", "Neighbor graceful restart active")
	second := newSpeaker(t)
	mustApply(t, second, want)
	r.waitForAnswer("show protocols all node", "Established")
	waitFor(t, "the session is up", func() bool { return second.States()["tor"].Phase == Established })
	if gone := lost(); len(gone) != 0 {
		t.Errorf("the router lost %v", gone)
	}
}
