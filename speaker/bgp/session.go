package bgp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/lastwords"
)

const (
	// defaultOpenPatience limits the time between the TCP connection and
	// Established. GoBGP waits four minutes for a peer that accepts and says
	// nothing, as one does whose host restarted in between.
	defaultOpenPatience = 10 * time.Second
	// eagerAttempts is how often in a row a connection that fails before
	// Established is tried again at once (1 to 2 s); after that GoBGP idles
	// five seconds before each attempt, so that a misconfigured router is not
	// bothered for ever.
	eagerAttempts = 5
)

// route is one prefix as it was handed to the server.
type route struct {
	attrs    desired.RouteAttrs
	nextHop  netip.Addr
	draining bool // routers shall prefer any other path, since this one is about to go
}

func (r route) equal(o route) bool {
	return r.nextHop == o.nextHop && r.draining == o.draining && r.attrs.Equal(o.attrs)
}

// session is one BGP session: a server, its peer and its routes.
type session struct {
	name     string
	identity desired.Identity // without next hops
	log      *slog.Logger
	notify   func()
	patience time.Duration // from the TCP connection to Established
	burst    int           // new routes that are handed to the server at once
	tap      *tap
	daemon   *daemon
	crash    lastwords.Crash // of this process, by what the router sent
	events   chan *api.Peer
	stop     chan struct{} // closed to end run
	stopped  chan struct{} // closed when run has ended
	down     chan struct{} // closed when the session has left Established after ended
	done     chan struct{} // closed when the session is off the wire

	mu          sync.Mutex
	ended       bool
	routes      map[netip.Prefix]route
	backlog     map[netip.Prefix]route              // wanted, and still to be handed to the server by fill
	dialed      bool                                // the server has its peer, or need not have it yet
	deaf        bool                                // nobody listens for the router of a passive session
	relay       *relay                              // of a passive session whose router has dialed
	stranded    map[netip.Prefix]struct{}           // wanted, and this node has no next hop for them
	announced   map[netip.Prefix]desired.RouteAttrs // what the peer has been told of; nil after a change
	told        map[addr.Family]error               // what the log knows to be unannounced, and why
	status      State
	local, peer netip.AddrPort // ends of the connection, while Established
	connected   time.Time      // when it was Established; zero while it is not
	failures    int            // attempts in a row that failed before Established
	before      Messages       // of the peers that were deleted for dialing anew
}

func newSession(name string, id desired.Identity, openPatience time.Duration, burst int, crash lastwords.Crash, log *slog.Logger, notify func()) (*session, error) {
	if err := validate(id); err != nil {
		return nil, err
	}
	s := &session{
		name: name, identity: id, log: log, notify: notify, patience: openPatience, burst: burst, crash: crash,
		tap:     newTap(log, id),
		events:  make(chan *api.Peer),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
		down:    make(chan struct{}),
		done:    make(chan struct{}),
		routes:  map[netip.Prefix]route{},
		status:  State{Phase: Idle, Since: time.Now()},
	}
	var err error
	if s.daemon, err = startDaemon(name, id, s.tap, s.events); err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

// run follows the session's state.
func (s *session) run() {
	defer close(s.stopped)
	stuck := time.NewTimer(s.patience)
	stuck.Stop()
	defer stuck.Stop()
	for {
		select {
		case <-s.stop:
			return
		case peer := <-s.events:
			switch phase := s.follow(peer); phase {
			case OpenSent:
				stuck.Reset(s.patience)
			case OpenConfirm:
			default:
				stuck.Stop()
			}
		case <-s.tap.changed:
			s.explain()
		case cause := <-s.daemon.broken:
			s.mend(cause)
		case <-stuck.C:
			s.giveUpOpening()
		}
	}
}

// follow takes one change of state over.
func (s *session) follow(peer *api.Peer) Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, is := s.status.Phase, phaseOf(peer.GetState().GetSessionState())
	if was == is {
		return is
	}
	s.status.Phase = is
	switch {
	case is == Established:
		s.up(peer)
	case was == Established:
		s.lost()
	case is == Idle:
		s.failures++
		s.fail(s.tap.reason())
		if s.failures <= eagerAttempts || s.identity.Passive {
			s.redial()
		}
	}
	return is
}

func (s *session) up(event *api.Peer) {
	peer := s.daemon.peer()
	if asn := peer.GetState().GetPeerAsn(); s.identity.PeerASN == 0 && asn == s.identity.MyASN {
		s.refuse(fmt.Sprintf("%v is in our own autonomous system %d, and dynamicASN is external: set it to internal, or correct the AS of the router", s.identity.PeerAddress, asn))
		return
	}
	s.failures = 0
	s.connected = time.Now()
	s.local = addrPort(event.GetTransport().GetLocalAddress(), event.GetTransport().GetLocalPort())
	if s.identity.Interface != "" { // GoBGP does not tell an address with a zone
		s.local = netip.AddrPortFrom(s.identity.SourceAddress.WithZone(""), uint16(event.GetTransport().GetLocalPort()))
	}
	s.peer = netip.AddrPortFrom(s.identity.PeerAddress.WithZone(""), uint16(event.GetTransport().GetRemotePort()))
	if s.relay != nil {
		s.local, s.peer = s.relay.local, s.relay.remote
	}
	s.status.Established++
	s.status.LastError, s.status.Overcome = "", s.status.LastError
	s.status.Since = s.connected
	s.status.negotiated(peer, s.identity, s.local.Addr())
	s.announced = nil // the families may be others than before
	s.account()
	s.log.Info("BGP session is up", "address", s.peer, "holdTime", s.status.HoldTime.String(), "gracefulRestart", s.status.GracefulRestart)
	s.notify()
}

