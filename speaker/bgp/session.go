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

// defaultOpenPatience limits the time between the TCP connection and Established. GoBGP
// waits four minutes for a peer that accepts and says nothing, as one does whose host
// restarted in between.
const defaultOpenPatience = 10 * time.Second

// route is one prefix as it was handed to the server.
type route struct {
	attrs    desired.RouteAttrs
	nextHop  netip.Addr
	draining bool // routers shall prefer any other path, since this one is about to go
}

func (r route) equal(o route) bool {
	return r.nextHop == o.nextHop && r.draining == o.draining && r.attrs.Equal(o.attrs)
}

// limits are what a session is given.
type limits struct {
	patience time.Duration // from the TCP connection to Established
	sendHold time.Duration // the least for which something said may stay untaken
	burst    int           // new routes that are handed to the server at once
}

// session is one BGP session: a server and its routes, and a relay while there is a
// connection with the router.
type session struct {
	name     string
	identity desired.Identity // as far as it takes another session to change it
	log      *slog.Logger
	notify   func()
	limits
	server  *serverLog
	daemon  *daemon
	traffic traffic
	events  chan *api.Peer
	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	calls   sync.WaitGroup // the goroutine that dials, if there is one
	retimed chan struct{}  // receives when interval is another
	stop    chan struct{}  // closed to end run
	stopped chan struct{}  // closed when run has ended
	down    chan struct{}  // closed when the session has left Established after ended
	done    chan struct{}  // closed when the session is off the wire

	mu        sync.Mutex
	ended     bool
	interval  time.Duration // from one attempt to reach the router to the next
	routes    map[netip.Prefix]route
	revision  uint64 // of the wanted routes that routes and backlog are, by hops; 0: unknown
	hops      nextHops
	backlog   map[netip.Prefix]route // wanted, and still to be handed to the server by fill
	dialed    bool                   // the router is looked for, or waited for
	early     *net.TCPConn           // the router opened it before it was waited for; nil for none
	deaf      bool                   // nobody listens for the router of a passive session
	relay     *relay                 // nil while there is no connection with the router
	stranded  map[netip.Prefix]error // wanted, and this node has no route for them, and why
	held      map[addr.Family]int    // how many routes there are
	accounted bool                   // status says what the router has been told of; false after a change
	told      map[addr.Family]error  // what the log knows to be unannounced, and why
	status    State
	failures  int // attempts in a row that failed before Established
}

