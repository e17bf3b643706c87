package blackbox_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// answers asks and tells whether this server answered.
func (c *cluster) answers(s sender, protocol view.Protocol, to netip.AddrPort, server string) error {
	got, err := ask(s, protocol, to, answerIn)
	if err != nil || got.Server != server {
		return fmt.Errorf("%s: %s -> %s: %s, want an answer of %s", protocol, s.name, to, said(got, err), server)
	}
	return nil
}

// TestListenersBesideNodePorts holds that a process of the node that listens on a
// NodePort's number, at an address where NodePorts do not answer, is left alone:
// whether the Service has endpoints, has none, or has them elsewhere.
func TestListenersBesideNodePorts(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.Apply(everyKind())
		var all asking
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			senders := c.senders(f)
			for _, n := range []uint16{30001, 30003, 30004} {
				at := netip.AddrPortFrom(a.Aside, n)
				c.Node.ServeAt("process", at)
				for _, s := range senders {
					for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
						all.add(func() error { return c.answers(s, protocol, at, "process") })
					}
				}
			}
		}
		all.report(t)
	})
}

// TestNodePortsEverywhere holds that with NodePorts on all addresses they answer on
// all that the node has, on one that comes later too, and not on loopback ones.
func TestNodePortsEverywhere(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		want.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		c.Apply(want)
		var all asking
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			loopback, late := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.77")
			if f == addr.IPv6 {
				loopback, late = netip.IPv6Loopback(), netip.MustParseAddr("2001:db8::77")
			}
			c.Node.Addr("lan", addr.HostPrefix(late).String())
			c.Node.ServeAt("process", netip.AddrPortFrom(loopback, 30007))
			for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
				for _, at := range []netip.Addr{a.Node, a.Aside, a.Bound[0], late} {
					all.add(func() error { return c.answers(c.senders(f)[0], protocol, netip.AddrPortFrom(at, 30007), "p1") })
				}
				itself := sender{"node", c.Node, loopback}
				all.add(func() error { return c.answers(itself, protocol, netip.AddrPortFrom(loopback, 30007), "process") })
			}
		}
		all.report(t)
	})
}

// TestVIPsBeatNodePorts has Services on addresses of the node with the number of a
// NodePort of another Service: one that serves, one that has no endpoints and one
// that does not admit the sender.
func TestVIPsBeatNodePorts(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		on := func(name string, n byte, fill func(a blackbox.Addresses, p *desired.Port)) blackbox.Service {
			return blackbox.Service{Name: name, N: n, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Port, p.NodePort, p.VIPs = 30001, 0, nil
				fill(a, p)
			}}
		}
		want := blackbox.Forwarding(
			blackbox.Service{Name: "node-ports", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1), true
			}},
			on("serves", 2, func(a blackbox.Addresses, p *desired.Port) {
				p.ExternalIPs = []netip.Addr{a.Node}
				p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P2), true
			}),
			on("serves-nobody", 3, func(a blackbox.Addresses, p *desired.Port) { p.ExternalIPs = []netip.Addr{a.Aside} }),
			on("elsewhere", 4, func(a blackbox.Addresses, p *desired.Port) {
				p.VIPs = []netip.Addr{a.Bound[0]}
				p.Cluster, p.Anywhere, p.ExternalLocal = blackbox.At(blackbox.ServePort, a.P3), true, true
			}),
			on("admits-pods", 5, func(a blackbox.Addresses, p *desired.Port) {
				p.VIPs = []netip.Addr{a.Bound[1]}
				p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P3), true
				p.Restricted, p.SourceRanges = true, []netip.Prefix{a.Pods}
			}),
		)
		want.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		c.Apply(want)
		for turn := range c.senders(addr.IPv4) {
			if err := c.askAbout(turn, want); err != nil {
				t.Error(err)
			}
		}
		var all asking
		for _, f := range addr.Families() {
			to := netip.AddrPortFrom(blackbox.Plan(f).Node, 30001)
			for _, s := range c.senders(f) {
				all.add(func() error { return c.answers(s, view.TCP, to, "p2") })
			}
		}
		all.report(t)
	})
}

// TestProtocolsAreApart has one address and port in TCP and UDP, of two Services and
// with endpoints of their own; and each of the two alone.
func TestProtocolsAreApart(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding()
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			port := func(n byte, endpoint netip.Addr) desired.Port {
				return desired.Port{
					ClusterIP: blackbox.Nth(a.ClusterIPs, n), VIPs: []netip.Addr{blackbox.Nth(a.VIPs, n)},
					Port: 53, NodePort: 30053 + uint16(n), Cluster: blackbox.At(blackbox.ServePort, endpoint), Anywhere: true,
				}
			}
			want.Ports[blackbox.Key("dns-tcp", view.TCP, f)] = port(1, a.P1)
			want.Ports[blackbox.Key("dns-udp", view.UDP, f)] = port(1, a.P2)
			want.Ports[blackbox.Key("tcp", view.TCP, f)] = port(2, a.P1)
			want.Ports[blackbox.Key("udp", view.UDP, f)] = port(3, a.P2)
		}
		c.Apply(want)
		var all asking
		for _, f := range addr.Families() {
			to := destinations(f, []desired.Forwarding{want})
			for _, s := range c.senders(f) {
				for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
					for _, to := range slices.Concat(to[view.TCP], to[view.UDP]) {
						all.add(func() error { return c.expect(s, protocol, to, want) })
					}
				}
			}
		}
		all.report(t)
	})
}
