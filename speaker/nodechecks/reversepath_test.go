package nodechecks

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/report"
)

// TestRoutersOnAFilteredInterface has sessions with routers on two interfaces, of which the first leads to all clients.
func TestRoutersOnAFilteredInterface(t *testing.T) {
	t.Parallel()
	h := linkstest.NewHost(t)
	linkstest.NewSegment(t).Attach(h, "eth0", "192.0.2.1/24")
	linkstest.NewSegment(t).Attach(h, "eth1", "198.51.100.1/24", "2001:db8:1::1/64")
	if err := h.Netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 0, 2, 254)}); err != nil {
		t.Fatal(err)
	}
	h.AddAddress("lo", "203.0.113.1/32")
	session := func(from string, change func(*bgp.State)) bgp.State {
		s := bgp.State{Phase: bgp.Established, Advertised: 1, LocalAddress: netip.MustParseAddr(from), Negotiated: bgp.Negotiated{IPv4: true, IPv6: true}}
		change(&s)
		return s
	}
	as := func(*bgp.State) {}
	finds := func(s bgp.State, want ...string) {
		t.Helper()
		if err := h.Do(func() error {
			found, err := filtered(map[string]bgp.State{"first": session("192.0.2.1", as), "second": s})
			if len(found) > 1 || (len(found) == 1) != (len(want) > 0) {
				t.Errorf("%v: found %+v, want %q", s.LocalAddress, found, want)
			}
			for _, f := range found {
				for _, words := range want {
					if f.Reason != report.ReasonReversePathFiltered || !strings.Contains(f.Message, words) {
						t.Errorf("%v: found %+v, want %q", s.LocalAddress, f, words)
					}
				}
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	unnumbered := session("fe80::1%eth1", as)
	finds(session("198.51.100.1", as))
	h.Sysctl("ipv4/conf/eth1/rp_filter", "1")
	strict := []string{"on eth1", "leave by eth0", "net.ipv4.conf.eth1.rp_filter=2"}
	finds(session("198.51.100.1", as), strict...)
	finds(session("2001:db8:1::1", as), strict...)
	finds(unnumbered, strict...)
	finds(session("203.0.113.1", as)) // packets may come by any interface
	finds(session("198.51.100.1", func(s *bgp.State) { s.Phase = bgp.Active }))
	finds(session("198.51.100.1", func(s *bgp.State) { s.Advertised = 0 }))
	finds(session("2001:db8:1::1", func(s *bgp.State) { s.IPv4 = false })) // there is no such filter
	h.Sysctl("ipv4/conf/eth1/rp_filter", "2")
	finds(session("198.51.100.1", as))
	finds(unnumbered)
	h.DeleteAddress("eth1", "198.51.100.1/24")
	finds(unnumbered, "on eth1", "eth1 has no IPv4 address", "net.ipv4.conf.eth1.rp_filter=0")
	h.Sysctl("ipv4/conf/eth1/rp_filter", "0")
	finds(unnumbered)
}
