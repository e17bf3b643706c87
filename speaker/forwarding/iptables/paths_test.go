package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestThePathsOfAPort counts how many rules the kernel comes by if it follows each rule that leads to a chain, as nf_tables does
// at each change: ranges and endpoints add up.
func TestThePathsOfAPort(t *testing.T) {
	const ranges, endpoints, addresses = 1000, 500, 3
	key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: "web"}, Protocol: view.TCP, Family: addr.IPv4}
	for _, policyLocal := range []bool{false, true} {
		p := desired.Port{
			ClusterIP: netip.MustParseAddr("10.96.0.1"), VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			ExternalIPs: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, Port: 80, Restricted: true, ExternalLocal: policyLocal, Anywhere: true,
		}
		for i := range endpoints {
			p.Cluster = append(p.Cluster, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), blackbox.ServePort))
		}
		p.Local = p.Cluster
		for i := range ranges {
			p.SourceRanges = append(p.SourceRanges, addr.HostPrefix(netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)})))
		}
		for _, legacy := range []bool{false, true} {
			out := style{family: addr.IPv4, mark: desired.MasqueradeMark, legacyLayout: legacy}.render(key, p)
			var follow func(chain string) int
			follow = func(chain string) int {
				n := 0
				for _, rule := range out.nat.chains[chain] {
					n += 1 + follow(leadsTo(rule))
				}
				return n
			}
			n := 0
			for _, to := range out.nat.services {
				n += 1 + follow(to.chain) + strings.Count(to.verdicts, "\n")
			}
			if most := ranges + 4*addresses*endpoints + 50; n > most {
				t.Errorf("policy Local %t, legacy %t: %d rules, want %d at most", policyLocal, legacy, n, most)
			}
		}
	}
}
