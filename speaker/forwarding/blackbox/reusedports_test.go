package blackbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// freeReusedPorts has the node do so until the test ends.
func (c *cluster) freeReusedPorts() {
	ended := make(chan struct{})
	go c.Node.Do(func() {
		defer close(ended)
		(*c.latest).(wholeBackend).FreeReusedPorts(c.t.Context())
	})
	c.t.Cleanup(func() { <-ended })
}

// crash opens a connection from a port by each way in, which a server answers, and ends the client without a word.
func (c *cluster) crash(server string, port uint16) {
	c.t.Helper()
	var all asking
	for _, f := range addr.Families() {
		for i, way := range c.waysIn(f) {
			all.add(func() error { return way.crash(c.t.Context(), netip.AddrPortFrom(way.from, port+uint16(i)), server) })
		}
	}
	all.report(c.t)
}

func (w wayIn) crash(ctx context.Context, from netip.AddrPort, server string) (err error) {
	var conn net.Conn
	w.host.Do(func() {
		conn, err = (&net.Dialer{Timeout: answerIn, LocalAddr: net.TCPAddrFromAddrPort(from)}).DialContext(ctx, "tcp", w.to.String())
	})
	if err != nil {
		return fmt.Errorf("%s: %w", w, err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintln(conn, 1); err != nil {
		return err
	}
	var question int
	var by string
	line, err := bufio.NewReader(conn).ReadString('\n')
	if _, bad := fmt.Sscan(line, &question, &by); err != nil || bad != nil || by != server {
		return fmt.Errorf("%s: %q, %w, want an answer of %s", w, line, err, server)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var silent error
	err = raw.Control(func(fd uintptr) {
		silent = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) // so that Close sends nothing
	})
	return errors.Join(err, silent)
}

// reuse opens connections from the ports from which others crashed, which a server must answer.
func (c *cluster) reuse(what, server string, port uint16) {
	c.t.Helper()
	var all asking
	for _, f := range addr.Families() {
		for i, way := range c.waysIn(f) {
			all.add(func() error {
				flow, err := way.host.Dial("tcp", netip.AddrPortFrom(way.from, port+uint16(i)), way.to, answerIn)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", what, way, err)
				}
				defer flow.Close()
				if got, err := flow.Ask(); err != nil || got.Server != server {
					return fmt.Errorf("%s: %s: %s, want an answer of %s", what, way, said(got, err), server)
				}
				return nil
			})
		}
	}
	all.report(c.t)
}

// stranger gives p2's addresses to another pod.
func (c *cluster) stranger() *netlab.Host {
	c.t.Helper()
	s := netlab.NewHost(c.t, "stranger")
	netlab.Connect(c.Node, "stranger", s, "eth0")
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		c.Node.Addr("stranger", addr.HostPrefix(a.OfNode[0]).String())
		s.Addr("eth0", addr.HostPrefix(a.P2).String())
		s.Route(netip.PrefixFrom(a.P2, 0).Masked().String(), a.OfNode[0].String(), "eth0")
		c.Run("ip", "route", "replace", addr.HostPrefix(a.P2).String(), "dev", "stranger")
	}
	s.Serve(blackbox.ServePort)
	return s
}

// TestReusedPorts has clients end without a word, and begin again from the same ports. Where the endpoint serves no more,
// alive or dead, and where its address is another pod's, they get one that serves. Connections of others
// to an endpoint that serves no more go on.
func TestReusedPorts(t *testing.T) {
	t.Parallel()
	each(t, withLatest(allWhole()), func(t *testing.T, c *cluster) {
		c.routeToItself()
		c.freeReusedPorts()
		c.Apply(web(p2Of))
		c.crash("p2", 20000)
		kept := c.keep(view.TCP)
		c.Apply(web(p1Of))
		c.reuse("an endpoint that lives", "p1", 20000)
		if err := live(kept); err != nil {
			t.Errorf("connections that nobody began anew: %v", err)
		}

		c.Apply(web(p2Of))
		c.crash("p2", 21000)
		stranger := c.stranger()
		c.Apply(web(p1Of))
		c.reuse("another pod has the address", "p1", 21000)

		c.Apply(web(p2Of))
		c.crash("stranger", 22000)
		die(t, stranger)
		c.Apply(web(p1Of))
		c.reuse("an endpoint that is dead", "p1", 22000)

		c.crash("p1", 23000)
		c.reuse("an endpoint that serves", "p1", 23000)
	})
}

// keep opens flows by each way in that go on.
func (c *cluster) keep(protocol view.Protocol) (flows []established) {
	c.t.Helper()
	for _, f := range addr.Families() {
		for _, way := range c.waysIn(f) {
			flow, err := way.dial(protocol, way.to, answerIn)
			if err != nil {
				c.t.Fatalf("%s: %v", way, err)
			}
			c.t.Cleanup(flow.Close)
			first, err := flow.Ask()
			if err != nil {
				c.t.Fatalf("%s: %v", way, err)
			}
			flows = append(flows, established{flow, way.String(), first})
		}
	}
	return flows
}

