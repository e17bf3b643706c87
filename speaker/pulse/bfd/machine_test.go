package bfd

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var fast = Timing{Transmit: 50 * time.Millisecond, Receive: 50 * time.Millisecond, Multiplier: 3}

// none is no jitter at all.
func none(int64) int64 { return 0 }

var epoch = time.Unix(1000, 0)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// said is a packet of a peer with discriminator 9 and fast timing.
func said(s State, yours uint32) Packet {
	return Packet{
		State: s, My: 9, Your: yours, Multiplier: 3, DesiredTx: 50 * time.Millisecond, RequiredRx: 50 * time.Millisecond,
	}
}

// upMachine is Up since at(0), and both sides know the intervals.
func upMachine(t *testing.T, timing Timing) *machine {
	t.Helper()
	m := newMachine(timing, 7, epoch, 0, none)
	m.receive(epoch, said(Down, 0))
	m.receive(epoch, said(Init, 7))
	final := said(Up, 7)
	final.Final = true
	m.receive(epoch, final)
	if m.state != Up || m.polling || m.usedTx != timing.Transmit {
		t.Fatalf("not up: %+v", m)
	}
	return m
}

// TestStates: what RFC 5880 (6.2, 6.8.6) says of each state and what is heard in it.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		from, heard, want State
		diag              Diag
	}{
		{Down, AdminDown, Down, NoDiag},
		{Down, Down, Init, NoDiag},
		{Down, Init, Up, NoDiag},
		{Down, Up, Down, NoDiag},
		{Init, AdminDown, Down, NeighborDown},
		{Init, Down, Init, NoDiag},
		{Init, Init, Up, NoDiag},
		{Init, Up, Up, NoDiag},
		{Up, AdminDown, Down, NeighborDown},
		{Up, Down, Down, NeighborDown},
		{Up, Init, Up, NoDiag},
		{Up, Up, Up, NoDiag},
		{AdminDown, Down, AdminDown, AdminOff},
		{AdminDown, Up, AdminDown, AdminOff},
	} {
		m := newMachine(fast, 7, epoch, 0, none)
		m.state = c.from
		if c.from == AdminDown {
			m.state = Up
			m.end(epoch, true)
		}
		m.receive(at(1), said(c.heard, 7))
		if m.state != c.want || m.diag != c.diag {
			t.Errorf("%v hears %v: %v (%v), want %v (%v)", c.from, c.heard, m.state, m.diag, c.want, c.diag)
		}
		if failed := c.from == Up && c.heard == Down; (m.failures == 1) != failed {
			t.Errorf("%v hears %v: %d failures", c.from, c.heard, m.failures)
		}
	}
}

func TestOthersSessionsAreNotTaken(t *testing.T) {
	m := upMachine(t, fast)
	if out := m.receive(at(1), said(Down, 8)); out != nil || m.state != Up || !m.heard.Equal(epoch) {
		t.Errorf("a packet for another session counted: %+v", m)
	}
}

// TestASessionIsNotEndedInThePeersName: a packet without our discriminator and with another than the peer's is any
// host's, until the peer is silent. The peer may forget ours when it hears us no more (RFC 5880, 6.8.1).
func TestASessionIsNotEndedInThePeersName(t *testing.T) {
	for _, s := range []State{Down, AdminDown} {
		m := upMachine(t, fast)
		forged := said(s, 0)
		forged.My = 8
		for i := 0; i < 1000; i += 20 {
			m.receive(at(i), said(Up, 7))
			if out := m.receive(at(i+1), forged); out != nil || m.state != Up || m.peer.My != 9 {
				t.Fatalf("%v of a stranger counts: %+v", s, m)
			}
		}
		m.tick(at(980 + 150))
		if m.state != Down || m.diag != Expired {
			t.Errorf("the peer is silent since it began anew: %+v", m)
		}
		if m.receive(at(1200), forged); m.peer.My != 8 {
			t.Errorf("and it is not heard: %+v", m)
		}
		m = upMachine(t, fast)
		if m.receive(at(1), said(s, 0)); m.state != Down || m.diag != NeighborDown {
			t.Errorf("%v of the peer itself does not count: %+v", s, m)
		}
	}
}

