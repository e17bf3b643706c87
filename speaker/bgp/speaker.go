// Package bgp announces addresses to routers: it runs the wanted sessions of a node on embedded GoBGP servers,
// one server a session, and reports their states. It dials, and listens only while a session is passive; it
// imports no route.
//
// A router's bytes do not reach GoBGP: a relay (relay.go) reads them, and its guard (guard.go) renders anew what
// GoBGP sees.
package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/desired"
)

// handOver is how long Apply waits for the end of sessions before it starts the new ones. Ending takes a
// millisecond with a peer that is alive; a dead one must not hold up the others.
const handOver = 250 * time.Millisecond

var errClosed = errors.New("the BGP speaker is closed")

// PeerError says that one session is not as wanted, or some prefixes on it are not.
type PeerError struct {
	Peer string // BGPPeer name
	Err  error  // names the prefixes if it is not about the whole session
}

// Error names the peer and the reason.
func (e *PeerError) Error() string { return fmt.Sprintf("BGPPeer/%s: %v", e.Peer, e.Err) }

// Unwrap returns the reason, the error Err.
func (e *PeerError) Unwrap() error { return e.Err }

// Speaker holds the BGP sessions of this node. Its methods may be called from any goroutine.
type Speaker struct {
	log     *slog.Logger
	changed chan struct{}
	limits
	port uint16 // of the listener for passive sessions

	mu       sync.Mutex
	applied  bool // Apply has been called
	closed   bool
	sessions map[string]*session // by BGPPeer name
	listener *listener           // nil if none is needed, or it cannot be opened
	// ending are former sessions that still close, which takes a second with a peer that does not read.
	ending map[*session]struct{}
}

// New returns a Speaker without sessions.
func New(log *slog.Logger) *Speaker {
	return &Speaker{
		log:      log,
		changed:  make(chan struct{}, 1),
		limits:   limits{defaultOpenPatience, leastSendHold, defaultBurst},
		port:     defaultPort,
		sessions: map[string]*session{},
		ending:   map[*session]struct{}{},
	}
}

// ListenOn sets another port than 179 for passive sessions. It must come before the first Apply.
func (s *Speaker) ListenOn(port uint16) { s.port = port }

// Changed receives when a session went up or down, or when the reason why it is down changed: once for
// changes that come together.
func (s *Speaker) Changed() <-chan struct{} { return s.changed }

func (s *Speaker) notify() {
	signal.Send(s.changed)
}

// Apply makes the sessions and their routes those wanted, by BGPPeer name. It does not wait for peers: an
// Established session has a route before Apply returns, and any other when it comes up. Of hundreds that are
// new together, most follow later, and those of the next Apply do not wait for them. The error joins *PeerErrors
// in the order of names, at most one a family; the rest is done nevertheless. States reports what is in
// place. A family that a session cannot carry is no error, but in States, and logged once.
//
// A session is restarted only when its identity changes. If both old and new reach the same neighbour and use
// graceful restart, the neighbour keeps the routes meanwhile; otherwise they are withdrawn.
func (s *Speaker) Apply(ctx context.Context, want map[string]desired.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.applied = true
	errs := map[string][]error{}
	// Routes of sessions that stay go first: traffic waits for these.
	names := slices.Sorted(maps.Keys(want))
	for _, name := range names {
		if have := s.sessions[name]; have != nil && have.identity == sessionIdentity(want[name].Identity) {
			errs[name] = have.apply(want[name])
		}
	}
	s.endUnwanted(ctx, want)
	for _, name := range names {
		if s.sessions[name] == nil {
			errs[name] = s.start(name, want[name])
		}
	}
	s.listen()
	var all []error
	for _, name := range names {
		all = append(all, errs[name]...)
	}
	return errors.Join(all...)
}

// endUnwanted ends the sessions that are gone or have a new identity, and waits a moment for that. The router keeps the routes of
// one where another, by whatever name, is wanted with it.
func (s *Speaker) endUnwanted(ctx context.Context, want map[string]desired.Session) {
	var ended []<-chan struct{}
	for name, have := range s.sessions {
		if next, ok := want[name]; ok && have.identity == sessionIdentity(next.Identity) {
			continue
		}
		restarts := false
		for _, next := range want {
			restarts = restarts || sameNeighbour(have.identity, sessionIdentity(next.Identity))
		}
		delete(s.sessions, name)
		ended = append(ended, s.end(have, !restarts))
	}
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	for _, done := range ended {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Speaker) start(name string, want desired.Session) []error {
	session, err := newSession(name, sessionIdentity(want.Identity), s.limits, s.log.With("peer", name), s.notify)
	if err != nil {
		return []error{&PeerError{Peer: name, Err: err}}
	}
	s.sessions[name] = session
	return session.apply(want)
}

// end closes a session in the background. The caller holds s.mu.
func (s *Speaker) end(session *session, withdraw bool) <-chan struct{} {
	s.ending[session] = struct{}{}
	go func() {
		session.end(withdraw)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ending, session)
	}()
	return session.done
}

// Cut ends the session with a peer at once if it is up, as when BFD is down, and dials anew. The reason is the
// State's LastError then. While the peer cannot be reached this may take a moment.
func (s *Speaker) Cut(peer, reason string) {
	s.mu.Lock()
	session := s.sessions[peer]
	s.mu.Unlock()
	if session != nil {
		session.cut(reason)
	}
}

// States returns the state of every session, by BGPPeer name; nil before the first Apply.
func (s *Speaker) States() map[string]State {
	s.mu.Lock()
	sessions, applied := maps.Clone(s.sessions), s.applied
	s.mu.Unlock()
	if !applied {
		return nil
	}
	states := make(map[string]State, len(sessions))
	for name, session := range sessions {
		states[name] = session.state()
	}
	return states
}

// Drain asks all routers to prefer other paths to what this node announces (graceful shutdown, RFC 8326), and
// gives them some time to change over while ours still work; none where no router has a route. It is for just
// before Close: the next Apply ends it. The error joins *PeerErrors for routes that could not be drained.
func (s *Speaker) Drain(ctx context.Context, grace time.Duration) error {
	s.mu.Lock()
	var errs []error
	waiting := false
	for _, session := range s.sessions {
		has, failed := session.drain()
		waiting = waiting || has
		errs = append(errs, failed...)
	}
	s.mu.Unlock()
	if waiting {
		s.log.Info("routers are asked to prefer other paths", "for", grace.String())
		select {
		case <-time.After(grace):
		case <-ctx.Done():
		}
	}
	return errors.Join(errs...)
}

// Close ends all sessions and waits for that until ctx is done, which is the only error. With withdraw, peers get a
// CEASE and drop the routes at once: for a planned stop. Without, connections just close, as when a process
// dies: a peer that agreed to graceful restart keeps the routes until the next speaker is back.
func (s *Speaker) Close(ctx context.Context, withdraw bool) error {
	s.mu.Lock()
	s.closed = true
	s.listener.close()
	var ended []<-chan struct{}
	for name, session := range s.sessions {
		s.end(session, withdraw)
		delete(s.sessions, name)
	}
	for session := range s.ending {
		ended = append(ended, session.done)
	}
	s.mu.Unlock()
	for i, done := range ended {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d BGP sessions were still closing: %w", len(ended)-i, len(ended), ctx.Err())
		}
	}
	return nil
}
