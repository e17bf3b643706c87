package bgp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// relay hands a connection that a router opened to a GoBGP server: GoBGP takes connections
// only from listeners of its own, and of one port there can be but one for all servers. So
// the server dials the relay, over loopback, which listens for that one connection and makes
// sure that it is this process's own. Passwords and TTLs are those of the router's connection.
type relay struct {
	router        *net.TCPConn
	inner         net.Listener
	local, remote netip.AddrPort // of the router's connection
	done          chan struct{}  // closed when both connections are
}

// flush is how long what one side said last may take to reach the other.
const flush = time.Second

func newRelay(router *net.TCPConn, patience time.Duration) (*relay, error) {
	var config net.ListenConfig
	inner, err := config.Listen(context.Background(), "tcp4", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, err
	}
	if err := inner.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	r := &relay{router: router, inner: inner, done: make(chan struct{})}
	r.local, r.remote = ends(router)
	go r.run()
	return r, nil
}

// port is where the server is to dial.
func (r *relay) port() uint16 { return unmapped(r.inner.Addr()).Port() }

func (r *relay) run() {
	defer close(r.done)
	defer func() { _ = r.router.Close() }()
	server := r.server()
	_ = r.inner.Close()
	if server == nil {
		return
	}
	defer func() { _ = server.Close() }()
	over := make(chan struct{}, 2)
	pass := func(to, from *net.TCPConn) {
		_, _ = io.Copy(to, from) // whatever ends it ends the session, which tells why
		_ = to.CloseWrite()
		over <- struct{}{}
	}
	go pass(r.router, server)
	go pass(server, r.router)
	<-over
	end := time.Now().Add(flush)
	_ = errors.Join(r.router.SetDeadline(end), server.SetDeadline(end))
	<-over
}

// server is the connection of our own server, nil if it does not come.
func (r *relay) server() *net.TCPConn {
	for {
		conn, err := r.inner.Accept()
		if err != nil {
			return nil
		}
		here, there := ends(conn)
		if ours(there, here) {
			return conn.(*net.TCPConn)
		}
		_ = conn.Close() // of another process
	}
}

// close ends it, after what was said last has arrived. It may be called for nil.
func (r *relay) close() {
	if r == nil {
		return
	}
	_ = r.inner.Close()
	timer := time.NewTimer(flush)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		_ = r.router.Close()
		<-r.done
	}
}

// await tells whom a passive session waits for, or why it cannot.
func (s *session) await(port uint16, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.identity.Passive || s.relay != nil:
	case trouble != nil:
		s.fail(trouble.Error())
	case s.status.LastError == "" || s.deaf:
		s.fail(fmt.Sprintf("waiting for %v to connect to TCP port %d of this node", s.identity.PeerAddress, port))
	}
	s.deaf = trouble != nil
}

// take begins a session on a connection that the router opened. If there is one already the
// router has lost it, as when it restarted (RFC 4724, 5).
func (s *session) take(conn *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leftAlone(time.Now()) {
		_ = conn.Close()
		return
	}
	if err := s.begin(conn); err != nil {
		_ = conn.Close()
		s.fail(fmt.Sprintf("the connection that %v opened cannot be used: %v", s.identity.PeerAddress, err))
	}
}

func (s *session) begin(conn *net.TCPConn) error {
	if s.ended {
		return errClosed
	}
	if s.status.Phase == Established {
		s.status.Phase = Idle
		s.tap.setLast(fmt.Sprintf("%v opened a new connection", s.identity.PeerAddress))
		s.lost()
	} else {
		s.redial() // one that was not yet up is given up
	}
	if err := setHopsOf(conn, s.identity.PeerAddress.Is6(), int(ttlSecurity(s.identity).GetTtlMin())); err != nil {
		return err
	}
	r, err := newRelay(conn, s.patience)
	if err != nil {
		return err
	}
	s.relay, s.status.Phase = r, Idle
	if err := s.daemon.over(r, s.routes, s.identity); err != nil {
		return err
	}
	return s.daemon.addPeer(s.identity)
}

func setHopsOf(conn *net.TCPConn, six bool, least int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	return errors.Join(raw.Control(func(fd uintptr) { failed = setHops(int(fd), six, least) }), failed)
}
