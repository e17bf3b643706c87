package verify_test

import (
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/view"
)

// TestPoolsWithAddressesInUse: a pool with addresses that the cluster itself uses is told, with how many there are.
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
		PodRanges:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/15"), netip.MustParsePrefix("203.0.113.254/31"), netip.MustParsePrefix("fd00:10:244::/48")},
		Networks:      []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("fd00:30::/64")},
		APIServers:    []netip.Addr{at("192.0.2.9")},
		BGPPeers:      map[string]*view.BGPPeer{"tor": {Name: "tor", PeerAddress: at("192.0.2.1")}},
		ExternalIPs:   map[view.Ref][]netip.Addr{{Namespace: "shop", Name: "inner"}: {at("192.0.2.77"), at("192.0.2.99")}},
	}
	const pods = "which pods are from (podCIDRs of nodes, the Helm value forwarding.clusterCIDRs), and which are not given out: take "
	want := []string{
		"BGPPeer/tor: NoAdvertisement: nothing is announced to it: no BGPAdvertisement is for this peer on the nodes that it chooses; create one, or correct spec.peers and the nodeSelectors of both",
		"IPAddressPool/fine: AddressesInUse: spec.addresses has 2 addresses of 203.0.113.254/31, " + pods + "203.0.113.254/31 out",
		"IPAddressPool/lan: AddressesInUse: spec.addresses has 192.0.2.0, which is the first or the last address of 192.0.2.0/25, a network of nodes, and is not given out (2 such in all): take it out, or leave it so",
		"IPAddressPool/lan: AddressesInUse: spec.addresses has 192.0.2.1, which is an address of BGPPeer tor, and is not given out (1 such in all): take those of routers and nodes out",
		"IPAddressPool/lan: AddressesInUse: spec.addresses has 192.0.2.11, which is the address of node b, and is not given out (2 such in all): take the addresses of nodes out",
		"IPAddressPool/lan: AddressesInUse: spec.addresses has 192.0.2.77, which is in spec.externalIPs of Service shop/inner, and is not given out (2 such in all): " +
			"take it out here or there, or have a Service of type LoadBalancer ask for it",
		"IPAddressPool/lan: AddressesInUse: spec.addresses has 192.0.2.9, which is the address of an API server, and is not given out (1 such in all): take those of API servers out",
		"IPAddressPool/six: AddressesInUse: spec.addresses has 65536 addresses of fd00:10:96::/112, which ClusterIPs are from (ServiceCIDR), and which are not given out: take fd00:10:96::/112 out",
		"IPAddressPool/six: AddressesInUse: spec.addresses has 9223372036854775807 addresses of fd00:10:244::/48, " + pods + "fd00:10:244::/48 out",
		"IPAddressPool/six: AddressesInUse: spec.addresses has fd00:30::, which is the anycast address of the routers on fd00:30::/64, a network of nodes, and is not given out (1 such in all): take it out, or leave it so",
		"IPAddressPool/wide: AddressesInUse: spec.addresses has 10.96.0.7, which is the ClusterIP of Service shop/inner, and is not given out (3 such in all): take the range of ClusterIPs out",
		"IPAddressPool/wide: AddressesInUse: spec.addresses has 131072 addresses of 10.244.0.0/15, " + pods + "10.244.0.0/15 out",
	}
	pools := c.PoolsByAge()
	isAdvice(t, new(verify.Checker).Check(c, c.Occupied(func(a netip.Addr) *view.Pool { return view.PoolOf(pools, a) }, c.UsedRanges()), ages), want)
}
