// Package bfd notices within milliseconds that the path to a router is broken:
// Bidirectional Forwarding Detection (RFC 5880) over one hop (RFC 5881) and over
// several (RFC 5883), in asynchronous mode, without echo and authentication.
//
// machine.go is the state machine and has no effects, udp.go is the wire, and
// Sessions joins the two. Packets carry the bit C (control plane independent): this runs in
// a process that goes on while the control plane (BGP) restarts, so a session that is down
// means that the node does not forward.
//
// # When the process restarts
//
// Peers cannot tell a restart from a death. So before a planned restart, Goodbye asks
// them, by a poll, to expect the next packet a good deal later. And a new session
// begins by listening: if the peer goes on with the session of the previous process, this
// one does so too, and neither side has been down. All processes of one boot of the machine give a session the
// same discriminator, by the key of the hellos, so that no other host and no pod of this one can guess it: what names another
// one is forged. A crash goes unnoticed in the same way if the new process is there within the peer's
// detection time; otherwise it is a failure.
package bfd

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
)

const (
	// listenFirst is how long a new session listens for a peer that goes on with
	// an earlier one. Most peers send at least once a second.
	listenFirst = 2 * time.Second
	// retryAfter is the pause before a socket that could not be opened is tried again.
	retryAfter = time.Second
	// partFor bounds how long AdminDown is told to the peer of a session that
	// nobody wants any more; it takes the peer's detection time (RFC 5880, 6.8.16).
	partFor = 10 * time.Second
)

// key tells sessions apart: a peer has one with each of our addresses.
type key struct {
	peer, local netip.Addr
	multiHop    bool
}

func keyOf(w desired.BFD) key { return key{w.Peer, w.Local, w.MultiHop} }

// meets tells whether a datagram is between these addresses, on whatever interface.
func (k key) meets(d datagram) bool {
	return k.multiHop == d.kind.multiHop && k.peer.WithZone("") == d.from && (!k.local.IsValid() || k.local.WithZone("") == d.to)
}

// session is a machine and its way to the peer.
type session struct {
	machine *machine
	want    desired.BFD
	out     sender    // nil: it could not be opened
	parting time.Time // it is AdminDown and ends then; zero: it is wanted
	since   time.Time
	// Why it cannot send; and the counts of Stats.
	trouble        string
	received, sent uint64
}

// Sessions runs any number of sessions. Its methods may be called by several
// goroutines. Set opens sockets in the network namespace of its caller.
type Sessions struct {
	log     *slog.Logger
	network network
	boot    []byte // which one it is; every pod of this machine knows it; nil: unknown
	secret  []byte // what discriminators are made from
	changed chan struct{}
	wake    chan struct{}

	mu        sync.Mutex
	all       map[key]*session
	names     map[string]key
	distances map[ends]distance // of peers that are far or near by the network
	listeners map[kind]listener
	deaf      map[kind]string // why one could not be opened
	rejected  map[Reason]uint64
	again     time.Time // sockets are to be tried again then; zero: all are open
}

// New makes a runner of no sessions.
func New(log *slog.Logger) *Sessions {
	s := newSessions(log, udp{}, []byte(crand.Text()))
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil { // else a restart is a failure of each session
		s.boot = boot
	}
	return s
}

func newSessions(log *slog.Logger, n network, secret []byte) *Sessions {
	return &Sessions{
		log: log, network: n, secret: secret, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		all: map[key]*session{}, names: map[string]key{}, listeners: map[kind]listener{},
		deaf: map[kind]string{}, rejected: map[Reason]uint64{},
	}
}

// Changed receives after a state changed, and when it is worth while to call Set
// again for a socket that could not be opened. It is for one receiver.
func (s *Sessions) Changed() <-chan struct{} { return s.changed }

