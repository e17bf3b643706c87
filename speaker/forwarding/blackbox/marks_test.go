package blackbox_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// nft loads rules of another program on the node.
func (c *cluster) nft(rules string, values ...string) {
	c.t.Helper()
	c.Run("sh", "-c", "nft -f - <<'end'"+strings.NewReplacer(values...).Replace(rules)+"\nend")
}

// counted is how many packets the rules of another program have counted.
func (c *cluster) counted(counter string) (packets int) {
	c.t.Helper()
	said := c.Run("nft", "list", "counter", "inet", "others", counter)
	_, said, _ = strings.Cut(said, "packets ")
	if _, err := fmt.Sscan(said, &packets); err != nil {
		c.t.Fatalf("counter %s: %v: %s", counter, err, said)
	}
	return packets
}

// allBits is a mark of which each bit is others'.
const allBits = 0xffffffff

// TestMarksOfOthersStay holds that packets of Services leave the node with the mark that others gave them, and
// with a source that no mark of others decides about.
func TestMarksOfOthersStay(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.nft(`
table inet others {
	counter seen { }
	counter changed { }
	chain forwarded { type filter hook prerouting priority mangle; meta mark set $all; }
	chain sent { type route hook output priority mangle; meta mark set $all; }
	chain leaving {
		type filter hook postrouting priority srcnat + 10;
		ct status dnat counter name seen
		ct status dnat meta mark and $theirs != $theirs counter name changed
	}
}`, "$all", fmt.Sprint(allBits), "$theirs", fmt.Sprint(allBits&^c.takes))
		if err := c.askAbout(0, want); err != nil {
			t.Error(err)
		}
		if c.counted("seen") == 0 {
			t.Fatal("no packet of a Service was seen to leave")
		}
		if n := c.counted("changed"); n > 0 {
			t.Errorf("%d packets left with other marks than they had", n)
		}
	})
}

// TestServicesLeaveNoMarkBehind holds that what others keep of the marks that they see on the way, as CONNMARK
// does, has nothing of ours, where a backend needs no mark: iptables has nothing else to carry from one chain to another.
func TestServicesLeaveNoMarkBehind(t *testing.T) {
	t.Parallel()
	without := slices.DeleteFunc(slices.Clone(contenders), func(b contender) bool { return b.takes != 0 })
	each(t, without, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.nft(`
table inet others {
	counter seen { }
	counter marked { }
	chain forwarded { type filter hook forward priority mangle; ct mark set meta mark; }
	chain leaving { type filter hook postrouting priority mangle; ct mark set meta mark; }
	chain restoring { type filter hook prerouting priority mangle; meta mark set ct mark; }
	chain left {
		type filter hook postrouting priority srcnat + 10;
		ct status dnat counter name seen
		meta l4proto { tcp, udp } ct mark != 0 counter name marked
		meta l4proto { tcp, udp } meta mark != 0 counter name marked
	}
}`)
		if err := c.askAbout(1, want); err != nil {
			t.Error(err)
		}
		if n := c.counted("marked"); n > 0 || c.counted("seen") == 0 {
			t.Errorf("%d packets, or what belongs to their connections, have a mark that nobody gave them", n)
		}
	})
}

// theirPort is where a program sends from that marks what it sends, such as WireGuard.
const theirPort = 51820

