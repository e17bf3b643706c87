package bfd

import (
	"time"
)

// Timing is what this side asks for in a session.
type Timing struct {
	Transmit   time.Duration // Desired Min TX Interval while Up
	Receive    time.Duration // Required Min RX Interval
	Multiplier uint8         // so many of our packets may be missed by the peer
	Passive    bool          // say nothing before the peer does
}

const (
	// slow is the least interval of packets while a session is not Up (RFC 5880, 6.8.3).
	slow = time.Second
	// unknown is the Required Min RX Interval of a peer that was not heard
	// (RFC 5880, 6.8.1).
	unknown = time.Microsecond
)

// machine is one session's state machine (RFC 5880, 6.8). It has no effects: it
// is told the time and what was heard, and gives what is to be sent.
type machine struct {
	timing Timing
	random func(n int64) int64 // 0 to n-1, for the jitter

	state State
	diag  Diag
	local uint32
	// What the peer said last; without a discriminator if that was longer ago
	// than the detection time.
	peer  Packet
	heard time.Time
	// quiet: until then a new session listens whether the peer takes it for Up, and so has one with
	// the process that was here before. Zero: it does not.
	quiet time.Time
	hold  time.Duration // the peer is asked to be patient for so long; see holdOn

	tx, rx         time.Duration // the intervals as packets have them
	usedTx, usedRx time.Duration // and as they are in effect until the peer knows
	// polling: the peer has yet to answer the bit P. again: the intervals have
	// changed since it was set first.
	polling, again bool

	sent    time.Time     // the last packet but answers to a poll; zero: none
	spacing time.Duration // the interval that due was drawn for
	due     time.Time

	ups, downs, failures uint64
}

func newMachine(t Timing, local uint32, now time.Time, listen time.Duration, random func(n int64) int64) *machine {
	m := &machine{timing: t, random: random, state: Down, local: local, peer: Packet{RequiredRx: unknown}, due: now}
	if listen > 0 {
		m.quiet = now.Add(listen)
	}
	m.negotiate()
	return m
}

// set takes over what this side asks for.
func (m *machine) set(now time.Time, t Timing) {
	m.timing = t
	m.negotiate()
	m.space(now)
}

// negotiate derives the intervals that packets ask for. While Up a change takes
// effect at once where it makes this side faster or more patient, and otherwise
// when the peer knows of it (RFC 5880, 6.8.3).
func (m *machine) negotiate() {
	tx, rx := m.timing.Transmit, m.timing.Receive
	if m.state != Up {
		tx = max(tx, slow)
	} else if m.hold > 0 {
		tx = max(tx, (m.hold+time.Duration(m.timing.Multiplier)-1)/time.Duration(m.timing.Multiplier))
	}
	switch {
	case m.state != Up:
		m.usedTx, m.usedRx, m.polling, m.again = tx, rx, false, false
	case tx != m.tx || rx != m.rx:
		m.usedTx, m.usedRx = min(m.usedTx, tx), max(m.usedRx, rx)
		m.polling, m.again = true, m.polling
	}
	m.tx, m.rx = tx, rx
}

// final takes in that the peer answered a poll.
func (m *machine) final() {
	switch {
	case !m.polling:
	case m.again:
		m.again = false
	default:
		m.polling, m.usedTx, m.usedRx = false, m.tx, m.rx
	}
}

// receive takes in a packet that is for this session, and gives what to send at
// once.
func (m *machine) receive(now time.Time, p Packet) []Packet {
	before := m.state
	if p.Your != 0 && p.Your != m.local || m.strange(p) {
		return nil
	}
	if !m.quiet.IsZero() {
		if m.quiet, m.due = (time.Time{}), now; p.Your != 0 && p.State == Up {
			m.state, m.ups = Up, m.ups+1
		}
	}
	m.peer, m.heard = p, now
	if p.Final {
		m.final()
	}
	if m.state == AdminDown {
		m.space(now)
		return nil
	}
	m.follow(p)
	m.negotiate()
	var out []Packet
	switch {
	case p.Poll:
		answer := m.packet()
		answer.Poll, answer.Final = false, true
		out = append(out, answer)
	case m.state != before:
		out = append(out, m.send(now))
	}
	m.space(now)
	return out
}

// strange tells whether a packet that names no session of ours comes from a peer that is not the one whose session is
// Up: any host of the network can send it in the peer's name. A peer that has begun anew has another discriminator,
// too, and is silent with the one that it had: it is heard once the detection time is over.
func (m *machine) strange(p Packet) bool { return m.state == Up && p.Your == 0 && p.My != m.peer.My }

// follow changes the state as RFC 5880 (6.2 and 6.8.6) says.
func (m *machine) follow(p Packet) {
	switch {
	case p.State == AdminDown && m.state != Down:
		m.fall(NeighborDown, false)
	case p.State == AdminDown:
	case m.state == Down && p.State == Down:
		m.state = Init
	case m.state == Down && p.State == Init, m.state == Init && p.State != Down:
		m.state, m.diag = Up, NoDiag
		m.ups++
	case m.state == Up && p.State == Down:
		m.fall(NeighborDown, true)
	}
}

