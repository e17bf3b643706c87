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
	"golang.org/x/sys/unix"
)

// relay is between a router and a GoBGP server: it has the connection with the router, with
// its password and its TTL, whoever opened it, and one over loopback with the server, and
// the guard between them.
type relay struct {
	router        *net.TCPConn
	local, remote netip.AddrPort // of the router's connection
	// inside is where the server sees the router. No other process of the node can know it
	// before the server has taken our connection, and it takes no other of a router.
	inside netip.Addr
	counts *traffic
	again  bool          // this process has had the session before
	most   time.Duration // that a message may take to be said
	over   chan struct{} // closed when the session has given it up
	done   chan struct{} // closed when nothing of it is left

	speech sync.Mutex // held while a message is written to the router, which may take as long as that likes

	mu      sync.Mutex // never held while something is written
	linked  bool
	saying  bool     // a message is being written to the router
	ending  bool     // what is still said has a deadline for all of it
	silent  bool     // nothing more is said to the router
	refused *refusal // why the guard ended it
	turned  []byte   // the body of the NOTIFICATION by which the router refused a session that was not up; nil for none
	overdue bool     // the router did not take what was said
}

const (
	// flush is how long what one side said last may take to reach the other.
	flush = time.Second
	// refreshPause is between two requests of a router for all routes of a family. What it asks
	// again before is one request, which is answered then.
	refreshPause = time.Second
)

func newRelay(router *net.TCPConn, counts *traffic, again bool, most time.Duration) *relay {
	r := &relay{router: router, inside: someLoopback(), counts: counts, again: again, most: most, over: make(chan struct{}), done: make(chan struct{})}
	r.local, r.remote = ends(router)
	return r
}

// someLoopback is one of some sixteen million addresses of this node that nobody else uses.
func someLoopback() netip.Addr {
	var a [4]byte
	_, _ = rand.Read(a[:]) // never fails
	a[0] = 127
	a[3] = a[3]%254 + 1
	return netip.AddrFrom4(a)
}

// link connects the router to the server, which waits for that.
func (r *relay) link(server netip.AddrPort) error {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.inside, 0)), Timeout: flush}
	conn, err := dialer.DialContext(context.Background(), "tcp4", server.String())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.linked || r.silent {
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
	go func() {
		r.outward(server)
		ended <- struct{}{}
	}()
	go func() {
		r.inward(server)
		ended <- struct{}{}
	}()
	<-ended
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	end := time.Now().Add(flush)
	_ = errors.Join(r.router.SetDeadline(end), server.SetDeadline(end))
	<-ended
}

// outward passes on what the server says, a whole message at a time.
func (r *relay) outward(server *net.TCPConn) {
	defer func() { _ = r.router.CloseWrite() }()
	from, buffer := bufio.NewReaderSize(server, longest), make([]byte, longest)
	for {
		whole, err := readMessage(from, buffer)
		if err != nil || !r.say(whole) {
			return // whatever ends it ends the session, which tells why
		}
	}
}

// say tells whether there is more to be said.
func (r *relay) say(whole []byte) bool {
	r.speech.Lock()
	defer r.speech.Unlock()
	if !r.begin() {
		return false
	}
	r.counts.sent.count(whole[typeAt])
	if r.again && whole[typeAt] == packet.BGP_MSG_OPEN {
		goesOn(whole)
	}
	_, err := r.router.Write(whole)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saying = false
	late := errors.Is(err, os.ErrDeadlineExceeded) && !r.ending && !r.silent // else it is not that of begin
	r.overdue = r.overdue || late || errors.Is(err, syscall.ETIMEDOUT)
	return err == nil
}

// begin has what is said next take only so long. The kernel alone would wait for ever for a router
// that takes an octet now and then.
func (r *relay) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		return false
	}
	r.saying = true
	if !r.ending {
		_ = r.router.SetWriteDeadline(time.Now().Add(r.most)) // who writes sees that it is closed
	}
	return true
}

// hush has nothing more be said than what is being said, and tells whether something could be until then.
func (r *relay) hush(why *refusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	could := !r.silent
	r.silent = true
	if why != nil {
		r.refused = why
	}
	return could
}