// TestMarksOfOthersMeanNothing holds that what is for no Service leaves the node as it came, whatever bit of the
// mark others set: from the port that it was sent from, and with its mark, from the first packet on. So
// it is with wg-quick's mark and Tailscale's.
func TestMarksOfOthersMeanNothing(t *testing.T) {
	marks := []uint32{0xca6c, 0x80000, 0xff0000, allBits}
	for bit := range 32 {
		marks = append(marks, 1<<bit)
	}
	const first, packets = 20000, 2
	var pairs, mapped []string
	for i, mark := range marks {
		pairs = append(pairs, fmt.Sprintf("%d . %#x", first+i, mark))
		mapped = append(mapped, fmt.Sprintf("%d : %#x", first+i, mark))
	}
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.Apply(blackbox.Forwarding(blackbox.Services()...))
		c.nft(`
table inet others {
	set pairs { type inet_service . mark; elements = { $pairs }; }
	map marks { type inet_service : mark; elements = { $marks }; }
	counter left { }
	counter changed { }
	counter moved { }
	chain forwarded { type filter hook prerouting priority mangle; udp dport 20000-20099 meta mark set udp dport map @marks; }
	chain sent { type route hook output priority mangle; udp dport 20000-20099 meta mark set udp dport map @marks; }
	chain leaving {
		type filter hook postrouting priority srcnat + 10;
		udp dport 20000-20099 counter name left
		udp dport 20000-20099 udp dport . meta mark != @pairs counter name changed
		udp dport 20000-20099 udp sport != $port counter name moved
	}
}`, "$pairs", strings.Join(pairs, ", "), "$marks", strings.Join(mapped, ", "), "$port", fmt.Sprint(theirPort))
		sent := 0
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, flow := range []struct {
				by       *netlab.Host
				from, to netip.Addr
			}{{c.Node, a.Node, a.Client}, {c.Client, a.Client, a.P1}, {c.P1, a.P1, a.Client}} {
				socket := c.socket(flow.by, netip.AddrPortFrom(flow.from, theirPort), netip.AddrPort{})
				for i := range marks {
					for range packets {
						to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(flow.to, uint16(first+i)))
						if _, err := socket.WriteToUDP([]byte("x"), to); err != nil {
							t.Fatal(err)
						}
						sent++
					}
				}
			}
		}
		for deadline := time.Now().Add(answerIn); c.counted("left") < sent; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d packets left the node", c.counted("left"), sent)
			}
		}
		for counter, what := range map[string]string{"changed": "with another mark than they had", "moved": "from another port than they were sent from"} {
			if n := c.counted(counter); n > 0 {
				t.Errorf("of %d packets %d left %s", sent, n, what)
			}
		}
	})
}

// TestRoutesByMark has a host route by marks: the first packet that is for no Service goes where its mark leads, also with
// a bit that asks for masquerade, and so does one for a Service where a backend needs no mark.
func TestRoutesByMark(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.nft(`
table inet others {
	chain forwarded {
		type filter hook prerouting priority mangle
		meta l4proto { tcp, udp } th dport 8080 meta mark set 0xca6c
		meta l4proto { tcp, udp } th dport 80 meta mark set 0x1
	}
}`)
		for _, family := range []string{"-4", "-6"} {
			for _, mark := range []string{"0xca6c", "0x1"} {
				c.Run("ip", family, "rule", "add", "fwmark", mark, "lookup", "100")
			}
			c.Run("ip", family, "route", "add", "prohibit", "default", "table", "100")
		}
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			to := []netip.AddrPort{netip.AddrPortFrom(a.P1, blackbox.ServePort)}
			if c.takes == 0 {
				to = append(to, netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), netip.AddrPortFrom(blackbox.Nth(a.VIPs, 2), 80))
			}
			for _, to := range to {
				for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
					if got, err := ask(c.senders(f)[0], protocol, to, silenceAfter); err == nil {
						t.Errorf("%s: %s: %s, though its mark leads nowhere", protocol, to, said(got, err))
					}
				}
			}
		}
	})
}

// TestMarksOfOthersOpenNoFirewall holds that what others mark does not get past a host that forwards nothing, with
// the bit that asks for masquerade neither, whether it goes to a pod's own address or by a host port.
func TestMarksOfOthersOpenNoFirewall(t *testing.T) {
	eachInFirewall(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.plugHostPorts()
		c.Apply(want)
		c.nft(`
table inet others {
	chain forwarded { type filter hook prerouting priority mangle; meta mark set $all; }
	chain sent { type route hook output priority mangle; meta mark set $all; }
}`, "$all", fmt.Sprint(allBits))
		var all asking
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			c.Run(c.firewall[f], "-P", "FORWARD", "DROP")
			for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
				for _, to := range []netip.AddrPort{netip.AddrPortFrom(a.P1, blackbox.ServePort), netip.AddrPortFrom(a.Node, 8443)} {
					all.add(func() error {
						if got, err := ask(c.senders(f)[0], protocol, to, silenceAfter); err == nil {
							return fmt.Errorf("%s: a pod answers a stranger by %s: %s", f, protocol, said(got, err))
						}
						return nil
					})
				}
				all.add(func() error {
					return c.expect(c.senders(f)[0], protocol, netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), want)
				})
			}
		}
		all.report(t)
	})
}
