package links_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
)

// TestACableComesBeforeAWirelessInterface has an interface of each kind in one subnet, the wireless one first, with metrics as
// NetworkManager and dhcpcd give them: the one that the kernel routes by is answered on, whichever was there before, and the
// other one while its cable is out.
func TestACableComesBeforeAWirelessInterface(t *testing.T) {
	h, segment := linkstest.NewHost(t), linkstest.NewSegment(t)
	segment.Attach(h, "wlan0", "192.0.2.1/24")
	plug := segment.Attach(h, "eth0", "192.0.2.2/24")
	w := watch(t, h)
	answers := func(name string) func(*links.Snapshot) bool {
		return func(s *links.Snapshot) bool {
			on := s.Answering(netip.MustParseAddr("192.0.2.200"), nil, nil)
			return len(on) == 1 && on[0].Name == name
		}
	}
	until(t, w, "the first route is of wlan0", answers("wlan0"))
	for name, metric := range map[string]int{"wlan0": 600, "eth0": 100} {
		index := h.Link(name).Attrs().Index
		routes, err := h.Netlink.RouteList(h.Link(name), netlink.FAMILY_V4)
		at := slices.IndexFunc(routes, func(r netlink.Route) bool { return r.LinkIndex == index && r.Scope == unix.RT_SCOPE_LINK })
		if err != nil || at < 0 {
			t.Fatalf("the route of %s among %v: %v", name, routes, err)
		}
		route := routes[at]
		route.Priority = metric
		if err := h.Netlink.RouteAdd(&route); err != nil {
			t.Fatal(err)
		}
		if err := h.Netlink.RouteDel(&routes[at]); err != nil {
			t.Fatal(err)
		}
	}
	until(t, w, "eth0 has the lower metric", answers("eth0"))
	segment.Pull(plug)
	until(t, w, "the cable is out", answers("wlan0"))
	segment.Plug(plug)
	until(t, w, "the cable is in again", answers("eth0"))
}
