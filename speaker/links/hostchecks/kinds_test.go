package hostchecks_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
)

// What no kernel of a test has: interfaces that are wireless, or share a MAC.
func TestInterfacesThatLetThroughTooLittle(t *testing.T) {
	k := hostchecks.Kernel{
		Links: links.NewSnapshot(links.Link{Index: 2, Name: "wlan0", Kind: "device"}, links.Link{Index: 3, Name: "ipvl0", Kind: "ipvlan"}, links.Link{Index: 4, Name: "eth0", Kind: "device"}),
		Interfaces: map[string]hostchecks.Interface{
			"wlan0": {Selective: true}, "ipvl0": {}, "eth0": {},
		},
	}
	found := hostchecks.Find(k, map[netip.Addr]hostchecks.Address{
		vip6: {On: []string{"wlan0", "eth0"}}, vip4: {On: []string{"wlan0", "ipvl0"}},
	})
	for o, want := range map[hostchecks.Obstacle][]netip.Addr{
		{Kind: hostchecks.Selective, Interface: "wlan0"}: {vip4, vip6},
		{Kind: hostchecks.ByAddress, Interface: "ipvl0"}: {vip4},
	} {
		if !slices.Equal(found[o], want) {
			t.Errorf("%+v is of %v, want %v", o, found[o], want)
		}
	}
	if len(found) != 2 {
		t.Errorf("found %+v", found)
	}
}