func newSession(name string, id desired.Identity, l limits, log *slog.Logger, notify func()) (*session, error) {
	if err := validate(id); err != nil {
		return nil, err
	}
	s := &session{
		name: name, identity: id, log: log, notify: notify, limits: l,
		server:  &serverLog{log: log},
		events:  make(chan *api.Peer),
		retimed: make(chan struct{}, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
		down:    make(chan struct{}),
		done:    make(chan struct{}),
		routes:  map[netip.Prefix]route{},
		held:    map[addr.Family]int{},
		status:  State{Phase: Idle, Since: time.Now()},
	}
	var err error
	if s.daemon, err = startDaemon(id, s.server, s.events); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run()
	return s, nil
}

// run follows the session's state.
func (s *session) run() {
	defer close(s.stopped)
	for {
		select {
		case <-s.stop:
			return
		case peer := <-s.events:
			s.follow(peer)
		}
	}
}

// follow takes one change of state over.
func (s *session) follow(peer *api.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, is := s.status.Phase, phaseOf(peer.GetState().GetSessionState())
	if s.relay == nil || peer.GetConf().GetNeighborAddress() != s.relay.inside.String() || was == is {
		return // it is of a connection before
	}
	s.status.Phase = is
	switch {
	case is == Established:
		s.up()
	case was == Established:
		s.lost(s.relay.reason())
	case is == Idle:
		s.failures++
		s.fail(s.relay.reason())
		s.giveUp()
	case is == Active:
		relay, server := s.relay, s.daemon.at
		s.calls.Go(func() { s.link(relay, server) })
	}
}

func (s *session) up() {
	s.failures = 0
	s.status.Established++
	s.status.LastError, s.status.Overcome = "", s.status.LastError
	s.status.Since = time.Now()
	s.status.LocalAddress, s.status.Negotiated = s.relay.local.Addr().WithZone(""), s.relay.negotiated()
	s.accounted = false // the families may be others than before
	s.account()
	s.log.Info("BGP session is up", "address", s.relay.remote, "holdTime", s.status.HoldTime.String(), "gracefulRestart", s.status.GracefulRestart)
	s.notify()
}

func (s *session) lost(reason string) {
	s.status.Since = time.Now()
	s.status.LastError = reason
	s.status.IPv4, s.status.IPv6 = false, false
	s.status.Advertised, s.status.Prefixes, s.status.Unannounced = 0, nil, nil
	if s.ended {
		close(s.down)
		return
	}
	s.log.Warn("BGP session is down", "address", s.relay.remote, "reason", s.status.LastError)
	s.giveUp()
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
	s.lost(reason)
}

// giveUp ends what there is of a connection. The next one is for a fresh peer: GoBGP idles
// five seconds after every session, and comes back as a speaker that lost its forwarding
// state, which makes routers drop the routes they kept; a fresh peer does neither.
func (s *session) giveUp() {
	if s.relay == nil || s.ended {
		return
	}
	if err := s.daemon.deletePeer(s.relay); err != nil {
		s.log.Error("cannot give a connection up", "error", err)
	}
	close(s.relay.over)
	s.calls.Go(s.relay.close)
	s.relay = nil
	if s.status.Phase = Active; s.identity.Passive {
		s.status.Phase = Idle
	}
}

// giveUpOpening gives up a connection of which nothing has come for long enough, as when the
// router took it and then fell silent.
func (s *session) giveUpOpening(r *relay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay != r || s.status.Phase == Established {
		return
	}
	reason := fmt.Sprintf("%v accepts the connection, but does not open a BGP session within %v", s.identity.PeerAddress, s.patience)
	switch {
	case s.server.acceptFailed.Load():
		reason = fmt.Sprintf("the connection with %v cannot be used: the speaker could open no more files for it; it is tried again", s.identity.PeerAddress)
	case s.identity.TTLSecurity:
		reason += "; it may lack the TTL of 255 that ttlSecurity asks for"
	}
	s.fail(reason)
	r.resetOnClose()
	s.giveUp()
}

// explain takes over why the session does not come up.
func (s *session) explain(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Phase != Established {
		s.fail(reason)
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

// end closes the session for good: with a CEASE if withdraw, else silently. It
// returns when nothing of it is left, which is a little after done.
func (s *session) end(withdraw bool) {
	s.mu.Lock()
	s.ended = true
	s.dismiss()
	relay, up := s.relay, s.status.Phase == Established
	s.mu.Unlock()
	s.cancel()
	if !withdraw && relay != nil {
		s.closeSilently(relay, up)
	}
	close(s.stop)
	<-s.stopped
	if relay != nil {
		close(relay.over)
		s.calls.Go(relay.close) // what is said last has to arrive, but only for so long
	}
	s.daemon.stop()
	s.calls.Wait()
	close(s.done)
	s.daemon.free()
}

// closeSilently closes the connection as a dying process does, so that the peer
// keeps the routes. GoBGP itself knows only how to end with a CEASE. A session of which GoBGP
// has not said yet that it is up may be up for the router, and have routes there.
func (s *session) closeSilently(r *relay, up bool) {
	if err := r.closeSilently(); err != nil {
		s.log.Warn("the router may withdraw the routes: the connection could not be closed silently", "address", r.remote, "error", err)
	}
	if !up {
		return
	}
	select {
	case <-s.down:
	case <-time.After(time.Second):
	}
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