// fall ends a session. It is a failure of the path unless the peer's
// administrator did it (RFC 5882, 3.2), or it was not Up.
func (m *machine) fall(why Diag, failure bool) {
	if m.state == Up {
		m.downs++
		if failure {
			m.failures++
		}
	}
	m.state, m.diag = Down, why
	m.hold = 0
}

// tick does what is due, and gives what to send.
func (m *machine) tick(now time.Time) []Packet {
	if end := m.expiry(); !end.IsZero() && !now.Before(end) {
		return m.expire(now)
	}
	if !m.quiet.IsZero() && !now.Before(m.quiet) {
		m.quiet = time.Time{}
	}
	if m.silent() || now.Before(m.due) {
		return nil
	}
	return []Packet{m.send(now)}
}

// impatient tells whether the time is over in which the peer was to be heard.
func (m *machine) impatient(now time.Time) bool {
	over := func(end time.Time) bool { return !end.IsZero() && !now.Before(end) }
	return over(m.expiry()) || over(m.quiet)
}

// expire takes in that the peer fell silent. What it asked for is forgotten: it
// may come back as another, and one that asked for nothing would never hear us.
func (m *machine) expire(now time.Time) []Packet {
	changed := m.state == Init || m.state == Up
	m.peer, m.heard = Packet{RequiredRx: unknown}, time.Time{}
	if changed {
		m.fall(Expired, true)
	}
	m.negotiate()
	m.space(now)
	if !changed || m.silent() {
		return nil
	}
	return []Packet{m.send(now)}
}

// end makes the session AdminDown, or lets it begin again.
func (m *machine) end(now time.Time, ended bool) {
	switch {
	case ended == (m.state == AdminDown):
		return
	case ended:
		if m.state == Up {
			m.downs++
		}
		m.state, m.diag = AdminDown, AdminOff
	default:
		m.state, m.diag = Down, NoDiag
	}
	m.quiet, m.hold = time.Time{}, 0
	m.negotiate()
	m.due, m.spacing = now, m.interval()
}

// holdOn asks the peer to wait for so long for the next packet, and 0 takes it
// back. The peer knows once polling is over.
func (m *machine) holdOn(now time.Time, d time.Duration) {
	if m.state != Up {
		return
	}
	m.hold = d
	m.negotiate()
	if m.polling {
		m.due, m.spacing = now, m.interval()
	}
}

// silent tells whether no packets may be sent but answers to a poll and changes
// of state (RFC 5880, 6.8.7).
func (m *machine) silent() bool {
	return !m.quiet.IsZero() ||
		m.timing.Passive && m.peer.My == 0 ||
		m.peer.RequiredRx == 0 ||
		m.peer.Demand && m.state == Up && m.peer.State == Up && !m.polling
}

// interval is that of the packets that are sent, before the jitter.
func (m *machine) interval() time.Duration { return max(m.usedTx, m.peer.RequiredRx) }

// jitter takes 0 to 25 % off an interval, and 10 % at least where the peer may
// miss no packet at all (RFC 5880, 6.8.7).
func (m *machine) jitter(d time.Duration) time.Duration {
	most := d
	if m.timing.Multiplier == 1 {
		most -= d / 10
	}
	return most - time.Duration(m.random(int64(most-d*3/4)+1))
}

// space moves the next packet when the interval has changed.
func (m *machine) space(now time.Time) {
	if m.spacing == m.interval() {
		return
	}
	m.spacing = m.interval()
	if m.due = now; !m.sent.IsZero() {
		m.due = m.sent.Add(m.jitter(m.spacing))
	}
}

func (m *machine) send(now time.Time) Packet {
	m.sent, m.spacing = now, m.interval()
	m.due = now.Add(m.jitter(m.spacing))
	return m.packet()
}

func (m *machine) packet() Packet {
	return Packet{
		Diag: m.diag, State: m.state, Poll: m.polling, Independent: true, Multiplier: m.timing.Multiplier,
		My: m.local, Your: m.peer.My, DesiredTx: m.tx, RequiredRx: m.rx,
	}
}

// detection is how long the peer may be silent (RFC 5880, 6.8.4).
func (m *machine) detection() time.Duration {
	return time.Duration(m.peer.Multiplier) * max(m.usedRx, m.peer.DesiredTx)
}

// expiry is when the peer's silence lasts too long, zero for never.
func (m *machine) expiry() time.Time {
	if m.heard.IsZero() {
		return time.Time{}
	}
	return m.heard.Add(m.detection())
}

// next is when tick has something to do; zero for not by itself.
func (m *machine) next() time.Time {
	next := m.expiry()
	for _, at := range []time.Time{m.quiet, m.periodic()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

func (m *machine) periodic() time.Time {
	if m.silent() {
		return time.Time{}
	}
	return m.due
}
