package blackbox_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
)

// allWhole are whole and legacy iptables, which is chosen where others have rules of it.
func allWhole() []contender {
	legacy := whole()[0]
	legacy.name += "-legacy"
	legacy.create = func() (blackbox.Backend, error) {
		if out, err := exec.Command("iptables-legacy", "-A", "INPUT", "-j", "ACCEPT").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		return newWhole(forwarding.IPTables)
	}
	return append(whole(), legacy)
}

const webN = 40

// wayIn is one way to the Service web.
type wayIn struct {
	sender
	to netip.AddrPort
}

func (w wayIn) String() string { return fmt.Sprintf("%s -> %s", w.name, w.to) }

// waysIn are all of them, in one family.
func (c *cluster) waysIn(f addr.Family) []wayIn {
	a := blackbox.Plan(f)
	senders := c.senders(f)
	var ways []wayIn
	for _, s := range []sender{senders[0], senders[2], senders[6]} { // client, node, p3
		for _, to := range []netip.AddrPort{
			netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, webN), 80), netip.AddrPortFrom(blackbox.Nth(a.VIPs, webN), 80),
			netip.AddrPortFrom(blackbox.Nth(a.ExternalIPs, webN), 80), netip.AddrPortFrom(a.Node, 30000+webN),
			netip.AddrPortFrom(a.Aside, 30000+webN), netip.AddrPortFrom(a.Bound[0], 30000+webN),
			netip.AddrPortFrom(blackbox.Nth(a.Nobody, 9), 30000+webN), // see routeToItself
		} {
			ways = append(ways, wayIn{s, to})
		}
	}
	if f == addr.IPv4 {
		for _, at := range []netip.Addr{localhost(), netip.MustParseAddr("127.0.0.9")} {
			ways = append(ways, wayIn{sender{"node", c.Node, localhost()}, netip.AddrPortFrom(at, 30000+webN)})
		}
	}
	return ways
}

// routeToItself has the node deliver whole prefixes to itself, of which no interface has an address.
func (c *cluster) routeToItself() {
	for _, f := range addr.Families() {
		c.Node.Own(blackbox.Plan(f).Nobody)
	}
}

// web is a state with one Service, by TCP, UDP and SCTP, that one endpoint of each family serves.
func web(endpoint func(a blackbox.Addresses) netip.Addr) desired.Forwarding {
	want := onLocalhost(blackbox.Forwarding(blackbox.Service{Name: "web", N: webN, Fill: func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, endpoint(a)), true
		p.Serving, p.ExternalIPs = p.Cluster, []netip.Addr{blackbox.Nth(a.ExternalIPs, webN)}
	}}), addr.Loopback())
	want.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for _, f := range addr.Families() {
		want.Ports[blackbox.Key("web", view.SCTP, f)] = want.Ports[blackbox.Key("web", view.TCP, f)]
	}
	return want
}

func p1Of(a blackbox.Addresses) netip.Addr { return a.P1 }
func p2Of(a blackbox.Addresses) netip.Addr { return a.P2 }

// die has a host hear and say nothing any more, but for what neighbours ask.
func die(t *testing.T, h *netlab.Host) {
	t.Helper()
	blackbox.RunOn(t, h, "nft", "add table inet dead; add chain inet dead arriving { type filter hook input priority -400; }; "+
		"add rule inet dead arriving meta l4proto { tcp, sctp } drop; add chain inet dead leaving { type filter hook output priority -400; }; "+
		"add rule inet dead leaving meta l4proto { tcp, sctp } drop")
}

// unanswered counts the unanswered flows that the node has to one endpoint.
func (c *cluster) unanswered(protocol view.Protocol, endpoint func(a blackbox.Addresses) netip.Addr) int {
	c.t.Helper()
	n := 0
	for _, f := range addr.Families() {
		c.Node.Do(func() {
			if _, err := conntrack.Delete(f, protocol, &sync.Mutex{}, func(flow conntrack.Flow) bool {
				if flow.Answers.Addr() == endpoint(blackbox.Plan(f)) {
					n++
				}
				return false
			}); err != nil {
				c.t.Error(err)
			}
		})
	}
	return n
}

// eventually waits for what a busy machine may take a while for.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > answerIn {
			t.Fatal("not ", what)
		}
	}
}

