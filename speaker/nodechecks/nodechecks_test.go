package nodechecks

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// TestSurvey looks at a node with two interfaces, of which each has a network with addresses that are
// answered for: by this node on the second, by others on the first.
func TestSurvey(t *testing.T) {
	t.Parallel()
	h := linkstest.NewHost(t)
	linkstest.NewSegment(t).Attach(h, "eth0", "192.0.2.1/24")
	linkstest.NewSegment(t).Attach(h, "eth1", "198.51.100.1/24")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "kube-ipvs0"
	h.Add(&netlink.Bridge{LinkAttrs: attrs})
	if err := h.Netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 0, 2, 254)}); err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr
	mine, theirs, elsewhere := address("198.51.100.200"), address("192.0.2.200"), address("192.0.2.201")
	for _, a := range []netip.Addr{mine, theirs, elsewhere} {
		h.AddAddress("kube-ipvs0", a.String()+"/32")
	}
	want := api.Table{
		NodeAddrs: []netip.Addr{address("192.0.2.1")},
		Claims: map[netip.Addr]desired.Candidacy{
			mine: {}, theirs: {Interfaces: []string{"eth1"}}, // which is another network's
		},
		Elsewhere: []netip.Addr{elsewhere},
	}
	state := api.State{Owned: map[netip.Addr]api.Ownership{mine: {Interfaces: []string{"eth1"}}}}
	look := func() (found map[hostchecks.Obstacle][]netip.Addr) {
		t.Helper()
		if err := h.Do(func() (err error) {
			found, err = obstaclesTo(want, state)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	h.Sysctl("ipv4/conf/eth1/rp_filter", "1")
	all := map[hostchecks.Obstacle][]netip.Addr{
		{Kind: hostchecks.ReversePath, Interface: "eth1", Via: "eth0"}: {mine},
		{Kind: hostchecks.Held, Interface: "eth0", Via: "kube-ipvs0"}:  {theirs, elsewhere},
		{Kind: hostchecks.Held, Interface: "eth1", Via: "kube-ipvs0"}:  {theirs},
	}
	if found := look(); !maps.EqualFunc(found, all, slices.Equal[[]netip.Addr]) {
		t.Errorf("found %+v, want %+v", found, all)
	}
	h.Sysctl("ipv4/conf/eth1/rp_filter", "2")
	h.Sysctl("ipv4/conf/all/arp_ignore", "1")
	if found := look(); len(found) > 0 {
		t.Errorf("still found %+v", found)
	}
}
