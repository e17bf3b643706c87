package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// Answer is what came back.
type Answer struct {
	Server string // the name of the server that answered
	Seen   string // the source address that it saw
	Port   uint16 // at which it was asked
}

// What came instead of an answer.
var (
	ErrRefused = errors.New("refused")
	ErrSilence = errors.New("silence")
)

// burst is room for some hundred requests, in bytes.
const burst = 1 << 20

// Serve answers on a port, TCP and UDP, of all addresses of both families, with
// the host's name, the source address that it sees and the port. A TCP connection
// may ask many times. What it is asked comes back in the answer.
func (h *Host) Serve(port int) {
	h.t.Helper()
	h.serve(h.Name, fmt.Sprintf(":%d", port))
}

// ServeAt answers as Serve does, under another name and on one address only.
func (h *Host) ServeAt(name string, at netip.AddrPort) {
	h.t.Helper()
	h.serve(name, at.String())
}

func (h *Host) serve(name, at string) {
	h.t.Helper()
	var l net.Listener
	var p net.PacketConn
	var err error
	h.Do(func() {
		if l, err = net.Listen("tcp", at); err != nil {
			return
		}
		if p, err = net.ListenPacket("udp", at); err != nil {
			return
		}
		if udp, ok := p.(*net.UDPConn); ok {
			err = udp.SetReadBuffer(burst) // what comes while the server has no processor must wait
		}
	})
	if err != nil {
		h.t.Fatalf("%s: serve: %v", h.Name, err)
	}
	h.t.Cleanup(func() { _, _ = l.Close(), p.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerAll(c, name)
		}
	}()
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := p.ReadFrom(buffer)
			if err != nil {
				return
			}
			// A reply that fails shows as silence.
			_, _ = p.WriteTo(answer(strings.TrimSpace(string(buffer[:n])), name, from, p.LocalAddr()), from)
		}
	}()
}

func answer(question, name string, from, at net.Addr) []byte {
	source, here := netip.MustParseAddrPort(from.String()), netip.MustParseAddrPort(at.String())
	return fmt.Appendf(nil, "%s %s %s %d\n", question, name, source.Addr().Unmap().WithZone(""), here.Port())
}

func answerAll(c net.Conn, name string) {
	defer func() { _ = c.Close() }()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if _, err := c.Write(answer(lines.Text(), name, c.RemoteAddr(), c.LocalAddr())); err != nil {
			return
		}
	}
}

// Conn is one flow from a host.
type Conn struct {
	conn    net.Conn
	lines   *bufio.Reader
	timeout time.Duration
	asked   int  // questions
	length  int  // of a question in bytes, if it would be shorter
	again   bool // a question may be lost, and is sent again
}

// Dial opens a flow; network is tcp or udp, and laddr, if valid, where it comes
// from. The timeout is for this and for each Ask.
//
// A flow has a port that no flow of the host had before, unless laddr has one. The kernel's
// choice is by chance: once in a few thousand flows it is the port of an earlier one to the
// same destination, and a node on the way that still knows that one, which may have gone past a
// Service, sends the new one after it. The error is ErrRefused or ErrSilence where the network says so.
func (h *Host) Dial(network string, laddr, to netip.AddrPort, timeout time.Duration) (*Conn, error) {
	var conn net.Conn
	var err error
	h.Do(func() {
		for range freshPorts {
			conn, err = dial(network, h.fresh(laddr, to), to, timeout)
			if !errors.Is(err, syscall.EADDRINUSE) || laddr.Port() != 0 {
				return
			}
		}
	})
	if err != nil {
		return nil, classify(err)
	}
	return &Conn{conn: conn, lines: bufio.NewReader(conn), timeout: timeout, again: network == "udp"}, nil
}

// Where flows begin: the ports that Linux has for this.
const (
	firstFresh = 32768
	freshPorts = 28232
)