// withLatest has tests get at the backends.
func withLatest(all []contender) []contender {
	for i := range all {
		latest, create := new(blackbox.Backend), all[i].create
		all[i].latest = latest
		all[i].create = func() (made blackbox.Backend, err error) {
			*latest, err = create()
			return *latest, err
		}
	}
	return all
}

// TestHalfOpenConnections has the answer to a client's first segment be lost, and the endpoint serve no more then.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	each(t, withLatest(allWhole()), func(t *testing.T, c *cluster) {
		c.freeReusedPorts()
		c.Apply(web(p2Of))
		blackbox.RunOn(t, c.Client, "nft", "add table inet deaf; add chain inet deaf in { type filter hook input priority -400; }; "+
			"add rule inet deaf in tcp flags & (syn|ack) == syn|ack drop")
		var all asking
		for _, f := range addr.Families() {
			to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, webN), 80)
			all.add(func() error { return c.answers(c.senders(f)[0], view.TCP, to, "p1") })
		}
		done := make(chan error, 1)
		go func() { done <- all.all() }()
		eventually(t, "half open", func() bool { return c.halfOpen() == len(all.questions) })
		c.Apply(web(p1Of))
		blackbox.RunOn(t, c.Client, "nft", "delete table inet deaf")
		die(t, c.P2)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// halfOpen counts the connections in state SYN_RECV: answered, and the answer not acknowledged.
func (c *cluster) halfOpen() (n int) {
	c.Node.Do(func() {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				c.t.Error(err)
			}
			for _, flow := range flows {
				if info, is := flow.ProtoInfo.(*netlink.ProtoInfoTCP); is && info.State == nl.TCP_CONNTRACK_SYN_RECV {
					n++
				}
			}
		}
	})
	return n
}

// Chunks that follow in an association (RFC 9260, 3.3).
const (
	sctpCookieEcho = 10
	sctpCookieAck  = 11
)

// TestReusedPortsOfSCTP begins an association anew after its endpoint stopped to serve.
func TestReusedPortsOfSCTP(t *testing.T) {
	t.Parallel()
	each(t, withLatest(allWhole()), func(t *testing.T, c *cluster) {
		c.freeReusedPorts()
		const mine, tag = 4000, 7
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, to := range []netip.AddrPort{netip.AddrPortFrom(blackbox.Nth(a.VIPs, webN), 80), netip.AddrPortFrom(a.Node, 30000+webN)} {
				c.Apply(web(p2Of))
				client, p1, p2 := sctp(t, c.Client, a.Client), sctp(t, c.P1, a.P1), sctp(t, c.P2, a.P2)
				send := func(from net.PacketConn, to netip.Addr, packet []byte) {
					if _, err := from.WriteTo(packet, &net.IPAddr{IP: to.AsSlice()}); err != nil {
						t.Errorf("%s: %v", to, err)
					}
				}
				expect := func(at net.PacketConn, want byte) netip.AddrPort {
					from, _, chunk, err := receive(at)
					if err != nil || chunk != want {
						t.Errorf("%s: chunk %d from %s, %v, want %d", to, chunk, from, err, want)
					}
					return from
				}
				send(client, to.Addr(), sctpPacket(sctpInit, mine, to.Port(), 0))
				from := expect(p2, sctpInit)
				send(p2, from.Addr(), sctpPacket(sctpInitAck, blackbox.ServePort, from.Port(), tag))
				expect(client, sctpInitAck)
				send(client, to.Addr(), sctpPacket(sctpCookieEcho, mine, to.Port(), tag))
				expect(p2, sctpCookieEcho)
				send(p2, from.Addr(), sctpPacket(sctpCookieAck, blackbox.ServePort, from.Port(), tag))
				expect(client, sctpCookieAck)

				c.Apply(web(p1Of))
				ctx, end := context.WithCancel(t.Context())
				var again sync.WaitGroup
				again.Go(func() {
					begin := func() { send(client, to.Addr(), sctpPacket(sctpInit, mine, to.Port(), 0)) }
					begin()
					kernelwatch.Poll(ctx, time.Second, func() bool { return true }, begin) // as clients do
				})
				expect(p1, sctpInit)
				end()
				again.Wait()
				_ = p2.SetReadDeadline(time.Now().Add(silenceAfter))
				if _, _, chunk, err := receive(p2); err == nil {
					t.Errorf("%s: the endpoint that serves no more got chunk %d", to, chunk)
				}
				_, _, _ = client.Close(), p1.Close(), p2.Close()
			}
		}
	})
}