// refuse ends a session that GoBGP takes for good and that must not be. It is tried again
// after the five seconds for which GoBGP idles.
func (s *session) refuse(reason string) {
	s.status.Phase = Idle
	s.fail(reason)
	if s.identity.Passive {
		s.awaitAgain()
		return
	}
	if err := s.daemon.resetPeer(s.identity); err != nil {
		s.log.Error("cannot end a session that must not be", "error", err)
	}
}

func (s *session) lost() {
	s.connected = time.Time{}
	s.status.Since = time.Now()
	s.status.LastError = s.tap.reason()
	s.status.IPv4, s.status.IPv6 = false, false
	s.status.Advertised, s.status.Unannounced = 0, nil
	if s.ended {
		close(s.down)
		return
	}
	s.log.Warn("BGP session is down", "address", s.peer, "reason", s.status.LastError)
	s.redial()
	s.notify()
}

// cut ends a session that is up, for a reason that TCP does not know of yet, and
// dials anew. The peer gets a CEASE, if it gets anything.
func (s *session) cut(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.status.Phase != Established {
		return
	}
	s.status.Phase = Idle
	s.tap.setLast(reason)
	s.lost()
}

// redial replaces the peer by a fresh one. GoBGP idles five seconds after every
// session, and comes back as a speaker that lost its forwarding state, which
// makes the peer drop the routes it kept; a fresh peer does neither.
func (s *session) redial() {
	if s.ended {
		return
	}
	if s.identity.Passive {
		s.awaitAgain()
		return
	}
	s.before.add(messagesOf(s.daemon.peer()))
	if err := errors.Join(s.daemon.deletePeer(s.identity), s.daemon.addPeer(s.identity)); err != nil {
		s.log.Error("cannot dial anew", "error", err)
	}
}

// awaitAgain gives the connection up, and waits for the router to open another one.
func (s *session) awaitAgain() {
	if s.relay == nil {
		return
	}
	s.before.add(messagesOf(s.daemon.peer()))
	if err := s.daemon.deletePeer(s.identity); err != nil {
		s.log.Error("cannot give a connection up", "error", err)
	}
	go s.relay.close()
	s.relay = nil
}

// mend ends a session whose peer sent what GoBGP cannot stand.
func (s *session) mend(cause any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Error("the router sent what has no place in the session; it is ended and begun anew", "address", s.identity.PeerAddress, "cause", fmt.Sprint(cause))
	if err := s.daemon.resetPeer(s.identity); err != nil {
		s.log.Error("cannot end the session", "error", err)
	}
}

// giveUpOpening dials anew when a peer took the connection and then fell silent.
func (s *session) giveUpOpening() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Phase != OpenSent && s.status.Phase != OpenConfirm {
		return
	}
	s.status.Phase = Idle
	reason := fmt.Sprintf("%v accepts the connection, but does not open a BGP session within %v", s.identity.PeerAddress, s.patience)
	if s.identity.TTLSecurity {
		reason += "; it may lack the TTL of 255 that ttlSecurity asks for"
	}
	s.fail(reason)
	s.redial()
}

// explain takes over why the session does not come up.
func (s *session) explain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Phase != Established {
		s.fail(s.tap.reason())
	}
}

// fail tells a reason once, not at each attempt.
func (s *session) fail(reason string) {
	if s.ended || reason == s.status.LastError {
		return
	}
	s.status.LastError = reason
	s.log.Warn("BGP session cannot come up", "address", s.identity.PeerAddress, "reason", reason)
	s.notify()
}

// report tells what the peer has been told.
func (s *session) report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Phase != Established {
		return Report{}
	}
	s.account()
	return Report{Established: true, Announced: s.announced}
}

func (s *session) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Phase == Established {
		s.account()
	}
	state := s.status
	state.Messages = s.before
	if !s.ended {
		state.Messages.add(messagesOf(s.daemon.peer()))
	}
	return state
}

// end closes the session for good: with a CEASE if withdraw, else silently. It
// returns when nothing of it is left, which is a little after done.
func (s *session) end(withdraw bool) {
	s.mu.Lock()
	s.ended = true
	connected := s.connected
	s.mu.Unlock()
	if !withdraw && !connected.IsZero() {
		s.closeSilently()
	}
	close(s.stop)
	<-s.stopped
	s.daemon.stop()
	s.mu.Lock()
	relay := s.relay
	s.mu.Unlock()
	relay.close()
	close(s.done)
	if s.identity.GracefulRestart {
		// GoBGP may still call the server when its deferral timer fires.
		time.Sleep(time.Until(connected.Add(deferral + 100*time.Millisecond)))
	}
	s.daemon.free()
}

// closeSilently closes the connection as a dying process does, so that the peer
// keeps the routes. GoBGP itself knows only how to end with a CEASE.
func (s *session) closeSilently() {
	s.mu.Lock()
	local, peer := s.local, s.peer
	s.mu.Unlock()
	if err := hangUp(local, peer); err != nil {
		s.log.Warn("the peer will withdraw the routes: the connection could not be closed silently", "address", peer, "error", err)
		return
	}
	select {
	case <-s.down:
	case <-time.After(time.Second):
	}
}

func addrPort(addr string, port uint32) netip.AddrPort {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.AddrPort{} // never: it comes from a connected socket
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(port))
}

func phaseOf(state api.PeerState_SessionState) Phase {
	switch state {
	case api.PeerState_ESTABLISHED:
		return Established
	case api.PeerState_OPENCONFIRM:
		return OpenConfirm
	case api.PeerState_OPENSENT:
		return OpenSent
	case api.PeerState_ACTIVE, api.PeerState_CONNECT:
		return Active
	default:
		return Idle
	}
}
