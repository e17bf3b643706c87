package blackbox_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// localhost is where the node finds itself.
func localhost() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

// routeLocalnet has the node route loopback addresses, which is not the backend's doing.
func (c *cluster) routeLocalnet() {
	c.Node.Do(func() { c.Node.Sysctl("net/ipv4/conf/all/route_localnet", "1") })
}

// onLocalhost is a state with NodePorts on loopback addresses.
func onLocalhost(want desired.Forwarding, prefixes ...netip.Prefix) desired.Forwarding {
	want.Loopback, want.Guard = prefixes, true
	return want
}

// localSenders are how the node asks itself on a loopback address.
func (c *cluster) localSenders() []sender {
	return []sender{
		{"node", c.Node, localhost()},
		{"node", c.Node, netip.MustParseAddr("127.1.2.3")},
		{"node", c.Node, blackbox.Plan(addr.IPv4).Node},
	}
}

// onLoopback are the NodePorts of all states on loopback addresses.
func onLoopback(f addr.Family, states []desired.Forwarding) map[view.Protocol][]netip.AddrPort {
	found := map[view.Protocol][]netip.AddrPort{}
	for _, state := range states {
		for key, p := range state.Ports {
			if f == addr.IPv4 && key.Family == f && p.NodePort != 0 {
				for _, a := range []netip.Addr{localhost(), netip.MustParseAddr("127.0.0.9")} {
					found[key.Protocol] = append(found[key.Protocol], netip.AddrPortFrom(a, p.NodePort))
				}
			}
		}
	}
	return found
}

// TestNodePortsOnLocalhost has the node ask itself for NodePorts of every kind of Service:
// policy Local and source ranges are for others, and the pod sees the node. What of
// 127.0.0.0/8 is not asked for is left alone.
func TestNodePortsOnLocalhost(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.routeLocalnet()
		for _, prefix := range []netip.Prefix{addr.Loopback(), addr.HostPrefix(localhost())} {
			want := onLocalhost(everyKind(), prefix)
			want.NodePorts = append(want.NodePorts, netip.MustParsePrefix("0.0.0.0/0"))
			c.Apply(want)
			var all asking
			for protocol, destinations := range onLoopback(addr.IPv4, []desired.Forwarding{want}) {
				for _, to := range destinations {
					for _, s := range c.localSenders() {
						all.add(func() error { return c.expect(s, protocol, to, want) })
					}
				}
			}
			all.report(t)
		}
	})
}

// attack makes the client send packets for 127.0.0.0/8 to the node, and take what answers
// as from anybody (CVE-2020-8558).
func (c *cluster) attack() {
	blackbox.RunOn(c.t, c.Client, "ip", "address", "flush", "dev", "lo")
	c.Client.Do(func() {
		c.Client.Sysctl("net/ipv4/conf/all/route_localnet", "1")
		c.Client.Sysctl("net/ipv4/conf/all/rp_filter", "0")
	})
	c.Node.Do(func() {
		c.Node.Sysctl("net/ipv4/conf/all/rp_filter", "0")
		c.Node.Sysctl("net/ipv4/conf/lan/rp_filter", "0")
	})
	c.Client.Route("127.0.0.0/8", "192.0.2.1", "eth0")
}