// holdSends has the kernel end the connection when something that was sent is not acknowledged, or
// cannot be sent, for so long. A deadline for writing would begin only when its buffer is full, which
// KEEPALIVEs alone take days for.
func holdSends(conn *net.TCPConn, most time.Duration) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	return errors.Join(raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(most.Milliseconds()))
	}), failed)
}

// isOverdue tells whether the router did not take what was said for too long.
func (r *relay) isOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.overdue
}

// inward passes on what the guard makes of what the router says.
func (r *relay) inward(server *net.TCPConn) {
	defer func() { _ = server.CloseWrite() }()
	var g guard
	asked := refreshes{}
	from, buffer := bufio.NewReaderSize(r.router, longest), make([]byte, longest)
	for {
		whole, err := readMessage(from, buffer)
		if whole != nil {
			r.counts.received.count(whole[typeAt])
		}
		var seen []byte
		refused, malformed := errors.AsType[*refusal](err)
		if err == nil {
			seen, refused = g.take(whole)
			malformed = refused != nil
		}
		if malformed {
			r.refuse(refused, server)
		}
		if errors.Is(err, syscall.ETIMEDOUT) { // the kernel tells whoever comes first, who may be reading
			r.mu.Lock()
			r.overdue = true
			r.mu.Unlock()
		}
		if err != nil || malformed {
			return
		}
		if whole[typeAt] == packet.BGP_MSG_NOTIFICATION && !g.up {
			r.turnAway(whole[headerLength:])
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

// refreshes are when a router's last request for all routes of a family was, or will be, passed on, by AFI.
type refreshes map[uint16]time.Time

// pass passes a request on, or has one be passed on later for all that come until then. What else
// the router says never waits for it: that it is there, above all, and why it leaves.
func (f refreshes) pass(request []byte, server io.Writer) {
	family, now := binary.BigEndian.Uint16(request[headerLength:]), time.Now()
	last := f[family]
	if last.After(now) {
		return
	}
	if wait := last.Add(refreshPause).Sub(now); wait > 0 {
		f[family] = now.Add(wait)
		time.AfterFunc(wait, func() { _, _ = server.Write(request) })
		return
	}
	f[family] = now
	_, _ = server.Write(request) // who reads sees the end itself
}

// refuse tells the router why its session ends, and the server that it has.
func (r *relay) refuse(why *refusal, server *net.TCPConn) {
	could := r.hush(why)
	_ = r.router.SetWriteDeadline(time.Now().Add(flush)) // of what is being said, too
	r.speech.Lock()
	if could {
		r.counts.sent.count(packet.BGP_MSG_NOTIFICATION)
		_, _ = r.router.Write(why.notification())
	}
	r.speech.Unlock()
	_ = errors.Join(server.CloseWrite(), r.router.CloseWrite(), r.router.SetReadDeadline(time.Now().Add(flush)))
	// To close with something unread would have the kernel take back what was said.
	_, _ = io.Copy(io.Discard, r.router)
}

// why is why the guard ended it, nil if it did not.
func (r *relay) why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		return nil
	}
	return r.refused
}

// turnAway notes by which NOTIFICATION the router refused the session. GoBGP says no more than that it did.
func (r *relay) turnAway(body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turned = bytes.Clone(body)
}

func (r *relay) turnedAway() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turned
}

// hangUp closes the connection with the router as the kernel does when the process dies.
func (r *relay) hangUp() error {
	r.hush(nil)
	_ = r.router.SetWriteDeadline(time.Now())
	r.speech.Lock()
	defer r.speech.Unlock()
	if err := r.router.CloseWrite(); err != nil {
		return err
	}
	if err := r.router.CloseRead(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // the router has answered in between, and run has closed it
}

// abandon has the connection be reset when it is closed, and not be ended in order. A router whose
// packets are dropped for their TTL cannot acknowledge what comes before that end, does not see it
// until one of the kernels has tried for minutes, and dials no other connection meanwhile.
func (r *relay) abandon() { _ = r.router.SetLinger(0) }

// close ends it, after what was said last has arrived. It may be called for nil.
func (r *relay) close() {
	if r == nil {
		return
	}
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
		r.mu.Lock()
		if r.saying {
			r.abandon() // what is half said has no end, and the kernel would keep what comes before it
		}
		r.mu.Unlock()
		_ = r.router.Close()
		<-r.done
	}
}
