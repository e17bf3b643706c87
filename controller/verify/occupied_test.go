package verify_test

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/view"
)

// TestPoolsWithAddressesInUse: a pool with addresses of nodes, or ClusterIPs, is told.
func TestPoolsWithAddressesInUse(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddr
	pool := func(name string, age int64, prefix string) *view.Pool {
		return &view.Pool{Name: name, Created: time.Unix(age, 0), Ranges: []netipx.IPRange{netipx.RangeOfPrefix(netip.MustParsePrefix(prefix))}}
	}
	c := &view.Cluster{
		Pools: map[string]*view.Pool{
			"lan": pool("lan", 1, "192.0.2.0/24"), "six": pool("six", 4, "fd00::/8"), "wide": pool("wide", 2, "10.0.0.0/8"), "fine": pool("fine", 3, "203.0.113.0/24"),
		},
		Nodes: map[string]*view.Node{
			"a": {Name: "a", Addresses: []netip.Addr{at("192.0.2.12"), at("2001:db8::1")}}, "b": {Name: "b", Addresses: []netip.Addr{at("192.0.2.11")}},
		},
		Services: map[view.Ref]*view.Service{
			{Namespace: "shop", Name: "web"}: {ClusterIPs: []netip.Addr{at("10.96.0.9")}},
			{Namespace: "shop", Name: "api"}: {ClusterIPs: []netip.Addr{at("10.96.0.8"), at("fd00:10:96::8")}},
		},
		ClusterIPs:    map[view.Ref][]netip.Addr{{Namespace: "shop", Name: "inner"}: {at("10.96.0.7")}},
		ServiceRanges: []netip.Prefix{netip.MustParsePrefix("fd00:10:96::/112")},
	}
	want := []string{
		"IPAddressPool/lan: AddressesInUse: spec.addresses has 192.0.2.11, which is the address of a node, and is not given out: take the addresses of nodes out",
		"IPAddressPool/six: AddressesInUse: spec.addresses has addresses of fd00:10:96::/112, which ClusterIPs are from (ServiceCIDR), and which are not given out: take fd00:10:96::/112 out",
		"IPAddressPool/wide: AddressesInUse: spec.addresses has 10.96.0.7, which is a ClusterIP, and is not given out: take the range of ClusterIPs out",
	}
	isAdvice(t, verify.Check(c, maps.Collect(c.Occupied())), want)
}
