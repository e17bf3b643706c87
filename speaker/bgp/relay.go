package bgp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

// relay joins the TCP connection with a router, whichever side opened it, to a connection over loopback
// with a GoBGP server, with the guard in between.
type relay struct {
	id            desired.Identity
	router        *net.TCPConn
	local, remote netip.AddrPort // of the router's connection
	// inside is the address from which the relay connects to the server. No other process of the node can
	// know it before the server has accepted the connection, and the server accepts no other.
	inside   netip.Addr
	counts   *traffic
	again    bool          // this process has had the session before
	parting  string        // what there is to tell of the NOTIFICATION by which the router ended the last one; "" for none
	sendHold time.Duration // SendHoldTimer (RFC 9687)
	over     chan struct{} // closed when the session has given it up
	done     chan struct{} // closed when both connections are closed

	writing sync.Mutex // held during a write to the router, which blocks while its receive window is closed

	mu       sync.Mutex // never held during a write
	guard    guard
	linked   bool
	ending   bool      // a deadline counts for all that is still sent
	stopped  bool      // nothing more is sent to the router
	heard    time.Time // when the router's last message came
	refused  *refusal  // why the guard ended it
	notified []byte    // the body of the router's NOTIFICATION; nil for none
	closed   bool      // the router closed the connection
	overdue  bool      // the router did not take what was sent
}

const (
	// flush is how long the last bytes from one side may take to reach the other.
	flush = time.Second
	// refreshPause is the least time between two ROUTE-REFRESHes of a family. Those that come in between
	// are answered as one, at its end.
	refreshPause = time.Second
)

func newRelay(router *net.TCPConn, id desired.Identity, counts *traffic, again bool, hold time.Duration) *relay {
	r := &relay{
		id: id, router: router, inside: randomLoopback(), counts: counts, again: again, sendHold: hold,
		over: make(chan struct{}), done: make(chan struct{}), guard: guard{id: id},
	}
	r.local, r.remote = ends(router)
	return r
}

// randomLoopback returns one of some sixteen million addresses of this node that nothing else uses.
func randomLoopback() netip.Addr {
	var a [4]byte
	_, _ = rand.Read(a[:]) // never fails
	a[0] = 127
	a[3] = a[3]%254 + 1
	return netip.AddrFrom4(a)
}

// link connects the router to the server, which waits for that. The error is that of the connection over loopback.
func (r *relay) link(server netip.AddrPort) error {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.inside, 0)), Timeout: flush}
	conn, err := dialer.DialContext(context.Background(), "tcp4", server.String())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.linked || r.stopped {
		return conn.Close()
	}
	r.linked = true
	go r.run(conn.(*net.TCPConn))
	return nil
}

func (r *relay) run(server *net.TCPConn) {
	defer close(r.done)
	defer func() { _ = errors.Join(r.router.Close(), server.Close()) }()
	ended := make(chan struct{}, 2)
	for _, pass := range []func(*net.TCPConn){r.outward, r.inward} {
		go func() {
			pass(server)
			ended <- struct{}{}
		}()
	}
	<-ended
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	end := time.Now().Add(flush)
	_ = errors.Join(r.router.SetDeadline(end), server.SetDeadline(end))
	<-ended
}

// outward passes on what the server sends, a whole message at a time.
func (r *relay) outward(server *net.TCPConn) {
	defer func() { _ = r.router.CloseWrite() }()
	from, buffer := bufio.NewReaderSize(server, longest), make([]byte, longest)
	for {
		whole, err := readMessage(from, buffer)
		if err != nil {
			return
		}
		if r.again && whole[typeAt] == packet.BGP_MSG_OPEN {
			clearRestartState(whole)
		}
		if !r.send(whole) {
			return
		}
	}
}

// send sends a message to the router and returns whether more can be sent.
func (r *relay) send(whole []byte) bool {
	r.writing.Lock()
	defer r.writing.Unlock()
	if !r.startSendHold() {
		return false
	}
	r.counts.sent.count(whole[typeAt])
	_, err := r.router.Write(whole)
	r.mu.Lock()
	defer r.mu.Unlock()
	held := errors.Is(err, os.ErrDeadlineExceeded) && !r.ending && !r.stopped // else it is another deadline
	r.overdue = r.overdue || held || errors.Is(err, syscall.ETIMEDOUT)
	return err == nil
}

// startSendHold bounds the next write, unless nothing more is to be sent, and returns whether it may begin.
// The kernel alone would wait for ever for a router that takes an octet now and then.
func (r *relay) startSendHold() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped && !r.ending {
		_ = r.router.SetWriteDeadline(time.Now().Add(r.sendHold)) // if it is closed, the write fails
	}
	return !r.stopped
}

