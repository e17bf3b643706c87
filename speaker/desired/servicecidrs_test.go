package desired_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestRangesOfClusterIPs: what no Service has in the ranges of ServiceCIDRs leads nowhere, unless
// another proxy serves it, or nodes and pods are there, too.
func TestRangesOfClusterIPs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*view.Cluster, *desired.Options)
		want   []netip.Prefix
		shared string
	}{
		"several": {func(c *view.Cluster, _ *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/24", "10.96.1.0/24", "fd00:96::/112")
		}, prefixes("10.96.0.0/23", "fd00:96::/112"), ""},
		"nobody tells them": {func(*view.Cluster, *desired.Options) {}, nil, ""},
		"a Service of another proxy": {func(c *view.Cluster, _ *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/30")
			s := service()
			s.Ref, s.ProxiedElsewhere, s.ClusterIPs = view.Ref{Namespace: "shop", Name: "other"}, true, ips("10.96.0.1")
			c.Services[s.Ref] = s
		}, prefixes("10.96.0.0/32", "10.96.0.2/31"), ""},
		"one that nodes have addresses of": {func(c *view.Cluster, _ *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/24", "203.0.113.0/24")
			c.Nodes["b"] = &view.Node{Name: "b", Addresses: ips("203.0.113.9")}
		}, prefixes("10.96.0.0/24"), "b"},
		"one that pods of a node have addresses of": {func(c *view.Cluster, _ *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/24", "10.97.0.0/24")
			c.Nodes["a"].PodCIDRs = prefixes("10.97.0.0/16")
		}, prefixes("10.96.0.0/24"), "a"},
		"one that pods have addresses of by the settings": {func(c *view.Cluster, o *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/24", "10.97.0.0/16")
			o.Pods.ClusterCIDRs = prefixes("10.97.8.0/24")
		}, prefixes("10.96.0.0/24"), "10.97.8.0/24"},
		"settings that name all private addresses": {func(c *view.Cluster, o *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/24")
			o.Pods.ClusterCIDRs = prefixes("10.0.0.0/8")
		}, prefixes("10.96.0.0/24"), ""},
		"one that the API server by the settings is in": {func(c *view.Cluster, o *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/30", "fd00:96::/126")
			o.APIServers = []netip.AddrPort{netip.MustParseAddrPort("10.96.0.2:6443")}
		}, prefixes("10.96.0.0/31", "10.96.0.3/32", "fd00:96::/126"), "10.96.0.2 of an API server"},
		"one that an API server is in": {func(c *view.Cluster, _ *desired.Options) {
			c.ServiceRanges = prefixes("fd00:96::/126")
			c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{{Namespace: "default", Name: "kubernetes"}: {endpoint("fd00:96::2", "")}})
		}, prefixes("fd00:96::/127", "fd00:96::3/128"), "fd00:96::2 of an API server"},
		"the ClusterIP of the API server": {func(c *view.Cluster, o *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/30")
			s := service()
			s.Ref, s.ClusterIPs = view.Ref{Namespace: "default", Name: "kubernetes"}, ips("10.96.0.1")
			c.Services[s.Ref] = s
			o.APIServers = []netip.AddrPort{netip.MustParseAddrPort("10.96.0.1:443")}
		}, prefixes("10.96.0.0/30"), ""},
		"one that a DNS server of the node is in": {func(c *view.Cluster, o *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/30")
			o.Resolvers = ips("192.0.2.53", "10.96.0.3")
		}, prefixes("10.96.0.0/31", "10.96.0.2/32"), "10.96.0.3 of a DNS server of this node"},
		"one that a router is in": {func(c *view.Cluster, _ *desired.Options) {
			c.ServiceRanges = prefixes("10.96.0.0/30")
			c.BGPPeers = map[string]*view.BGPPeer{"tor": {Name: "tor", PeerAddress: netip.MustParseAddr("10.96.0.0")}}
		}, prefixes("10.96.0.1/32", "10.96.0.2/31"), "10.96.0.0 of a router"},
	} {
		t.Run(name, func(t *testing.T) {
			c, o := cluster(service(), endpoint("10.0.0.1", "a"), endpoint("fd00::1", "b")), onNode("a")
			test.change(c, &o)
			node, problems := fresh(c, o)
			if got := node.Forwarding.ServiceRanges; !slices.Equal(got, test.want) {
				t.Errorf("the ranges are %v, want %v", got, test.want)
			}
			told := ""
			for _, p := range problems {
				if p.Reason == desired.ReasonRangeShared {
					told = p.Message
				}
			}
			if (told != "") != (test.shared != "") || !strings.Contains(told, test.shared) {
				t.Errorf("told is %q, want something about %q", told, test.shared)
			}
		})
	}
}
