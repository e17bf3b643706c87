package blackbox_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestHostPortsKeepSources holds that marks of others do not have us masquerade what goes to a host port.
func TestHostPortsKeepSources(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.plugHostPorts()
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
		c.nft(`
table inet others {
	chain forwarded { type filter hook prerouting priority mangle; meta mark set $all; }
}`, "$all", fmt.Sprint(allBits))
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
				got, err := ask(c.senders(f)[0], protocol, netip.AddrPortFrom(a.Node, 8443), answerIn)
				if err != nil || got.Server != "p2" || got.Seen != a.Client.String() {
					t.Errorf("%s: %s: %s, want p2, which sees the client", f, protocol, said(got, err))
				}
			}
		}
	})
}

// hostPorts are those of a network plugin: on all addresses of the node.
const hostPorts = `
table inet hostports {
	chain prerouting {
		type nat hook prerouting priority -100
		jump hostports
	}
	chain output {
		type nat hook output priority -100
		jump hostports
	}
	chain hostports {
		fib daddr type local meta l4proto tcp th dport { 80, 8443 } dnat ip to $4:8081
		fib daddr type local meta l4proto udp th dport { 80, 8443 } dnat ip to $4:8081
		fib daddr type local meta l4proto tcp th dport { 80, 8443 } dnat ip6 to [$6]:8081
		fib daddr type local meta l4proto udp th dport { 80, 8443 } dnat ip6 to [$6]:8081
	}
}`

func (c *cluster) plugHostPorts() {
	c.t.Helper()
	c.nft(hostPorts, "$4", blackbox.Plan(addr.IPv4).P2.String(), "$6", blackbox.Plan(addr.IPv6).P2.String())
}

// TestHostPorts makes chains of a plugin with host ports in nf_tables, before ours and anew after them, at
// the priority that all have: what a Service has is the Service's, from outside and from this node, also with source
// ranges and policy Local, and all other addresses and ports of the node are the host port's.
func TestHostPorts(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		services := []blackbox.Service{
			{Name: "cluster", N: blackbox.FirstBound, Fill: blackbox.Services()[6].Fill},
			{Name: "admitted", N: blackbox.FirstBound + 1, Fill: blackbox.Services()[4].Fill},
		}
		want := blackbox.Forwarding(services...)
		check := func(when string, withHostPorts bool) {
			t.Helper()
			var all asking
			for _, f := range addr.Families() {
				a := blackbox.Plan(f)
				for _, s := range []sender{c.senders(f)[0], c.senders(f)[2], c.senders(f)[4]} { // client, node, p1
					for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
						for _, to := range []netip.Addr{a.Bound[0], a.Bound[1]} {
							all.add(func() error { return c.expect(s, protocol, netip.AddrPortFrom(to, 80), want) })
						}
						for _, to := range []netip.AddrPort{netip.AddrPortFrom(a.Node, 80), netip.AddrPortFrom(a.Bound[2], 80), netip.AddrPortFrom(a.Node, 8443)} {
							if !withHostPorts {
								continue
							}
							all.add(func() error {
								if got, err := ask(s, protocol, to, answerIn); err != nil || got.Server != "p2" || got.Port != blackbox.SecondPort {
									return fmt.Errorf("%s: %s: %s -> %s: %s, want the host port's pod", when, protocol, s.name, to, said(got, err))
								}
								return nil
							})
						}
					}
				}
			}
			if err := all.all(); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		c.plugHostPorts()
		c.Apply(want)
		check("the plugin was there first", true)
		c.Run("nft", "delete", "table", "inet", "hostports")
		c.plugHostPorts()
		c.Apply(want)
		check("the plugin came later", true)
		c.Apply(blackbox.Forwarding(services[0]))
		c.Apply(want)
		check("a Service came later", true)
		c.Restart()
		c.Run("nft", "delete", "table", "inet", "hostports")
		c.Apply(want)
		check("the plugin is gone", false)
		if tables := c.Run("nft", "list", "tables"); strings.Contains(tables, "fairlead-nat") {
			t.Errorf("what stood before the plugin's rules stays: %s", tables)
		}
		c.plugHostPorts()
		c.Apply(want)
		check("the plugin is back", true)
		c.Cleanup()
		if tables := c.Run("nft", "list", "tables"); strings.Contains(tables, "fairlead") {
			t.Errorf("left behind: %s", tables)
		}
	})
}