// stopSending stops all further writes to the router; one in progress goes on. It returns whether writes
// were still allowed.
func (r *relay) stopSending(why *refusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	were := !r.stopped
	r.stopped = true
	if why != nil {
		r.refused = why
	}
	return were
}

// inward passes on what the guard makes of the router's messages.
func (r *relay) inward(server *net.TCPConn) {
	defer func() { _ = server.CloseWrite() }()
	asked := refreshes{}
	from, buffer := bufio.NewReaderSize(r.router, longest), make([]byte, longest)
	for {
		seen, err := r.receive(from, buffer)
		if refused, ok := errors.AsType[*refusal](err); ok {
			r.refuse(refused, server)
		}
		if err != nil {
			return
		}
		if seen != nil && seen[typeAt] == packet.BGP_MSG_ROUTE_REFRESH {
			asked.pass(seen, server)
			continue
		}
		if _, err := server.Write(seen); err != nil {
			return
		}
	}
}

// receive returns what the server is to see of the router's next message; nil for nothing. The error is
// a *refusal if the message is refused, else that of the connection.
func (r *relay) receive(from io.Reader, buffer []byte) ([]byte, error) {
	whole, err := readMessage(from, buffer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, malformed := errors.AsType[*refusal](err); err != nil {
		ours := malformed || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded)
		late := errors.Is(err, syscall.ETIMEDOUT) // the kernel tells it once, to a reader or a writer
		r.overdue, r.closed = r.overdue || late, !ours && !late && !r.holdTimePassed()
		return nil, err
	}
	r.counts.received.count(whole[typeAt])
	r.heard = time.Now()
	if whole[typeAt] == packet.BGP_MSG_NOTIFICATION {
		r.notified = bytes.Clone(whole[headerLength:])
	}
	seen, refused := r.guard.take(whole)
	if refused != nil {
		return nil, refused
	}
	return seen, nil
}

// holdTimePassed returns whether the router has sent nothing for the hold time. The caller holds r.mu.
func (r *relay) holdTimePassed() bool {
	hold := r.guard.negotiated.HoldTime
	return hold > 0 && time.Since(r.heard) >= hold
}

// refreshes are the times at which the last ROUTE-REFRESH of each AFI was, or will be, passed on.
type refreshes map[uint16]time.Time

// pass passes a request on, or once for all that come until the pause is over. Nothing else that the
// router sends waits for that: neither KEEPALIVEs nor a NOTIFICATION.
func (f refreshes) pass(request []byte, server io.Writer) {
	family, now := binary.BigEndian.Uint16(request[headerLength:]), time.Now()
	last := f[family]
	if last.After(now) {
		return
	}
	wait := max(0, last.Add(refreshPause).Sub(now))
	f[family] = now.Add(wait)
	time.AfterFunc(wait, func() { _, _ = server.Write(request) }) // if it is closed, outward ends
}

func (r *relay) refuse(why *refusal, server *net.TCPConn) {
	could := r.stopSending(why)
	_ = r.router.SetWriteDeadline(time.Now().Add(flush)) // also of a write in progress
	r.writing.Lock()
	if could {
		r.counts.sent.count(packet.BGP_MSG_NOTIFICATION)
		_, _ = r.router.Write(why.notification())
	}
	r.writing.Unlock()
	_ = errors.Join(server.CloseWrite(), r.router.CloseWrite(), r.router.SetReadDeadline(time.Now().Add(flush)))
	// To close with something unread would have the kernel reset the connection before the NOTIFICATION arrives.
	_, _ = io.Copy(io.Discard, r.router)
}

func (r *relay) negotiated() Negotiated {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.guard.negotiated
}

// closeSilently closes the connection with the router as the kernel does when the process dies.
func (r *relay) closeSilently() error {
	r.stopSending(nil)
	_ = r.router.SetWriteDeadline(time.Now())
	r.writing.Lock()
	defer r.writing.Unlock()
	if err := r.router.CloseWrite(); err != nil {
		return err
	}
	if err := r.router.CloseRead(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // the router has answered in between, and run has closed it
}

// resetOnClose has the kernel reset the connection when it is closed. A router that is too far away for
// ttlSecurity cannot acknowledge what comes before a FIN, does not see the FIN until one of the kernels has tried for
// minutes, and dials no other connection meanwhile.
func (r *relay) resetOnClose() { _ = r.router.SetLinger(0) }

// close ends both connections once the last bytes have arrived, but waits no longer than flush.
func (r *relay) close() {
	r.mu.Lock()
	linked := r.linked
	r.linked = true // or never
	r.mu.Unlock()
	if !linked {
		_ = r.router.Close()
		close(r.done)
		return
	}
	timer := time.NewTimer(flush)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		if r.writing.TryLock() {
			r.writing.Unlock()
		} else {
			r.resetOnClose() // the kernel would keep a message that is half sent
		}
		_ = r.router.Close()
		<-r.done
	}
}
