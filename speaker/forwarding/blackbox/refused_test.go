package blackbox_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// returns counts, on the node, what leaves it for addresses that this node alone has, and redirects to them; others is
// what leaves for an address beside them.
const returns = `
table inet returns {
	counter left { }
	counter redirects { }
	counter others { }
	chain leaving {
		type filter hook postrouting priority srcnat + 10;
		oifname "lo" accept
		ip daddr { 198.51.100.0/24, 203.0.113.0/25, 192.0.2.50 } counter name left
		ip6 daddr { 2001:db8:51::/64, 2001:db8:113::/65, 2001:db8::50, ff02::1:ff00:50 } counter name left
		ip daddr 203.0.113.128/25 counter name others
		ip6 daddr 2001:db8:113:0:8000::/65 counter name others
		icmp type redirect counter name redirects
		icmpv6 type nd-redirect counter name redirects
	}
}
table arp returns {
	counter asked { }
	chain leaving {
		type filter hook output priority 0;
		arp daddr ip { 198.51.100.0/24, 203.0.113.0/24, 192.0.2.50 } counter name asked
	}
}`

// onLink are addresses of the network that client and node share, as layer 2 announces them.
var onLink = map[addr.Family]netip.Addr{addr.IPv4: netip.MustParseAddr("192.0.2.50"), addr.IPv6: netip.MustParseAddr("2001:db8::50")}

// announced is a wanted state in which nodes announce all VIPs, half of Nobody as an aggregate, and onLink.
func announced() desired.Forwarding {
	want := everyKind()
	for key, p := range want.Ports {
		p.Announced = p.VIPs
		want.Ports[key] = p
	}
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		want.Refused = append(want.Refused, netip.PrefixFrom(a.Nobody.Addr(), a.Nobody.Bits()+1).Masked())
		want.Refused = append(want.Refused, addr.HostPrefix(onLink[f]))
		want.Own, want.Echo = append(want.Own, a.Node), append(want.Echo, a.Node)
	}
	return want
}

// Last bytes of VIPs of Services of everyKind.
const (
	vipServed    = 1
	vipLocal     = 2
	vipElsewhere = 3
	vipEmpty     = 4
	vipBarred    = 6
)

// TestNoPacketReturns sends to what VIPs and aggregates do not have: other ports and protocols, free addresses, packets of
// TCP that begin no flow, and those of ICMPv6 that are of none. The node refuses it at once, and none of it leaves the node again, nor a redirect, nor a
// request for the address of a VIP. An address beside them is routed as ever.
func TestNoPacketReturns(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.redirect()
		c.Apply(announced())
		c.Run("sh", "-c", "nft -f - <<'end'"+returns+"\nend")
		count := func(family, counter string) bool {
			return !strings.Contains(c.Run("nft", "list", "counter", family, "returns", counter), "packets 0 ")
		}
		var all asking
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			c.Client.Route(addr.HostPrefix(onLink[f]).String(), a.Node.String(), "eth0") // in place of the answer to ARP and NDP
			free := blackbox.Nth(a.Nobody, 5)
			for _, s := range c.senders(f) {
				for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
					for _, to := range []netip.Addr{blackbox.Nth(a.VIPs, vipServed), blackbox.Nth(a.VIPs, vipElsewhere), blackbox.Nth(a.VIPs, vipEmpty), free, onLink[f]} {
						all.add(func() error {
							if _, err := ask(s, protocol, netip.AddrPortFrom(to, 81), answerIn); !errors.Is(err, netlab.ErrRefused) {
								return fmt.Errorf("%s: %s (%s) -> %s:81: %w, want refused", protocol, s.name, s.from, to, err)
							}
							return nil
						})
					}
				}
			}
		}
		all.report(t)
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, to := range []netip.Addr{blackbox.Nth(a.VIPs, vipServed), blackbox.Nth(a.VIPs, vipEmpty), blackbox.Nth(a.Nobody, 5), onLink[f]} {
				for _, port := range []byte{80, 81} {
					for _, flags := range []byte{0x12, 0x01, 0x04, 0x10, 0x00} { // SYN-ACK, FIN, RST, ACK, none
						raw(t, c.Client, a.Client, to, "tcp", []byte{0, 99, 0, port, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0})
					}
				}
				raw(t, c.Client, a.Client, to, "47", []byte{0, 0, 8, 0, 0})
				raw(t, c.Client, a.Client, to, "253", nil)
				raw(t, c.Client, a.Client, to, "253", []byte("data"))
				if f == addr.IPv6 { // MLD, neighbour discovery, MLDv2, MRD: all that the kernel does not track
					for _, kind := range []byte{130, 131, 132, 133, 134, 135, 136, 137, 143, 151, 152} {
						raw(t, c.Client, a.Client, to, "58", append([]byte{kind}, make([]byte, 39)...))
					}
				}
			}
		}
		if count("inet", "left") || count("inet", "redirects") || count("arp", "asked") {
			t.Errorf("some left the node, or were asked about: %s", c.Run("nft", "list", "counters"))
		}
		for _, f := range addr.Families() {
			beside := map[addr.Family]netip.Addr{addr.IPv4: netip.MustParseAddr("203.0.113.200"), addr.IPv6: netip.MustParseAddr("2001:db8:113:0:8000::1")}[f]
			raw(t, c.Client, blackbox.Plan(f).Client, beside, "253", []byte("data"))
		}
		if f := "others"; !count("inet", f) {
			t.Error("a packet to an address beside those of VIPs did not leave the node")
		}
	})
}

