package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// defaultOpenPatience limits the time between the TCP connection and Established. GoBGP waits four minutes for
// a peer that accepts and says nothing, as after a restart of its host in between.
const defaultOpenPatience = 10 * time.Second

// route is one prefix as the server has it.
type route struct {
	attrs    desired.RouteAttrs
	nextHop  netip.Addr
	draining bool // the path is about to go: routers shall prefer any other (RFC 8326)
}

func (r route) equal(o route) bool {
	return r.nextHop == o.nextHop && r.draining == o.draining && r.attrs.Equal(o.attrs)
}

// limits are times and numbers that tests change.
type limits struct {
	openPatience time.Duration // from the TCP connection to Established
	sendHold     time.Duration // the least send hold time
	burst        int           // new routes that the server gets at once
}

// session is one BGP session: a server and its routes, and a relay while there is a connection with the
// router.
type session struct {
	name     string
	identity desired.Identity // without what can change during a session
	log      *slog.Logger
	notify   func()
	limits
	daemon  *daemon
	traffic traffic
	events  chan *api.Peer
	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	running sync.WaitGroup // the goroutines of the session
	retimed chan struct{}  // receives when interval has changed
	done    chan struct{}  // closed when nothing of the session is left

	mu         sync.Mutex
	ended      bool
	interval   time.Duration // between attempts to connect (ConnectRetryTimer)
	routes     map[netip.Prefix]route
	revision   uint64 // of the wanted routes that routes and backlog are, by hops; 0: unknown
	hops       nextHops
	backlog    map[netip.Prefix]route // wanted, and still to be given to the server by fill
	started    bool                   // it dials the router, or waits for its connection
	early      *net.TCPConn           // accepted before started; nil for none
	unheard    bool                   // there is no listener for a passive session
	relay      *relay                 // nil while there is no connection with the router
	unroutable map[netip.Prefix]error // wanted, and why this node has no route for them
	counts     map[addr.Family]int    // of routes
	accounted  bool                   // status has the announced routes; false after a change
	logged     map[addr.Family]error  // the families that the log says are unannounced, and why
	status     State
	failures   int    // attempts in a row that failed before Established
	parting    string // see relay
}

// newSession starts a session. The error says which setting is wrong, or is that of its server.
func newSession(name string, id desired.Identity, l limits, log *slog.Logger, notify func()) (*session, error) {
	if err := validate(id); err != nil {
		return nil, err
	}
	s := &session{
		name: name, identity: id, log: log, notify: notify, limits: l,
		events:  make(chan *api.Peer),
		retimed: make(chan struct{}, 1),
		done:    make(chan struct{}),
		routes:  map[netip.Prefix]route{},
		counts:  map[addr.Family]int{},
		status:  State{Phase: Idle, Since: time.Now()},
	}
	var err error
	if s.daemon, err = startDaemon(id, log, s.events); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.run)
	return s, nil
}

func (s *session) run() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case peer := <-s.events:
			s.follow(peer)
		}
	}
}

func (s *session) follow(peer *api.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, is := s.status.Phase, phaseOf(peer.GetState().GetSessionState())
	if s.relay == nil || peer.GetConf().GetNeighborAddress() != s.relay.inside.String() || was == is {
		return // it is of an earlier connection
	}
	s.status.Phase = is
	switch {
	case is == Established:
		s.up()
	case was == Established:
		s.down(s.relay.reason())
	case is == Idle:
		s.failures++
		s.fail(s.relay.reason())
		s.drop()
	case is == Active:
		relay, server := s.relay, s.daemon.at
		s.running.Go(func() { s.link(relay, server) })
	}
}

func (s *session) up() {
	s.failures, s.parting = 0, ""
	s.status.Established++
	s.status.LastError, s.status.Overcome = "", s.status.LastError
	s.status.Since = time.Now()
	s.status.LocalAddress, s.status.Negotiated = s.relay.local.Addr(), s.relay.negotiated()
	s.accounted = false // the families may be others than before
	s.account()
	s.log.Info("BGP session is up", "address", s.relay.remote, "holdTime", s.status.HoldTime.String(), "gracefulRestart", s.status.GracefulRestart)
	s.notify()
}

// down notes that a session is no longer Established, and drops its connection.
func (s *session) down(reason string) {
	s.status.Since = time.Now()
	s.status.LastError = reason
	if s.relay.isNotified() {
		s.parting = reason
	}
	s.status.IPv4, s.status.IPv6 = false, false
	s.status.Advertised, s.status.Prefixes, s.status.Unannounced = 0, nil, nil
	if s.ended {
		return
	}
	s.log.Warn("BGP session is down", "address", s.relay.remote, "reason", s.status.LastError)
	s.drop()
	s.notify()
}

// cut ends a session that is up, for a reason that TCP does not know of yet, and dials anew. The router
// gets a CEASE, if it gets anything.
func (s *session) cut(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.status.Phase != Established {
		return
	}
	s.status.Phase = Idle
	s.down(reason)
}

// drop ends what there is of a connection. The next one is for a new peer: GoBGP idles five seconds after
// every session, and comes back as a speaker that lost its forwarding state, so that routers would drop the
// routes that they kept; a new peer does neither.
func (s *session) drop() {
	if s.relay == nil || s.ended {
		return
	}
	if err := s.daemon.deletePeer(s.relay); err != nil {
		s.log.Error("cannot give a connection up", "error", err)
	}
	close(s.relay.over)
	s.running.Go(s.relay.close)
	s.relay = nil
	if s.status.Phase = Active; s.identity.Passive {
		s.status.Phase = Idle
	}
}

// openTimedOut drops a connection that is not Established in time, as when the router has accepted it
// and then fallen silent.
func (s *session) openTimedOut(r *relay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay != r || s.status.Phase == Established {
		return
	}
	reason := fmt.Sprintf("%v accepts the connection, but does not open a BGP session within %v", s.identity.PeerAddress, s.openPatience)
	switch {
	case s.daemon.log.acceptFailed.Load():
		reason = fmt.Sprintf("the connection with %v cannot be used: the speaker could open no more files for it; it is tried again", s.identity.PeerAddress)
	case s.identity.TTLSecurity:
		reason += "; it may lack the TTL of 255 that ttlSecurity asks for"
	}
	s.fail(reason)
	r.resetOnClose()
	s.drop()
}

// explain takes over why the session does not come up.
func (s *session) explain(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Phase != Established {
		s.fail(reason)
	}
}

// fail reports a reason once, not at each attempt.
func (s *session) fail(reason string) {
	if s.ended || reason == s.status.LastError {
		return
	}
	s.status.LastError = reason
	s.log.Warn("BGP session cannot come up", "address", s.identity.PeerAddress, "reason", reason)
	s.notify()
}

func (s *session) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Phase == Established {
		s.account()
	}
	state := s.status
	state.Pending = s.pending()
	state.Messages = s.traffic.messages()
	return state
}

// end closes the session for good: with a CEASE if withdraw, else as a dying process does, so that the router keeps
// the routes (RFC 4724). GoBGP sends a CEASE in any case, which a relay that is closed silently holds back.
func (s *session) end(withdraw bool) {
	s.mu.Lock()
	s.ended = true
	s.closeEarly()
	relay := s.relay
	s.mu.Unlock()
	s.cancel()
	if relay != nil {
		if !withdraw {
			if err := relay.closeSilently(); err != nil {
				s.log.Warn("the router may withdraw the routes: the connection could not be closed silently", "address", relay.remote, "error", err)
			}
		}
		close(relay.over)
		s.running.Go(relay.close)
	}
	s.daemon.stop()
	s.running.Wait()
	close(s.done)
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
