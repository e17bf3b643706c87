package blackbox_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// remote is a Service with an endpoint behind the other node.
func remote() desired.Forwarding {
	return blackbox.Forwarding(blackbox.Service{Name: "remote", N: 40, Fill: func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P3), true
	}})
}

// seen is the source that the endpoint of remote sees of a client at the NodePort, over TCP and UDP.
func (c *cluster) seen(f addr.Family) (tcp, udp string) {
	c.t.Helper()
	ask := func(network string) string {
		answer, err := c.Client.Ask(network, netip.AddrPortFrom(blackbox.Plan(f).Node, 30040), answerIn)
		if err != nil {
			return err.Error()
		}
		return answer.Seen
	}
	return ask("tcp"), ask("udp")
}

func (c *cluster) sees(when string, f addr.Family, want string) {
	c.t.Helper()
	if tcp, udp := c.seen(f); tcp != want || udp != want {
		c.t.Errorf("%s, %s: the endpoint sees %s over TCP, %s over UDP, want %s", when, f, tcp, udp, want)
	}
}

// TestSourceAddresses has what is masqueraded come from the address that is wanted for where it goes: the longest prefix
// counts, and one without an address leaves it to the interface. Changed rules of it are written again.
func TestSourceAddresses(t *testing.T) {
	eachBackend(t, func(_ *testing.T, c *cluster) {
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			near, host, all := netip.PrefixFrom(a.P3, a.P3.BitLen()-8).Masked(), addr.HostPrefix(a.P3), f.Everything()
			apply := func(sources ...desired.Source) {
				want := remote()
				want.Sources = sources
				c.Apply(want)
			}
			for _, step := range []struct {
				when    string
				sources []desired.Source
				want    netip.Addr
			}{
				{"none", nil, a.Aside},
				{"all", []desired.Source{{To: all, From: a.Node}}, a.Node},
				{"a network", []desired.Source{{To: near, From: a.OfNode[0]}, {To: all, From: a.Node}}, a.OfNode[0]},
				{"a host", []desired.Source{{To: host}, {To: near, From: a.OfNode[0]}, {To: all, From: a.Node}}, a.Aside},
				{"a host with an address", []desired.Source{{To: host, From: a.Node}, {To: near}, {To: all, From: a.OfNode[0]}}, a.Node},
				{"a network around it", []desired.Source{{To: near}, {To: all, From: a.Node}}, a.Aside},
			} {
				apply(step.sources...)
				c.sees(step.when, f, step.want.String())
			}
			apply(desired.Source{To: near, From: a.Node})
			c.Restart() // which reads what is there
			apply(desired.Source{To: near, From: a.Node})
			c.sees("a new process", f, a.Node.String())
			c.Run("sh", "-c", c.flush)
			apply(desired.Source{To: near, From: a.Node})
			c.sees("flushed", f, a.Node.String())
			apply()
		}
	})
}

// TestMasqueradeFollowsTheRoutes changes the routes and addresses of the node under a running process.
func TestMasqueradeFollowsTheRoutes(t *testing.T) {
	t.Parallel()
	each(t, whole(), func(t *testing.T, c *cluster) {
		want := remote()
		for _, f := range addr.Families() {
			want.Own = append(want.Own, blackbox.Plan(f).Node)
		}
		c.Apply(want)
		const lo4, lo6 = "203.0.113.1", "2001:db8:113::1"
		for _, step := range []struct {
			when, node, other string
			own               []string
			seen4, seen6      string
		}{
			{when: "as usual", seen4: "192.0.3.1", seen6: "2001:db8:3::1"},
			{
				when: "a source in the route", seen4: "192.0.2.1", seen6: "2001:db8::1",
				node: "ip route replace 10.244.2.0/24 via 192.0.3.2 src 192.0.2.1; ip -6 route del fd00:2::/64; ip -6 route add fd00:2::/64 via 2001:db8:3::2 src 2001:db8::1",
			},
			{
				when: "none any more", seen4: "192.0.3.1", seen6: "2001:db8:3::1",
				node: "ip route replace 10.244.2.0/24 via 192.0.3.2; ip -6 route del fd00:2::/64; ip -6 route add fd00:2::/64 via 2001:db8:3::2",
			},
			{
				when: "the node's address on lo", own: []string{lo4, lo6}, seen4: lo4, seen6: lo6,
				node: "ip addr add " + lo4 + "/32 dev lo; ip addr add " + lo6 + "/128 dev lo",
			},
			{
				when: "link-local addresses, which the fabric does not know", own: []string{lo4, lo6}, seen4: lo4, seen6: lo6,
				node: "ip addr add 169.254.10.2/24 dev peer; ip addr add fe80::2/64 dev peer nodad; ip addr del 192.0.3.1/24 dev peer; ip addr del 2001:db8:3::1/64 dev peer; " +
					"ip route replace 10.244.2.0/24 via 169.254.10.3 dev peer; ip -6 route replace fd00:2::/64 via fe80::3 dev peer",
				other: "ip addr add 169.254.10.3/24 dev peer; ip addr add fe80::3/64 dev peer nodad; ip route replace default via 169.254.10.2; ip -6 route del default; ip -6 route add default via fe80::2 dev peer",
			},
		} {
			for _, on := range []struct {
				run   func(...string) string
				shell string
			}{{func(s ...string) string { return blackbox.RunOn(t, c.Other, s...) }, step.other}, {c.Run, step.node}} {
				if on.shell != "" {
					on.run("sh", "-ec", strings.ReplaceAll(on.shell, "; ", "\n"))
				}
			}
			if step.own != nil {
				want.Own = nil
				for _, a := range step.own {
					want.Own = append(want.Own, netip.MustParseAddr(a))
				}
			}
			c.Apply(want)
			c.sees(step.when, addr.IPv4, step.seen4)
			c.sees(step.when, addr.IPv6, step.seen6)
		}
	})
}
