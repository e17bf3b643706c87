package flags

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/speaker/desired"
)

func TestPodDetection(t *testing.T) {
	for _, c := range []struct {
		says detection
		want desired.PodDetection
	}{
		{detection{mode: "ClusterCIDR"}, desired.PodDetection{}},
		{detection{mode: "ClusterCIDR", clusterCIDRs: "10.244.3.0/16, fd00::/48"}, desired.PodDetection{
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::/48")},
		}},
		{detection{mode: "NodeCIDR"}, desired.PodDetection{OwnNode: true}},
		{detection{mode: "BridgeInterface", bridge: "cbr0"}, desired.PodDetection{Links: desired.Links{Name: "cbr0"}}},
		{detection{mode: "InterfaceNamePrefix", prefix: "veth-12345678.9"}, desired.PodDetection{Links: desired.Links{Name: "veth-12345678.9", Prefix: true}}},
	} {
		got, err := c.says.parse()
		if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("%+v: %v (-want +got):\n%s", c.says, err, diff)
		}
	}
	for _, c := range []struct {
		says  detection
		names []string
	}{
		{detection{mode: "Clustercidr"}, []string{"Clustercidr", "InterfaceNamePrefix"}},
		{detection{mode: "ClusterCIDR", clusterCIDRs: "10.0.0.0"}, []string{"--cluster-cidrs", "10.0.0.0"}},
		{detection{mode: "NodeCIDR", clusterCIDRs: "10.0.0.0/8"}, []string{"--cluster-cidrs", "10.0.0.0/8", "NodeCIDR"}},
		{detection{mode: "ClusterCIDR", bridge: "cbr0"}, []string{"--pod-bridge-interface", "cbr0", "BridgeInterface"}},
		{detection{mode: "BridgeInterface", bridge: "cbr0", prefix: "veth"}, []string{"--pod-interface-name-prefix", "veth"}},
		{detection{mode: "BridgeInterface"}, []string{"--pod-bridge-interface"}},
		{detection{mode: "InterfaceNamePrefix"}, []string{"--pod-interface-name-prefix"}},
		{detection{mode: "BridgeInterface", bridge: "0123456789abcdef"}, []string{"0123456789abcdef"}},
		{detection{mode: "InterfaceNamePrefix", prefix: "veth+"}, []string{"veth+"}},
		{detection{mode: "InterfaceNamePrefix", prefix: "-j"}, []string{"-j"}},
		{detection{mode: "BridgeInterface", bridge: "a b"}, []string{"a b"}},
		{detection{mode: "BridgeInterface", bridge: "br0\n-j DROP"}, []string{`br0\n-j DROP`}},
	} {
		_, err := c.says.parse()
		for _, name := range c.names {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%+v: error %v, want one that names %s", c.says, err, name)
			}
		}
	}
}