// Set makes the sessions those wanted, by any name. Those of one peer and one
// local address are one session, which goes by the first name. One that is not
// wanted any more tells the peer AdminDown until the peer must have heard. The links are
// nil while they are not known; a session that goes by them waits until then. The secret is what all processes of this boot are
// told and no pod can know, from which the discriminators of new sessions are made. While it is empty, and none was known
// before, they are this process's alone.
func (s *Sessions) Set(secret view.Secret, want map[string]desired.BFD, have *links.Snapshot) {
	s.mu.Lock()
	s.take(secret)
	now := time.Now()
	wanted := map[key]desired.BFD{}
	s.names = make(map[string]key, len(want))
	s.measure(now, want, have)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w, known := s.placed(want[name])
		if !known {
			continue
		}
		s.names[name] = keyOf(w)
		if _, had := wanted[keyOf(w)]; !had {
			wanted[keyOf(w)] = w
		}
	}
	for k, w := range wanted {
		s.want(now, k, w)
	}
	for k, have := range s.all {
		if _, ok := wanted[k]; !ok && have.parting.IsZero() {
			s.part(now, have)
		}
	}
	surplus := s.open(now)
	s.measureAgain()
	s.mu.Unlock()
	for _, l := range surplus {
		_ = l.close() // it is read no more, whatever that says
	}
	signal.Send(s.wake)
}

// take takes in the secret. An empty one replaces none.
func (s *Sessions) take(secret view.Secret) {
	if secret != "" && s.boot != nil {
		s.secret = fmt.Appendf(nil, "%s %s", s.boot, string(secret))
	}
}

// want begins a session or changes the one that is there.
func (s *Sessions) want(now time.Time, k key, w desired.BFD) {
	t := Timing{Transmit: w.Transmit, Receive: w.Receive, Multiplier: w.Multiplier, Passive: w.Passive}
	have := s.all[k]
	if have == nil {
		s.all[k] = &session{machine: newMachine(t, s.discriminator(k), now, listenFirst, rand.Int64N), want: w, since: now}
		if before := s.all[k.otherwise()]; before != nil && w.HopsByNetwork {
			s.all[k].machine.failures = before.machine.failures // or one that was not told yet would be lost
		}
		return
	}
	if have.want == w && have.parting.IsZero() {
		return
	}
	have.want, have.parting = w, time.Time{}
	s.change(now, have, func(m *machine) []Packet {
		m.end(now, false)
		m.set(now, t)
		return nil
	})
}

// part tells the peer that the session ends on purpose.
func (s *Sessions) part(now time.Time, have *session) {
	s.change(now, have, func(m *machine) []Packet {
		m.end(now, true)
		return []Packet{m.send(now)}
	})
	m := have.machine
	have.parting = now.Add(min(time.Duration(m.timing.Multiplier)*m.interval(), partFor))
}

// discriminator returns the one of a session, which no other session has.
func (s *Sessions) discriminator(k key) uint32 {
	for salt := 0; ; salt++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %t %d", s.secret, k.peer, k.local, k.multiHop, salt))
		d := binary.BigEndian.Uint32(sum[:])
		taken := func(other *session) bool { return other.machine.local == d }
		if d != 0 && !slices.ContainsFunc(slices.Collect(maps.Values(s.all)), taken) {
			return d
		}
	}
}

// open opens the sockets that are missing, and returns those that nobody needs.
func (s *Sessions) open(now time.Time) []interface{ close() error } {
	var surplus []interface{ close() error }
	s.again = time.Time{}
	needed := map[kind]bool{}
	for k, have := range s.all {
		needed[kindOf(k)] = true
		if have.out != nil {
			continue
		}
		out, err := s.network.dial(k)
		if s.tell(&have.trouble, err, "peer", k.peer); err == nil {
			have.out = out
		} else {
			s.again = now.Add(retryAfter)
		}
	}
	for k := range needed {
		if s.listeners[k] != nil {
			continue
		}
		l, err := s.network.listen(k, &s.mu, s.hear)
		told := s.deaf[k]
		if s.tell(&told, err, "port", k.port()); err == nil {
			s.listeners[k] = l
			delete(s.deaf, k)
		} else {
			s.deaf[k], s.again = told, now.Add(retryAfter)
		}
	}
	for k, l := range s.listeners {
		if !needed[k] {
			surplus = append(surplus, l)
			delete(s.listeners, k)
		}
	}
	return surplus
}

