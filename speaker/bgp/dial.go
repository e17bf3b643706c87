package bgp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/desired"
)

const (
	// redialTime is between the end of a session and the next attempt, and up to as much again, so
	// that the nodes do not all dial at once.
	redialTime = time.Second
	// eagerAttempts is how often in a row a session that fails before Established is
	// tried again so soon; after that idleTime is added, so that a misconfigured
	// router is not bothered for ever.
	eagerAttempts = 5
	idleTime      = 5 * time.Second
)

// call dials the router, again and again, until the session ends.
func (s *session) call(ctx context.Context) {
	for {
		began := time.Now()
		conn, err := connect(ctx, s.identity, s.connectTime())
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		var pause time.Duration
		var retimed <-chan struct{}
		if err != nil {
			s.explain(connectWords(s.identity, err))
			pause, retimed = s.connectTime()-time.Since(began)+rand.N(redialTime), s.retimed
		} else {
			if over := s.take(conn); over != nil {
				<-over
			}
			if pause = redialTime; s.failing() {
				pause += idleTime
			}
			pause += rand.N(pause)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-retimed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// connectTime is from one attempt to reach the router to the next.
func (s *session) connectTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.retimed: // this is the new one
	default:
	}
	return max(s.interval, redialTime)
}

// retime has the session try to reach the router at another interval, from now on. The caller holds s.mu.
func (s *session) retime(interval time.Duration) {
	if s.interval != interval {
		s.interval = interval
		signal.Send(s.retimed)
	}
}

// connect opens a connection to the router. A router that does not answer is given up before the next attempt is due.
func connect(ctx context.Context, id desired.Identity, interval time.Duration) (*net.TCPConn, error) {
	dialer := net.Dialer{
		Timeout: max(interval-time.Second, time.Second),
		Control: func(_, _ string, raw syscall.RawConn) error {
			return onSocket(raw, func(fd int) error { return prepareToDial(fd, id) })
		},
	}
	if id.SourceAddress.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(id.SourceAddress, 0))
	}
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(id.PeerAddress, id.PeerPort).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// prepareToDial sets what the connection is to have from its first packet on.
func prepareToDial(fd int, id desired.Identity) error {
	if id.Interface != "" {
		if err := unix.BindToDevice(fd, id.Interface); err != nil {
			return fmt.Errorf("cannot be bound to interface %s: %w", id.Interface, err)
		}
	}
	if err := sign(fd, id.PeerAddress, id.Password); err != nil {
		return err
	}
	return setTTL(fd, id.PeerAddress.Is6(), id.TTLSecurity)
}

// connectWords leaves out the ever-changing local port, so that the same
// failure has the same words.
func connectWords(id desired.Identity, err error) string {
	peer := fmt.Sprintf("cannot connect to %v port %d: ", id.PeerAddress, id.PeerPort)
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return peer + "connection refused: no BGP daemon listens there for this node"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return peer + fmt.Sprintf("the source address %v is not on this node", id.SourceAddress)
	case errors.As(err, &timeout) && timeout.Timeout() && id.TTLSecurity:
		return peer + "no answer: unreachable, filtered, the TCP MD5 password differs, or the router lacks the TTL of 255 that ttlSecurity asks for"
	case errors.As(err, &timeout) && timeout.Timeout() && id.Password != "":
		return peer + "no answer: unreachable, filtered, or the TCP MD5 password differs"
	case errors.As(err, &timeout) && timeout.Timeout():
		return peer + "no answer: unreachable, filtered, or the router asks for a TCP MD5 password"
	}
	if syscallError, ok := errors.AsType[*os.SyscallError](err); ok {
		return peer + syscallError.Error()
	}
	return peer + err.Error()
}

// take begins a session on a connection that was dialed, and gives what is closed when that
// is over; nil if there is none.
func (s *session) take(conn *net.TCPConn) (over <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		_ = conn.Close()
		return nil
	}
	return s.begin(conn)
}

// begin begins a session on a connection with the router. If there is a session already the router
// has lost it, as when it restarted (RFC 4724, 5). The caller holds s.mu.
func (s *session) begin(conn *net.TCPConn) (over <-chan struct{}) {
	if s.status.Phase == Established {
		s.status.Phase = Idle
		s.lost(fmt.Sprintf("%v opened a new connection", s.identity.PeerAddress))
	} else {
		s.giveUp() // one that was not yet up
	}
	most := sendHold(s.identity, s.sendHold)
	r := newRelay(conn, s.identity, &s.traffic, s.status.Established > 0, most)
	if err := setSendHold(conn, most); err != nil {
		s.log.Warn("a router that takes nothing will not be noticed", "address", s.identity.PeerAddress, "error", err)
	}
	s.relay, s.status.Phase = r, Idle
	time.AfterFunc(s.patience, func() { s.giveUpOpening(r) })
	err := s.hear()
	if err == nil {
		err = s.daemon.addPeer(s.identity, r)
	}
	if err != nil {
		s.fail(fmt.Sprintf("the connection with %v cannot be used: %v", s.identity.PeerAddress, err))
		s.giveUp()
	}
	return r.over
}

// hear gives the session another server, with the same routes, in place of one that takes no connections any
// more. The caller holds s.mu.
func (s *session) hear() error {
	if !s.server.acceptFailed.Load() {
		return nil
	}
	log := &serverLog{log: s.log}
	next, err := startDaemon(s.identity, log, s.events)
	if err != nil {
		return err
	}
	before := s.daemon
	for prefix, r := range s.routes {
		if err = next.addRoute(prefix, r, s.identity); err != nil {
			break
		}
	}
	if err == nil {
		s.server, s.daemon = log, next
	} else {
		before = next
	}
	before.stop()
	before.free()
	return err
}

// link has the server talk to the router, as it is ready to.
func (s *session) link(r *relay, server netip.AddrPort) {
	err := r.link(server)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == r {
		s.fail(fmt.Sprintf("the connection with %v cannot be used: %v", s.identity.PeerAddress, err))
		s.giveUp()
	}
}

// failing tells whether the session has not come up for a number of attempts.
func (s *session) failing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures > eagerAttempts
}