// TestLocalhostIsTheNodesAlone has a neighbour send to 127.0.0.1 over the wire, for a
// NodePort and for a process that listens there, while NodePorts on localhost come and
// go, over restarts. Without them there is no guard, and the process answers: the node's
// setting is what lets packets in, and the test's.
func TestLocalhostIsTheNodesAlone(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.routeLocalnet()
		c.attack()
		off := blackbox.Forwarding(blackbox.Services()...)
		on, guarded := onLocalhost(off, addr.Loopback()), onLocalhost(off)
		process, nodePort := netip.AddrPortFrom(localhost(), 5000), netip.AddrPortFrom(localhost(), 30001)
		c.Node.ServeAt("process", process)
		c.Node.ServeAt("beside", nodePort)
		for i, want := range []desired.Forwarding{off, on, on, off, on, guarded, off, guarded, on} {
			if i%2 == 0 {
				c.Restart()
			}
			c.Apply(want)
			var all asking
			neighbour := c.senders(addr.IPv4)[0]
			for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
				for _, s := range c.localSenders() {
					all.add(func() error { return c.answers(s, protocol, process, "process") })
					if len(want.Loopback) > 0 {
						all.add(func() error { return c.expect(s, protocol, nodePort, want) })
					} else {
						all.add(func() error { return c.answers(s, protocol, nodePort, "beside") })
					}
				}
				for to, server := range map[netip.AddrPort]string{process: "process", nodePort: "beside"} {
					if !want.Guard {
						all.add(func() error { return c.answers(neighbour, protocol, to, server) })
						continue
					}
					all.add(func() error {
						if got, err := ask(neighbour, protocol, to, silenceAfter); !errors.Is(err, netlab.ErrSilence) {
							t.Errorf("step %d: %s: the neighbour asks %s: %s, want silence", i, protocol, to, said(got, err))
						}
						return nil
					})
				}
			}
			all.report(t)
		}
	})
}

// socket opens a UDP socket on a host; without a peer it hears everybody. A port that was closed is taken for a
// moment longer if another test begins a process meanwhile, which has all files until it executes its program.
func (c *cluster) socket(h *netlab.Host, at, peer netip.AddrPort) *net.UDPConn {
	c.t.Helper()
	var conn *net.UDPConn
	var err error
	for deadline := time.Now().Add(answerIn); ; time.Sleep(time.Millisecond) {
		h.Do(func() {
			if peer.IsValid() {
				conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(at), net.UDPAddrFromAddrPort(peer))
			} else {
				conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			}
		})
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// heard is the next packet that comes to a socket in time, "" if none does.
func (c *cluster) heard(by *net.UDPConn, timeout time.Duration) (string, netip.AddrPort) {
	c.t.Helper()
	if err := by.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		c.t.Fatal(err)
	}
	buffer := make([]byte, 64)
	n, from, err := by.ReadFromUDPAddrPort(buffer)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", from
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return string(buffer[:n]), from
}

// TestNobodySpeaksInTheNameOfLoopback has a neighbour answer a question that a process
// of the node asked another one, from the loopback address that it asked, and send to
// the node's own address from there. A guard that lets all in that belongs to an open flow
// does not see that answer.
func TestNobodySpeaksInTheNameOfLoopback(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.routeLocalnet()
		c.attack()
		resolver, none := netip.MustParseAddrPort("127.0.0.53:53"), netip.AddrPort{}
		c.Client.Addr("eth0", "127.0.0.53/32")
		there := c.socket(c.Node, resolver, none)
		trusting := c.socket(c.Node, netip.AddrPortFrom(blackbox.Plan(addr.IPv4).Node, 5001), none)
		say := func(from *net.UDPConn, what string) {
			if _, err := from.Write([]byte(what)); err != nil {
				t.Fatal(err)
			}
		}
		off := blackbox.Forwarding(blackbox.Services()...)
		for _, want := range []desired.Forwarding{off, onLocalhost(off, addr.Loopback())} {
			c.Apply(want)
			asking := c.socket(c.Node, netip.AddrPortFrom(localhost(), 0), resolver)
			say(asking, "question")
			_, asker := c.heard(there, answerIn)
			if _, err := there.WriteToUDPAddrPort([]byte("answer"), asker); err != nil {
				t.Fatal(err)
			}
			if got, _ := c.heard(asking, answerIn); got != "answer" {
				t.Fatalf("the node hears %q of itself", got)
			}
			for _, victim := range []*net.UDPConn{asking, trusting} {
				to := netip.MustParseAddrPort(victim.LocalAddr().String())
				liar := c.socket(c.Client, resolver, to)
				say(liar, "forged")
				_ = liar.Close() // its port is needed again
				expected, timeout := "forged", answerIn
				if want.Guard {
					expected, timeout = "", silenceAfter
				}
				if got, _ := c.heard(victim, timeout); got != expected {
					t.Errorf("guarded %v: the process at %s hears %q", want.Guard, to, got)
				}
			}
		}
	})
}
