package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// listener accepts the connections of routers that dial. It is there only while a session is passive.
//
// The keys of TCP MD5 are set before it listens, and a change of them makes another one: a connection in
// the backlog may have come without the key.
type listener struct {
	keys    map[netip.Addr]view.Secret // by router, "" for none
	sockets []net.Listener
}

// listen opens or closes the listener as the sessions need it. The caller holds s.mu.
func (s *Speaker) listen() {
	wanted := map[netip.Addr]view.Secret{}
	for _, session := range s.sessions {
		if session.identity.Passive {
			wanted[session.identity.PeerAddress] = session.identity.Password
		}
	}
	var err error
	if s.listener == nil || !maps.Equal(s.listener.keys, wanted) {
		s.listener.close()
		if s.listener, err = s.open(wanted); err != nil {
			err = fmt.Errorf("cannot listen for routers on TCP port %d: %w", s.port, err)
		}
	}
	for _, session := range s.sessions {
		session.listening(s.port, err)
	}
}

func (s *Speaker) open(keys map[netip.Addr]view.Secret) (*listener, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	l := &listener{keys: keys}
	for _, family := range addr.Families() {
		ofFamily := maps.Clone(keys)
		maps.DeleteFunc(ofFamily, func(router netip.Addr, _ view.Secret) bool { return addr.FamilyOf(router) != family })
		if len(ofFamily) == 0 {
			continue
		}
		config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			return onSocket(raw, func(fd int) error { return prepareToListen(fd, family == addr.IPv6, ofFamily) })
		}}
		config.SetMultipathTCP(false) // the TTL and the key of one path say nothing of another
		network := "tcp4"
		if family == addr.IPv6 {
			network = "tcp6"
		}
		socket, err := config.Listen(context.Background(), network, fmt.Sprintf(":%d", s.port))
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: another BGP daemon of this node has it; give Fairlead another one (chart value speaker.bgpListenPort)", err)
		}
		if err != nil {
			l.close()
			return nil, err
		}
		l.sockets = append(l.sockets, socket)
		go s.accept(l, socket)
	}
	return l, nil
}

// prepareToListen sets the keys of routers of one family, and the TTL of the handshake.
func prepareToListen(fd int, six bool, keys map[netip.Addr]view.Secret) error {
	for router, key := range keys {
		if err := sign(fd, router, key); err != nil {
			return err
		}
	}
	return errors.Join(setTTL(fd, six, false), saveSYN(fd))
}

// close may be called for nil. Accepted connections go on.
func (l *listener) close() {
	if l == nil {
		return
	}
	for _, socket := range l.sockets {
		_ = socket.Close() // nothing was written to it
	}
}

func (s *Speaker) accept(l *listener, socket net.Listener) {
	const mostPause = time.Second
	var pause time.Duration
	for {
		conn, err := socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the router has closed it already, or the process has no more file descriptors
			if pause == mostPause/2 {
				s.log.Warn("the connections that routers open cannot be taken; it is tried again", "error", err)
			}
			pause = min(max(2*pause, mostPause/64), mostPause)
			time.Sleep(pause)
			continue
		}
		pause = 0
		if session := s.expecting(l, conn); session != nil {
			session.accept(conn.(*net.TCPConn))
		} else {
			_ = conn.Close() // of no router that a session waits for
		}
	}
}

// expecting returns the session that a connection is for; nil if there is none.
func (s *Speaker) expecting(l *listener, conn net.Conn) *session {
	local, remote := ends(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.listener != l {
		return nil // the keys have changed
	}
	for _, session := range s.sessions {
		id := session.identity
		if id.Passive && id.PeerAddress == remote.Addr() && (!id.SourceAddress.IsValid() || id.SourceAddress == local.Addr()) {
			return session
		}
	}
	return nil
}

// listening reports which router a passive session waits for, or why it cannot.
func (s *session) listening(port uint16, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.identity.Passive || s.relay != nil:
	case trouble != nil:
		s.fail(trouble.Error())
	case s.status.LastError == "" || s.unheard:
		s.fail(fmt.Sprintf("waiting for %v to connect to TCP port %d of this node", s.identity.PeerAddress, port))
	}
	s.unheard = trouble != nil
}

// accept begins a session on a connection that the router opened, or keeps the connection until all routes
// have come. Of several that it opened until then the last counts.
func (s *session) accept(conn *net.TCPConn) {
	if err := s.secure(conn); err != nil {
		_ = conn.SetLinger(0) // while its packets are dropped, a router cannot end it in order
		_ = conn.Close()
		s.explain(fmt.Sprintf("the connection that %v opened cannot be used: %v", s.identity.PeerAddress, err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ended {
		s.begin(conn)
		return
	}
	s.closeEarly()
	s.early = conn
}

// closeEarly closes a connection that the router opened too early. The caller holds s.mu.
func (s *session) closeEarly() {
	if s.early != nil {
		_ = s.early.Close()
		s.early = nil
	}
}

// secure sets the TTL of a connection that the router opened. Where the session asks for a TTL of 255, it
// refuses a connection that was not opened with that: the listener, which other routers use too, let it
// pass, and what came with the next packets can be read already.
func (s *session) secure(conn *net.TCPConn) error {
	err := onConnection(conn, func(fd int) error { return setTTL(fd, s.identity.PeerAddress.Is6(), s.identity.TTLSecurity) })
	if err != nil || !s.identity.TTLSecurity {
		return err
	}
	ttl, err := ttlOfSYN(conn)
	if err == nil && ttl < maxTTL {
		err = fmt.Errorf("it came with a TTL of %d, and lacks the TTL of 255 that ttlSecurity asks for", ttl)
	}
	return err
}