func TestSlowUntilUp(t *testing.T) {
	m := newMachine(fast, 7, epoch, 0, none)
	if out := m.tick(epoch); len(out) != 1 || out[0].DesiredTx != time.Second || out[0].State != Down || !out[0].Independent {
		t.Fatalf("first said %+v", out)
	}
	if out := m.tick(at(999)); out != nil {
		t.Errorf("and within a second %+v", out)
	}
	if m.tick(at(1000)) == nil {
		t.Error("and nothing more")
	}
	m.receive(at(1100), said(Init, 7))
	out := m.tick(at(1150))
	if m.state != Up || len(out) != 1 || !out[0].Poll || out[0].DesiredTx != fast.Transmit {
		t.Errorf("Up is told as %+v", out)
	}
	m.end(at(1200), true)
	if p := m.packet(); p.DesiredTx < time.Second || p.State != AdminDown || p.Diag != AdminOff || p.Poll {
		t.Errorf("AdminDown is told as %+v", p)
	}
}

// TestPolling: a change of intervals counts when the other side knows (RFC 5880, 6.8.3).
func TestPolling(t *testing.T) {
	m := upMachine(t, fast)
	slower := fast
	slower.Transmit, slower.Receive = 200*time.Millisecond, 20*time.Millisecond
	m.set(at(10), slower)
	if p := m.packet(); !p.Poll || p.DesiredTx != slower.Transmit || p.RequiredRx != slower.Receive {
		t.Errorf("told as %+v", p)
	}
	if m.interval() != fast.Transmit || m.detection() != 150*time.Millisecond {
		t.Errorf("it counts before the peer knows: every %v, patient for %v", m.interval(), m.detection())
	}
	answer := said(Up, 7)
	answer.Final, answer.DesiredTx = true, 30*time.Millisecond
	m.receive(at(20), answer)
	if m.polling || m.interval() != 200*time.Millisecond || m.detection() != 90*time.Millisecond {
		t.Errorf("after the answer: polling %t, every %v, patient for %v", m.polling, m.interval(), m.detection())
	}

	m.set(at(30), fast) // faster to send, and more patient: at once
	if m.interval() != fast.Transmit || m.detection() != 150*time.Millisecond || !m.polling {
		t.Errorf("back again: polling %t, every %v, patient for %v", m.polling, m.interval(), m.detection())
	}
	m.set(at(31), slower) // while that is polled for
	m.receive(at(40), answer)
	if !m.polling {
		t.Error("the answer to the first change was taken for that to the second")
	}
	if m.receive(at(50), answer); m.polling {
		t.Error("still polling")
	}
}

func TestPollsAreAnsweredAlways(t *testing.T) {
	question := said(Up, 7)
	question.Poll = true
	question.RequiredRx = 0
	m := upMachine(t, fast)
	m.set(at(1), Timing{Transmit: time.Second, Receive: fast.Receive, Multiplier: 3}) // we poll as well
	out := m.receive(at(2), question)
	if len(out) != 1 || !out[0].Final || out[0].Poll {
		t.Errorf("answered by %+v", out)
	}
}

func TestThePeerDecidesHowOftenItHears(t *testing.T) {
	m := upMachine(t, fast)
	slow := said(Up, 7)
	slow.RequiredRx, slow.DesiredTx = 400*time.Millisecond, time.Second
	m.receive(at(0), slow)
	m.tick(at(400))
	if !m.due.Equal(at(800)) {
		t.Errorf("the next after 400ms is due %v after it", m.due.Sub(at(400)))
	}
	slow.RequiredRx = 0
	m.receive(at(401), slow)
	if out := m.tick(at(500)); out != nil || !m.periodic().IsZero() {
		t.Errorf("a peer that wants nothing gets %+v", out)
	}
	if !m.next().Equal(m.expiry()) {
		t.Error("and it is not watched any more")
	}
	m.tick(at(10000)) // it died, and whoever comes after it has to hear us
	if out := m.tick(at(11000)); len(out) != 1 || m.state != Down {
		t.Errorf("the next peer hears %+v", out)
	}
}