// fresh fills in what an address lacks: a port that was not used yet.
func (h *Host) fresh(laddr, to netip.AddrPort) netip.AddrPort {
	if laddr.Port() != 0 {
		return laddr
	}
	from := laddr.Addr()
	switch {
	case from.IsValid():
	case to.Addr().Is4():
		from = netip.IPv4Unspecified()
	default:
		from = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(from, uint16(firstFresh+h.flows.Add(1)%freshPorts))
}

func dial(network string, from, to netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout, LocalAddr: net.TCPAddrFromAddrPort(from)}
	if network == "udp" {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
	}
	return d.DialContext(context.Background(), network, to.String())
}

// sendAgain is after how long without an answer a datagram is sent once more: a busy
// machine may lose one. What waits for silence waits for less.
const sendAgain = time.Second

// Once has each question sent once only, so that a lost one shows. It returns the flow.
func (c *Conn) Once() *Conn {
	c.again = false
	return c
}

// Long has each question, and each answer, be of so many bytes, up to 60000, over TCP. It
// returns the flow.
func (c *Conn) Long(bytes int) *Conn {
	c.length = bytes
	return c
}

// Ask sends a request on the flow and waits for the answer, over UDP more than once. A
// sender whose own host drops or rejects the packet learns no more from sending it than
// that it may not; waiting for the answer then tells the two apart, as ErrRefused and ErrSilence.
func (c *Conn) Ask() (Answer, error) { return c.AskFor(c.timeout) }

// AskFor is Ask with a timeout of its own, and with the same errors.
func (c *Conn) AskFor(timeout time.Duration) (Answer, error) {
	c.asked++
	until := time.Now().Add(timeout)
	for {
		try := until
		if again := time.Now().Add(sendAgain); c.again && again.Before(until) {
			try = again
		}
		answer, err := c.ask(try)
		if !errors.Is(err, ErrSilence) || try.Equal(until) {
			return answer, err
		}
	}
}

// ask sends the question and waits for its answer. What comes late on an earlier one is
// none.
func (c *Conn) ask(until time.Time) (Answer, error) {
	_ = c.conn.SetDeadline(until)
	if _, err := fmt.Fprintf(c.conn, "%-*d\n", c.length, c.asked); err != nil && !errors.Is(err, syscall.EPERM) {
		return Answer{}, classify(err)
	}
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return Answer{}, classify(err)
		}
		var question int
		var a Answer
		if _, err = fmt.Sscan(line, &question, &a.Server, &a.Seen, &a.Port); err != nil || question == c.asked {
			return a, err
		}
	}
}

// Local is where the flow comes from.
func (c *Conn) Local() netip.AddrPort {
	return netip.MustParseAddrPort(c.conn.LocalAddr().String())
}

// Close ends the flow.
func (c *Conn) Close() { _ = c.conn.Close() }

// Finish ends the flow of TCP from both sides, and returns once the other one has. The error is the kernel's.
func (c *Conn) Finish() error {
	_ = c.conn.SetDeadline(time.Now().Add(c.timeout))
	err := c.conn.(*net.TCPConn).CloseWrite()
	_, failed := io.Copy(io.Discard, c.lines)
	return errors.Join(err, failed, c.conn.Close())
}

// Abort ends the flow of TCP by a reset. The error is the kernel's.
func (c *Conn) Abort() error {
	return errors.Join(c.conn.(*net.TCPConn).SetLinger(0), c.conn.Close())
}

// Ask opens a flow, asks once and closes it. Its errors are those of Dial and Conn.Ask.
func (h *Host) Ask(network string, to netip.AddrPort, timeout time.Duration) (Answer, error) {
	c, err := h.Dial(network, netip.AddrPort{}, to, timeout)
	if err != nil {
		return Answer{}, err
	}
	defer c.Close()
	return c.Ask()
}

func classify(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ErrRefused
	case errors.As(err, &timeout) && timeout.Timeout():
		return ErrSilence
	default:
		return err
	}
}