// TestUnansweredConnections has clients ask an endpoint that is dead, by each way in, and another one serves then, while
// they repeat themselves. They are answered by that, and the table is rid of what they began as soon as the rules are changed.
func TestUnansweredConnections(t *testing.T) {
	t.Parallel()
	each(t, allWhole(), func(t *testing.T, c *cluster) {
		c.routeToItself()
		die(t, c.P2)
		c.Apply(web(p2Of))
		var all asking
		for _, f := range addr.Families() {
			for _, way := range c.waysIn(f) {
				all.add(func() error { return c.answers(way.sender, view.TCP, way.to, "p1") })
			}
		}
		done := make(chan error, 1)
		go func() { done <- all.all() }()
		eventually(t, "all asked by TCP", func() bool { return c.unanswered(view.TCP, p2Of) >= len(all.questions) })
		eventually(t, "all asked by SCTP", func() bool { // again and again: the kernel forgets a first chunk after 3 s
			associations := c.initiate(10000)
			return c.unanswered(view.SCTP, p2Of) >= len(associations)
		})
		c.Apply(web(p1Of))
		for _, protocol := range []view.Protocol{view.TCP, view.SCTP} {
			if n := c.unanswered(protocol, p2Of); n > 0 {
				t.Errorf("%s: %d unanswered flows to an endpoint that serves no more are left", protocol, n)
			}
		}
		associations := c.initiate(10000)
		if n := c.unanswered(view.SCTP, p1Of); n < len(associations) {
			t.Errorf("SCTP: %d associations of %d ask the endpoint that serves when they are begun again", n, len(associations))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// initiate sends the first chunk of an association by each way in, from a port of its own each time, and returns the ways.
func (c *cluster) initiate(firstPort uint16) (ways []wayIn) {
	c.t.Helper()
	for _, f := range addr.Families() {
		for _, way := range c.waysIn(f) {
			conn := sctp(c.t, way.host, way.from)
			packet := sctpPacket(sctpInit, firstPort+uint16(len(ways)), way.to.Port(), 0)
			if _, err := conn.WriteTo(packet, &net.IPAddr{IP: way.to.Addr().AsSlice()}); err != nil {
				c.t.Errorf("%s: %v", way, err)
			}
			_ = conn.Close()
			ways = append(ways, way)
		}
	}
	return ways
}

// TestNodePortsThatTheNodeUsesItself has the node's own connections come from the number of a NodePort, as happens where
// these are not reserved. They go on while the Service comes, changes and goes, also where the peer sends next.
func TestNodePortsThatTheNodeUsesItself(t *testing.T) {
	t.Parallel()
	each(t, withLatest(whole()), func(t *testing.T, c *cluster) {
		c.freeReusedPorts()
		c.keepRestingFlows()
		none := web(p1Of)
		none.Ports = nil
		c.Apply(none)
		c.trackFlows()
		var opened []*reversed
		open := func(on func(a blackbox.Addresses) netip.Addr) {
			for _, f := range addr.Families() {
				a := blackbox.Plan(f)
				for _, network := range []string{"tcp", "udp"} {
					opened = append(opened, c.reverse(network, netip.AddrPortFrom(on(a), 30000+webN), a.Client))
				}
			}
		}
		open(func(a blackbox.Addresses) netip.Addr { return a.Node })
		for i, want := range []desired.Forwarding{web(p1Of), web(p2Of), none, web(p1Of)} {
			c.Apply(want)
			for _, r := range opened {
				if err := r.hear(); err != nil {
					t.Errorf("%s: %v", r.client.LocalAddr(), err)
				}
			}
			if i == 0 {
				open(func(a blackbox.Addresses) netip.Addr { return a.Aside })
			}
		}
	})
}

// reversed is a flow of the node on which the peer sends next.
type reversed struct{ client, server net.Conn }

// reverse opens one to a port of the client, and has each side hear the other once.
func (c *cluster) reverse(network string, from netip.AddrPort, at netip.Addr) *reversed {
	c.t.Helper()
	r, to := &reversed{}, netip.AddrPortFrom(at, 0)
	var listener net.Listener
	var packets *net.UDPConn
	var err error
	c.Client.Do(func() {
		if network == "udp" {
			packets, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(to))
			return
		}
		listener, err = net.Listen("tcp", to.String())
	})
	check := func() {
		if err != nil {
			c.t.Fatalf("%s from %s: %v", network, from, err)
		}
	}
	check()
	dialer, address := net.Dialer{Timeout: answerIn}, net.Addr(nil)
	if network == "udp" {
		dialer.LocalAddr, address = net.UDPAddrFromAddrPort(from), packets.LocalAddr()
	} else {
		dialer.LocalAddr, address = net.TCPAddrFromAddrPort(from), listener.Addr()
	}
	c.Node.Do(func() { r.client, err = dialer.DialContext(c.t.Context(), network, address.String()) })
	check()
	c.t.Cleanup(func() { _ = r.client.Close() })
	_, err = r.client.Write([]byte{1})
	check()
	if network == "udp" {
		_, _, err = packets.ReadFromUDPAddrPort(make([]byte, 1))
		check()
		err = connect(packets, from) // a socket made anew may find its port taken
		r.server = packets
	} else {
		r.server, err = listener.Accept()
		_ = listener.Close()
	}
	check()
	c.t.Cleanup(func() { _ = r.server.Close() })
	if err = r.hear(); err != nil {
		check()
	}
	return r
}

// connect has the kernel send what is written to a socket to this address. It returns the kernel's errors.
func connect(socket *net.UDPConn, to netip.AddrPort) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var connected error
	err = raw.Control(func(fd uintptr) { connected = unix.Connect(int(fd), sockaddr(to)) })
	return errors.Join(err, connected)
}

// hear has the peer send, and the node hear it.
func (r *reversed) hear() error {
	if _, err := r.server.Write([]byte{2}); err != nil {
		return err
	}
	if err := r.client.SetReadDeadline(time.Now().Add(answerIn)); err != nil {
		return err
	}
	_, err := r.client.Read(make([]byte, 1))
	return err
}