func TestDemand(t *testing.T) {
	m := upMachine(t, fast)
	demand := said(Up, 7)
	demand.Demand = true
	m.receive(at(1), demand)
	if out := m.tick(at(100)); out != nil {
		t.Errorf("periodic packets in demand mode: %+v", out)
	}
	m.set(at(110), Timing{Transmit: 70 * time.Millisecond, Receive: 50 * time.Millisecond, Multiplier: 3})
	if out := m.tick(at(140)); len(out) != 1 || !out[0].Poll {
		t.Errorf("a change is told by %+v", out)
	}
}

func TestPassive(t *testing.T) {
	m := newMachine(Timing{Transmit: fast.Transmit, Receive: fast.Receive, Multiplier: 3, Passive: true}, 7, epoch, 0, none)
	if out := m.tick(at(5000)); out != nil {
		t.Errorf("a passive side speaks first: %+v", out)
	}
	if out := m.receive(at(5001), said(Down, 0)); len(out) != 1 || out[0].State != Init || out[0].Your != 9 {
		t.Errorf("spoken to it says %+v", out)
	}
}

func TestDetection(t *testing.T) {
	m := upMachine(t, fast)
	late := said(Up, 7)
	late.Multiplier, late.DesiredTx = 5, 80*time.Millisecond
	m.receive(at(10), late)
	m.tick(at(409))
	if m.state != Up {
		t.Fatal("down before five times 80ms have passed")
	}
	out := m.tick(at(410))
	if m.state != Down || m.diag != Expired || m.failures != 1 || len(out) != 1 || out[0].State != Down || out[0].Your != 0 {
		t.Errorf("%v (%v), says %+v", m.state, m.diag, out)
	}
}

// TestJitter: 75 to 100 %, and at most 90 % when no packet may be lost.
func TestJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1000, int64(time.Minute)).Draw(t, "interval"))
		m := machine{timing: Timing{Multiplier: uint8(rapid.IntRange(1, 255).Draw(t, "multiplier"))}}
		m.random = func(n int64) int64 { return rapid.Int64Range(0, n-1).Draw(t, "jitter") }
		most := d
		if m.timing.Multiplier == 1 {
			most = d - d/10
		}
		if got := m.jitter(d); got < d*3/4 || got > most {
			t.Fatalf("%v became %v, want %v to %v", d, got, d*3/4, most)
		}
	})
}

// TestResume: a new process goes on with the session that the peer still has, and with no other one that is named in
// the peer's name.
func TestResume(t *testing.T) {
	m := newMachine(fast, 7, epoch, listenFirst, none)
	if out := m.tick(at(1999)); out != nil {
		t.Fatalf("it speaks before it has listened: %+v", out)
	}
	if out := m.receive(at(1999), said(Up, 55)); out != nil || m.state != Down || m.local != 7 {
		t.Errorf("told of a session that it cannot have had, it is %v as %d, and says %+v", m.state, m.local, out)
	}
	out := m.receive(at(1999), said(Up, 7))
	if m.state != Up || m.local != 7 || len(out) != 1 || out[0].State != Up || out[0].My != 7 || out[0].Your != 9 || !out[0].Poll {
		t.Errorf("%v as %d, says %+v", m.state, m.local, out)
	}
	cold := newMachine(fast, 7, epoch, listenFirst, none)
	if out := cold.receive(at(10), said(Down, 0)); cold.state != Init || len(out) != 1 {
		t.Errorf("a peer that begins is answered by %+v", out)
	}
	if out := newMachine(fast, 7, epoch, listenFirst, none).tick(at(2000)); len(out) != 1 {
		t.Errorf("after listening in vain it says %+v", out)
	}
}

func TestHoldOn(t *testing.T) {
	m := upMachine(t, fast)
	m.holdOn(at(1), time.Minute)
	out := m.tick(at(1))
	if len(out) != 1 || !out[0].Poll || out[0].DesiredTx != 20*time.Second || m.interval() != fast.Transmit {
		t.Fatalf("says %+v, every %v", out, m.interval())
	}
	answer := said(Up, 7)
	answer.Final = true
	if m.receive(at(2), answer); m.polling {
		t.Error("the peer knows, and is asked still")
	}
}