// redirect has the node send redirects of both families, as Linux does by default. A redirect takes from the sender what it may have of
// ICMP errors.
func (c *cluster) redirect() {
	c.Node.Do(func() {
		for _, of := range []string{"all", "lan"} {
			c.Node.Sysctl("net/ipv4/conf/"+of+"/send_redirects", "1")
		}
	})
}

// raw sends a packet of any protocol.
func raw(t *testing.T, h *netlab.Host, from, to netip.Addr, protocol string, data []byte) {
	t.Helper()
	var err error
	h.Do(func() {
		var c *net.IPConn
		network := map[bool]string{true: "ip4:", false: "ip6:"}[to.Is4()] + protocol
		if c, err = net.DialIP(network, &net.IPAddr{IP: from.AsSlice()}, &net.IPAddr{IP: to.AsSlice()}); err == nil {
			_, err = c.Write(data)
			err = errors.Join(err, c.Close())
		}
	})
	if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "refused") {
		t.Errorf("%s to %s: %v", protocol, to, err)
	}
}

// TestPingOfAVIP pings VIPs: they answer while the node serves senders from outside there, and else refuse; all refuse
// where pings are switched off.
func TestPingOfAVIP(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := announced()
		ask := func(when string, answers map[byte]error) {
			t.Helper()
			for _, f := range addr.Families() {
				a := blackbox.Plan(f)
				for n, answer := range answers {
					for _, s := range c.senders(f)[:6] {
						if err := ping(s.host, s.from, blackbox.Nth(a.VIPs, n), answerIn); !errors.Is(err, answer) {
							t.Errorf("%s: %s (%s) pings %s: %v, want %v", when, s.name, s.from, blackbox.Nth(a.VIPs, n), err, answer)
						}
					}
				}
			}
		}
		c.Apply(want)
		ask("served", map[byte]error{vipServed: nil, vipLocal: nil, vipBarred: nil, vipElsewhere: netlab.ErrRefused, vipEmpty: netlab.ErrRefused})
		for key, p := range want.Ports {
			if key.Service.Name == "cluster" {
				p.Cluster, p.Anywhere = nil, false
				want.Ports[key] = p
			}
		}
		c.Restart()
		c.Apply(want)
		ask("without endpoints", map[byte]error{vipServed: netlab.ErrRefused, vipLocal: nil})
		want.Echo = nil
		c.Apply(want)
		ask("switched off", map[byte]error{vipLocal: netlab.ErrRefused})
	})
}

// TestRefusalsAreNotRationed connects again and again to what refuses, under the kernel's own limits of ICMP, with pings answered and not.
func TestRefusalsAreNotRationed(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.redirect()
		c.Apply(announced())
		for _, h := range []*netlab.Host{c.Node, c.P1} {
			h.Do(func() {
				h.Sysctl("net/ipv4/icmp_ratemask", "6168")
				h.Sysctl("net/ipv6/icmp/ratemask", "0-1,3-127")
			})
		}
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			c.Client.Route(addr.HostPrefix(onLink[f]).String(), a.Node.String(), "eth0")
			// One datagram, before which its sender has had no ICMP error, is within the limits.
			another := netip.MustParsePrefix(map[addr.Family]string{addr.IPv4: "192.0.2.101/24", addr.IPv6: "2001:db8::101/64"}[f])
			c.Client.Addr("eth0", another.String())
			silent := announced()
			silent.Echo = nil
			for from, want := range map[netip.Addr]desired.Forwarding{a.Client: announced(), another.Addr(): silent} {
				c.Apply(want)
				for _, to := range []netip.AddrPort{
					netip.AddrPortFrom(onLink[f], 81), netip.AddrPortFrom(blackbox.Nth(a.VIPs, vipServed), 81), netip.AddrPortFrom(blackbox.Nth(a.VIPs, vipEmpty), 80),
				} {
					if _, err := askOnce(sender{"client", c.Client, from}, view.UDP, to, answerIn); !errors.Is(err, netlab.ErrRefused) {
						t.Errorf("UDP: %s -> %s, with pings answered by %v: %v, want refused", from, to, want.Echo, err)
					}
				}
			}
			for _, to := range []netip.AddrPort{
				netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, vipEmpty), 80), netip.AddrPortFrom(blackbox.Nth(a.VIPs, vipEmpty), 80),
				netip.AddrPortFrom(blackbox.Nth(a.VIPs, vipServed), 81), netip.AddrPortFrom(blackbox.Nth(a.Nobody, 5), 80), netip.AddrPortFrom(a.Node, 30000+vipEmpty),
			} {
				for _, s := range []sender{{"client", c.Client, a.Client}, {"p1", c.P1, a.P1}, {"node", c.Node, a.Node}} {
					before := retransmitted(t, s.host)
					for range 40 {
						if _, err := ask(s, view.TCP, to, answerIn); !errors.Is(err, netlab.ErrRefused) {
							t.Fatalf("%s -> %s: %v, want refused", s.name, to, err)
						}
					}
					if again := retransmitted(t, s.host) - before; again > 0 {
						t.Errorf("%s -> %s: 40 connections took %d SYNs more to be refused", s.name, to, again)
					}
				}
			}
		}
	})
}

// retransmitted returns how many segments of TCP a host has sent again.
func retransmitted(t *testing.T, h *netlab.Host) int {
	t.Helper()
	var text []byte
	var err error
	h.Do(func() { text, err = os.ReadFile("/proc/thread-self/net/snmp") })
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Tcp:") {
			rows = append(rows, strings.Fields(line))
		}
	}
	if len(rows) != 2 {
		t.Fatalf("%d rows of TCP in %s", len(rows), text)
	}
	count, err := strconv.Atoi(rows[1][slices.Index(rows[0], "RetransSegs")])
	if err != nil {
		t.Fatal(err)
	}
	return count
}