// tell logs a trouble when it begins, changes and ends.
func (s *Sessions) tell(told *string, err error, about ...any) {
	switch text := words(err); {
	case text == *told:
	case err == nil:
		s.log.Info("BFD packets come and go again", about...)
		*told = ""
	default:
		s.log.Error("BFD packets cannot come and go, trying again until it works", append(about, "error", err)...)
		*told = text
	}
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Run sends, and watches the time, until ctx ends. Then the sockets are closed.
func (s *Sessions) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		s.mu.Lock()
		s.tick(now)
		next := s.next(now)
		s.mu.Unlock()
		timer.Reset(next.Sub(now))
		select {
		case <-ctx.Done():
			return s.close()
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// tick does what is due. Before it calls a peer silent, or one that goes on with an earlier
// session a stranger, it takes in what has come while this process had no processor.
func (s *Sessions) tick(now time.Time) {
	for _, have := range s.all {
		if have.machine.impatient(now) {
			for _, l := range s.listeners {
				l.drain()
			}
			now = time.Now()
			break
		}
	}
	for k, have := range s.all {
		if !have.parting.IsZero() && !now.Before(have.parting) {
			if have.out != nil {
				_ = have.out.close() // nothing is lost with it
			}
			delete(s.all, k)
			signal.Send(s.changed) // a listener may be needed no more
			continue
		}
		s.change(now, have, func(m *machine) []Packet { return m.tick(now) })
	}
	if !s.again.IsZero() && !now.Before(s.again) {
		s.again = time.Time{}
		signal.Send(s.changed)
	}
}

// next is when tick is due.
func (s *Sessions) next(now time.Time) time.Time {
	next := now.Add(time.Hour)
	sooner := func(at time.Time) {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	sooner(s.again)
	for _, have := range s.all {
		sooner(have.parting)
		sooner(have.machine.next())
	}
	return next
}

// change does something to a machine, sends what it gives, and tells of the
// state if that has changed.
func (s *Sessions) change(now time.Time, have *session, do func(*machine) []Packet) {
	m := have.machine
	state, detection := m.state, m.visible()
	for _, p := range do(m) {
		s.send(have, p)
	}
	if m.state != state {
		have.since = now
		level := slog.LevelInfo
		if state == Up && m.state == Down {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "BFD session changed", "peer", have.want.Peer,
			"state", m.state.String(), "before", state.String(), "why", m.diag.String(), "peerSays", m.peer.Diag.String())
	}
	if m.state != state || m.visible() != detection {
		signal.Send(s.changed)
	}
}

// visible is the detection time as Status has it.
func (m *machine) visible() time.Duration {
	if m.heard.IsZero() || m.state != Up {
		return 0
	}
	return m.detection()
}

func (s *Sessions) send(have *session, p Packet) {
	if have.out == nil {
		return
	}
	err := have.out.send(p.Append(nil))
	before := have.trouble
	if s.tell(&have.trouble, err, "peer", have.want.Peer); before != have.trouble {
		signal.Send(s.changed)
	}
	switch {
	case err == nil:
		have.sent++
	case have.want.Peer.Zone() != "":
		// The interface may have been made anew; then the socket is bound to one that is gone.
		_ = have.out.close()
		have.out, s.again = nil, time.Now().Add(retryAfter)
	}
}

func (s *Sessions) close() error {
	s.mu.Lock()
	var open []interface{ close() error }
	for _, have := range s.all {
		if have.out != nil {
			open = append(open, have.out)
		}
	}
	for _, l := range s.listeners {
		open = append(open, l)
	}
	s.all, s.names, s.listeners = map[key]*session{}, map[string]key{}, map[kind]listener{}
	s.mu.Unlock()
	var errs []error
	for _, o := range open {
		errs = append(errs, o.close())
	}
	return errors.Join(errs...)
}