// TestTwoMachines: over a link that loses, doubles and delays packets, two sides
// with any timing come up once it is good; neither is up alone for longer than the
// detection times; and when one falls silent the other is down within one.
func TestTwoMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.loss = rapid.IntRange(0, 90).Draw(t, "percent lost")
		w.run(time.Duration(rapid.IntRange(0, 20000).Draw(t, "ms of it")) * time.Millisecond)
		w.loss = 0
		w.run(20 * time.Second)
		for i, m := range w.sides {
			if m.state != Up {
				t.Fatalf("side %d is %v after 20 s of a good link", i, m.state)
			}
			if m.polling {
				t.Fatalf("side %d polls still", i)
			}
		}
		silent := rapid.IntRange(0, 1).Draw(t, "who falls silent")
		other := w.sides[1-silent]
		w.mute = silent + 1
		w.run(w.delay) // what is on its way arrives
		within := other.detection()
		w.run(within)
		if other.state == Up {
			t.Fatalf("the other side is Up %v after the last packet", within)
		}
	})
}

// world is two machines and what is on its way between them.
type world struct {
	t     *rapid.T
	rand  *rand.Rand
	now   time.Time
	sides [2]*machine
	way   []flying
	delay time.Duration // at most
	loss  int           // percent
	mute  int           // 1 + the side whose packets are all lost
	// Since when a side is up while the other is not, and how long it may be.
	alone [2]time.Time
	bound [2]time.Duration
}

type flying struct {
	at time.Time
	to int
	p  Packet
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: epoch, rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
	ms := func(least, most int, what string) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, what)) * time.Millisecond
	}
	w.delay = ms(0, 4, "delay")
	for i := range w.sides {
		side := fmt.Sprintf(" of side %d", i)
		w.sides[i] = newMachine(Timing{
			Transmit: ms(50, 1500, "transmit"+side), Receive: ms(50, 1500, "receive"+side),
			Multiplier: uint8(rapid.IntRange(2, 6).Draw(t, "multiplier"+side)),
			Passive:    i == 1 && rapid.Bool().Draw(t, "passive"),
		}, uint32(100+i), w.now, ms(0, 2000, "listening"+side), w.rand.Int64N)
	}
	return w
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); ; {
		next := end
		for _, m := range w.sides {
			if at := m.next(); !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		for _, f := range w.way {
			if f.at.Before(next) {
				next = f.at
			}
		}
		if next.After(w.now) {
			w.now = next
		}
		w.step()
		if !w.now.Before(end) {
			return
		}
	}
}

func (w *world) step() {
	var rest []flying
	arrived := w.way
	w.way = nil
	for _, f := range arrived {
		if f.at.After(w.now) {
			rest = append(rest, f)
			continue
		}
		w.send(f.to, w.sides[f.to].receive(w.now, f.p))
	}
	w.way = append(w.way, rest...)
	for i, m := range w.sides {
		w.send(i, m.tick(w.now))
	}
	for i, m := range w.sides {
		if m.state != Up || w.sides[1-i].state == Up {
			w.alone[i], w.bound[i] = time.Time{}, 0
			continue
		}
		if w.alone[i].IsZero() {
			w.alone[i] = w.now
		}
		// The other side may have lost all of ours since it was Init, and says so
		// for its detection time; we may lose all that it says after that for ours.
		w.bound[i] = max(w.bound[i], m.detection()+w.sides[1-i].detection()+2*w.delay)
		if alone := w.now.Sub(w.alone[i]); alone > w.bound[i] {
			w.t.Fatalf("side %d is Up alone for %v; the two detection times make %v", i, alone, w.bound[i])
		}
	}
}

func (w *world) send(from int, packets []Packet) {
	for _, p := range packets {
		read, err := Parse(p.Append(nil))
		if err != nil {
			w.t.Fatalf("side %d says %+v: %v", from, p, err)
		}
		for copies := 1 + w.rand.IntN(2); copies > 0; copies-- {
			if w.mute == from+1 || w.rand.IntN(100) < w.loss {
				continue
			}
			w.way = append(w.way, flying{w.now.Add(time.Duration(w.rand.Int64N(int64(w.delay) + 1))), 1 - from, read})
		}
	}
}
