package blackbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/forwarding/reusedports"
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
		c.answered()
	})
}

// answered waits until the node notes no connection that was begun anew and waits for an answer.
func (c *cluster) answered() {
	c.t.Helper()
	eventually(c.t, "forgotten as answered", func() bool {
		return !strings.Contains(c.Run("nft", "list", "table", "ip", reusedports.Table)+c.Run("nft", "list", "table", "ip6", reusedports.Table), "elements")
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
		const steady = "net/ipv4/tcp_syn_linear_timeouts"
		if _, err := os.Stat(filepath.Join("/proc/sys", steady)); err == nil { // from Linux 6.5 on
			c.Client.Do(func() { c.Client.Sysctl(steady, "60") }) // a SYN each second, however long what follows takes
		}
		c.Apply(web(p2Of))
		blackbox.RunOn(t, c.Client, "nft", "add table inet deaf; add chain inet deaf answers { type filter hook input priority -400; }; "+
			"add rule inet deaf answers tcp flags & (syn|ack) == syn|ack drop")
		var all asking
		for _, f := range addr.Families() {
			to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, webN), 80)
			all.add(func() error { return c.answers(c.senders(f)[0], view.TCP, to, "p1") })
		}
		done := make(chan error, 1)
		go func() { done <- all.all() }()
		eventually(t, "half open", func() bool { return c.halfOpen() == len(all.questions) })
		c.Apply(web(p1Of))
		die(t, c.P2) // before the client hears: the answer that is sent again would establish the connection
		blackbox.RunOn(t, c.Client, "nft", "delete table inet deaf")
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

// TestReusedPortsOfSCTP begins associations anew after their endpoints stopped to serve, packet by packet: the first one is dropped,
// and once the speaker has looked, the next one gets the endpoint that serves.
func TestReusedPortsOfSCTP(t *testing.T) {
	t.Parallel()
	each(t, withLatest(allWhole()), func(t *testing.T, c *cluster) {
		c.freeReusedPorts()
		eventually(t, "with rules", func() bool { return strings.Contains(c.Run("nft", "list", "tables"), "ip6 "+reusedports.Table) })
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for i, to := range []netip.AddrPort{netip.AddrPortFrom(blackbox.Nth(a.VIPs, webN), 80), netip.AddrPortFrom(a.Node, 30000+webN)} {
				client, p1, p2 := sctp(t, c.Client, a.Client), sctp(t, c.P1, a.P1), sctp(t, c.P2, a.P2)
				s := association{c, conntrack.Tuple{Protocol: view.SCTP, From: netip.AddrPortFrom(a.Client, 4000), To: to}, client}
				c.Apply(web(p2Of))
				s.begin()
				s.establish(p2)

				c.Apply(web(p1Of))
				s.begin()
				s.freed("it was established", a.P2)
				s.begin()
				s.establish(p1)

				c.Apply(web(p2Of))
				s.begin()
				s.freed("it was established on a port that had been freed", a.P1)
				s.silent("it was established on a port that had been freed", p1)
				s.begin()
				s.establish(p2)

				s.begin()
				s.silent("the first one", p2)
				if f == addr.IPv4 && i == 0 {
					time.Sleep(toThirdInit)
				}
				s.begin()
				s.expect(p2, sctpInit) // which has died, so that nothing answers
				c.Apply(web(p1Of))
				s.freed("it was begun anew before", a.P2)
				s.begin()
				s.establish(p1)
				s.silent("at the end", p2)
				_, _, _ = client.Close(), p1.Close(), p2.Close()
			}
		}
	})
}

// toThirdInit is after how long a client sends its third INIT (RFC 9260, 6.3 and 15).
const toThirdInit = 6 * time.Second

// association is one of a client, which sends packets by itself.
type association struct {
	*cluster
	conntrack.Tuple
	client net.PacketConn
}

func (s association) send(from net.PacketConn, to netip.Addr, packet []byte) {
	s.t.Helper()
	_ = from.SetWriteDeadline(time.Now().Add(answerIn))
	if _, err := from.WriteTo(packet, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		s.t.Errorf("%s: %v", s.To, err)
	}
}

func (s association) expect(at net.PacketConn, want byte) netip.AddrPort {
	s.t.Helper()
	_ = at.SetReadDeadline(time.Now().Add(answerIn))
	from, _, chunk, err := receive(at)
	if err != nil || chunk != want {
		s.t.Fatalf("%s: chunk %d from %s, %v, want %d", s.To, chunk, from, err, want)
	}
	return from
}

// silent holds that an endpoint got nothing that it has not read.
func (s association) silent(what string, at net.PacketConn) {
	s.t.Helper()
	_ = at.SetReadDeadline(time.Now().Add(silenceAfter))
	if _, _, chunk, err := receive(at); err == nil {
		s.t.Errorf("%s: %s: the endpoint got chunk %d", s.To, what, chunk)
	}
}

func (s association) begin() {
	s.t.Helper()
	s.send(s.client, s.To.Addr(), sctpPacket(sctpInit, s.From.Port(), s.To.Port(), 0))
}

// establish is what follows the first chunk.
func (s association) establish(endpoint net.PacketConn) {
	s.t.Helper()
	const tag = 7
	from := s.expect(endpoint, sctpInit)
	s.send(endpoint, from.Addr(), sctpPacket(sctpInitAck, blackbox.ServePort, from.Port(), tag))
	s.expect(s.client, sctpInitAck)
	s.send(s.client, s.To.Addr(), sctpPacket(sctpCookieEcho, s.From.Port(), s.To.Port(), tag))
	s.expect(endpoint, sctpCookieEcho)
	s.send(endpoint, from.Addr(), sctpPacket(sctpCookieAck, blackbox.ServePort, from.Port(), tag))
	s.expect(s.client, sctpCookieAck)
	s.answered()
}

// freed waits until the node knows no flow of the client to an endpoint.
func (s association) freed(what string, endpoint netip.Addr) {
	s.t.Helper()
	eventually(s.t, what+": freed", func() bool {
		leads := false
		s.Node.Do(func() {
			if _, err := conntrack.DeleteOf(addr.FamilyOf(endpoint), []conntrack.Tuple{s.Tuple}, func(_ view.Protocol, flow conntrack.Flow) bool {
				leads = flow.Answers.Addr() == endpoint
				return false
			}); err != nil {
				s.t.Fatal(err)
			}
		})
		return !leads
	})
}
