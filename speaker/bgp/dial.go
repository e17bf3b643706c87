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
	// redialTime is the pause between the end of a session and the next attempt, and up to as much again, so that
	// the nodes do not all dial at once.
	redialTime = time.Second
	// eagerAttempts is how often in a row a session that fails before Established is tried again so soon; after
	// that idleTime is added, to spare a misconfigured router.
	eagerAttempts = 5
	idleTime      = 5 * time.Second
)

// dial connects to the router, again and again, until the session ends.
func (s *session) dial() {
	for {
		began := time.Now()
		conn, err := connect(s.ctx, s.identity, s.connectInterval())
		if s.ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		var pause time.Duration
		var retimed <-chan struct{}
		if err != nil {
			s.explain(connectWords(s.identity, err))
			pause, retimed = s.connectInterval()-time.Since(began)+rand.N(redialTime), s.retimed
		} else {
			s.mu.Lock()
			over := s.begin(conn)
			s.mu.Unlock()
			<-over
			pause = s.redialPause()
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-retimed:
		case <-s.ctx.Done():
		}
		timer.Stop()
	}
}

// redialPause returns how long the router is left alone after a session.
func (s *session) redialPause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := redialTime
	if s.failures > eagerAttempts {
		pause += idleTime
	}
	return pause + rand.N(pause)
}

// connectInterval returns the time from one attempt to connect to the next.
func (s *session) connectInterval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.retimed: // to this one
	default:
	}
	return max(s.interval, redialTime)
}

// retime sets the time between attempts to connect, from now on. The caller holds s.mu.
func (s *session) retime(interval time.Duration) {
	if s.interval != interval {
		s.interval = interval
		signal.Send(s.retimed)
	}
}

// connect opens a connection to the router, and gives up before the next attempt is due.
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

// prepareToDial sets what the connection has from its first packet on: interface, password and TTL.
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

// connectWords tell why a connection failed, without its local port: the same failure has the same words.
func connectWords(id desired.Identity, err error) string {
	peer := fmt.Sprintf("cannot connect to %v port %d: ", id.PeerAddress, id.PeerPort)
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return peer + "connection refused: no BGP daemon listens there for this node"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return peer + fmt.Sprintf("the source address %v is not on this node", id.SourceAddress)
	case !errors.As(err, &timeout) || !timeout.Timeout():
	case id.TTLSecurity:
		return peer + "no answer: unreachable, filtered, the TCP MD5 password differs, or the router lacks the TTL of 255 that ttlSecurity asks for"
	case id.Password != "":
		return peer + "no answer: unreachable, filtered, or the TCP MD5 password differs"
	default:
		return peer + "no answer: unreachable, filtered, or the router asks for a TCP MD5 password"
	}
	if syscallError, ok := errors.AsType[*os.SyscallError](err); ok {
		return peer + syscallError.Error()
	}
	return peer + err.Error()
}

// begin begins a session on a connection with the router, and returns what is closed when that is over. If there
// is a session already the router has lost it, as when it restarted (RFC 4724, 5). The caller holds s.mu.
func (s *session) begin(conn *net.TCPConn) (over <-chan struct{}) {
	hold := sendHold(s.identity, s.sendHold)
	r := newRelay(conn, s.identity, &s.traffic, s.status.Established > 0, hold)
	if s.ended {
		close(r.over)
		r.close()
		return r.over
	}
	if s.status.Phase == Established {
		s.status.Phase = Idle
		s.down(fmt.Sprintf("%v opened a new connection", s.identity.PeerAddress))
	} else {
		s.drop() // one that was not yet up
	}
	if err := setSendHold(conn, hold); err != nil {
		s.log.Warn("a router that takes nothing will not be noticed", "address", s.identity.PeerAddress, "error", err)
	}
	r.parting = s.parting
	s.relay, s.status.Phase = r, Idle
	time.AfterFunc(s.openPatience, func() { s.openTimedOut(r) })
	err := s.renewDaemon()
	if err == nil {
		err = s.daemon.addPeer(s.identity, r)
	}
	if err != nil {
		s.unusable(err)
	}
	return r.over
}

// unusable drops the connection, with the reason. The caller holds s.mu.
func (s *session) unusable(err error) {
	s.fail(fmt.Sprintf("the connection with %v cannot be used: %v", s.identity.PeerAddress, err))
	s.drop()
}

// renewDaemon replaces a server that accepts no more connections by one with the same routes. The caller holds s.mu.
func (s *session) renewDaemon() error {
	if !s.daemon.log.acceptFailed.Load() {
		return nil
	}
	next, err := startDaemon(s.identity, s.log, s.events)
	if err != nil {
		return err
	}
	for prefix, r := range s.routes {
		if err := next.addRoute(prefix, r, s.identity); err != nil {
			next.stop()
			return err
		}
	}
	s.daemon.stop()
	s.daemon = next
	return nil
}

// link has the server talk to the router, now that it waits for that.
func (s *session) link(r *relay, server netip.AddrPort) {
	err := r.link(server)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.relay == r {
		s.unusable(err)
	}
}
