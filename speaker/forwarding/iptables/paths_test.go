package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
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

// TestManyRefusedPorts has the kernel refuse all ports of a large Service: others are served, and few of them are tried one by one, at
// first and again.
func TestManyRefusedPorts(t *testing.T) {
	c := newCluster(t, NFT)
	a := blackbox.Plan(addr.IPv4)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	const ports = 400
	for i := range ports {
		key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: "many"}, Name: fmt.Sprint(i), Protocol: view.TCP, Family: addr.IPv4}
		want.Ports[key] = desired.Port{
			ClusterIP: blackbox.Nth(a.ClusterIPs, 30), VIPs: []netip.Addr{blackbox.Nth(a.VIPs, 30)}, Port: uint16(1000 + i), Cluster: blackbox.At(blackbox.ServePort, a.P1),
			Restricted: true, SourceRanges: []netip.Prefix{blackbox.Plan(addr.IPv6).Nobody}, // iptables takes IPv4 alone
		}
	}
	last := blackbox.Forwarding(blackbox.Service{Name: "z-last", N: 31, Fill: func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1), true
	}})
	maps.Copy(want.Ports, last.Ports)
	for i := range 3 {
		before := blackbox.Generation(t, c.Node)
		missing, err := c.Try(want)
		if len(missing) != ports || len(outcome.Refused(err)) != ports {
			t.Fatalf("attempt %d: %d ports are missing and %d refused, want %d; %d bytes of errors", i, len(missing), len(outcome.Refused(err)), ports, len(err.Error()))
		}
		if made := blackbox.Generation(t, c.Node) - before; made > 200 {
			t.Errorf("attempt %d: %d transactions", i, made)
		} else {
			t.Logf("attempt %d: %d transactions", i, made)
		}
	}
	got, err := c.Client.Ask("tcp", netip.AddrPortFrom(blackbox.Nth(a.VIPs, 31), 80), blackbox.AnswerIn)
	if err != nil || got.Server != "p1" {
		t.Errorf("another Service: %v, %v, want an answer of p1", got, err)
	}
}
