package linkcheck

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// Config is what a Monitor is made of.
type Config struct {
	Node       string
	Interval   time.Duration // longest time between frames on an interface; 1 ms for each node where that is more
	Multiplier int           // so many intervals of silence count
	Seal       Sealer
	Log        *slog.Logger
	// Listen opens an interface; nil: a packet socket.
	Listen func(index int, i Interface) (Wire, error)
}

// Sealer makes datagrams that the nodes know for ours, and knows theirs; hello.Mesh does.
type Sealer interface {
	Seal(body []byte) [][]byte
	Unseal(datagram []byte) (body []byte, reason hello.Reason)
}

// Wire is an open interface.
type Wire interface {
	// Wait returns once there may be a datagram to take. It fails after Close.
	Wait() error
	// Take gives the next datagram of another station. It never blocks: come is false where there
	// is none. It is called by one at a time.
	Take(buffer []byte) (datagram []byte, come bool, err error)
	// Write sends a datagram to the group of the nodes.
	Write(datagram []byte) error
	Close() error
}

// reopenAfter is the pause before an interface that could not be opened, or that broke, is
// opened again.
const reopenAfter = time.Second

// Monitor keeps in touch with other nodes on some interfaces. Its methods may be called at
// any time, from several goroutines. It sends and hears nothing unless Run does.
type Monitor struct {
	cfg     Config
	changed chan struct{}
	again   chan struct{} // one slot: there may be something due sooner

	mu     sync.Mutex // guards what follows
	want   Wanted
	on     map[int]*attached
	ups    map[int]uint64 // how often interfaces had come up when they were last wanted
	status map[int]Status
	stats  Stats
	told   map[hello.Reason]bool // rejections that the log knows of
	buffer []byte                // for a datagram
}

// attached is an interface that is wanted.
type attached struct {
	is     Interface
	state  *mep
	wire   Wire // nil while it is not open
	failed string
	due    time.Time
	reopen time.Time
}

// New makes a monitor of no interface.
func New(cfg Config) *Monitor {
	if cfg.Listen == nil {
		cfg.Listen = listen
	}
	return &Monitor{
		cfg: cfg, changed: make(chan struct{}, 1), again: make(chan struct{}, 1),
		on: map[int]*attached{}, ups: map[int]uint64{}, status: map[int]Status{},
		stats: Stats{Rejected: map[hello.Reason]uint64{}}, told: map[hello.Reason]bool{}, buffer: make([]byte, 2048),
	}
}

// Set takes over the whole wanted state.
func (m *Monitor) Set(w Wanted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for index, a := range m.on {
		if is, wanted := w.On[index]; !wanted || is.Name != a.is.Name || is.Nth != a.is.Nth {
			a.close()
			delete(m.on, index)
			delete(m.status, index)
		}
	}
	for index, is := range w.On {
		a := m.on[index]
		before, known := m.ups[index]
		switch {
		case a == nil:
			early := !known || before == is.Ups
			a = &attached{state: newMEP(now, m.cfg.Node, is.Name, m.cfg.Interval, m.cfg.Multiplier, random, early)}
			m.on[index] = a
			signal.Send(m.again)
		case a.is.Ups != is.Ups:
			a.state.reset(now)
			a.due = now
			signal.Send(m.again)
		}
		if a.is.MAC.String() != is.MAC.String() { // it is the source of what the wire sends
			a.close()
			a.reopen = time.Time{}
		}
		a.is, m.ups[index] = is, is.Ups
	}
	m.want = Wanted{Nodes: maps.Clone(w.Nodes), On: maps.Clone(w.On)}
	m.publish()
}

// random gives 64 unguessable bits.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// Status is what is known of each interface that is wanted, by index. It is never written to.
func (m *Monitor) Status() map[int]Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.status)
}

// Changed has something to receive after Status has changed. It is for one reader.
func (m *Monitor) Changed() <-chan struct{} { return m.changed }

// Stats are the counters as of now.
func (m *Monitor) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Rejected = maps.Clone(s.Rejected)
	return s
}

// Run sends and hears until ctx ends. The sockets belong to the network namespace that it is
// called in.
func (m *Monitor) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		m.mu.Lock()
		next := m.tick(time.Now())
		m.mu.Unlock()
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, a := range m.on {
				a.close()
			}
			clear(m.on)
			return nil
		case <-m.again:
		case <-timer.C:
		}
	}
}

// tick does what is due, and says when it is to be called again. It needs mu. Silence counts as soon as it
// has lasted, and not at the next frame: that would be up to an interval later.
func (m *Monitor) tick(now time.Time) (next time.Time) {
	next = now.Add(time.Minute)
	for index, a := range m.on {
		if a.wire == nil && !now.Before(a.reopen) {
			m.open(now, index, a)
		}
		if due, until := !now.Before(a.due), a.state.until(now); due || !until.IsZero() && !now.Before(until) {
			m.drain(a)
			a.state.check(now)
			if due {
				m.send(a, a.state.next(now))
				a.due = now.Add(a.state.interval - time.Duration(mathrand.Int64N(int64(a.state.interval/5))))
			}
		}
		next = sooner(next, a.due)
		if until := a.state.until(now); !until.IsZero() {
			next = sooner(next, until)
		}
	}
	m.publish()
	return next
}

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// open opens an interface and hears what comes there until it is closed. It needs mu.
func (m *Monitor) open(now time.Time, index int, a *attached) {
	wire, err := m.cfg.Listen(index, a.is)
	if err != nil {
		a.reopen = now.Add(reopenAfter)
		if a.failed != err.Error() {
			a.failed = err.Error()
			m.cfg.Log.Error("cannot exchange frames with other nodes on an interface, trying again until it works", "interface", a.is.Name, "error", err)
		}
		return
	}
	a.wire, a.failed = wire, ""
	go m.read(index, wire)
}

// read hears until the interface is closed.
func (m *Monitor) read(index int, wire Wire) {
	for {
		err := wire.Wait()
		m.mu.Lock()
		a := m.on[index]
		mine := a != nil && a.wire == wire
		if mine && err != nil {
			m.breaks(a, err)
		} else if mine {
			m.drain(a)
		}
		open := mine && a.wire == wire
		m.publish()
		m.mu.Unlock()
		if !open {
			return
		}
	}
}

// drain hears what has come, and needs mu. What has come and is not heard before the
// clock is looked at would count as silence. Of a flood it hears only so much at a time.
func (m *Monitor) drain(a *attached) {
	const flood = 1024
	for i := 0; i < flood && a.wire != nil; i++ {
		datagram, come, err := a.wire.Take(m.buffer)
		if err != nil {
			m.breaks(a, err)
			return
		}
		if !come {
			return
		}
		m.hear(a, datagram)
	}
}

// breaks has an interface opened anew that cannot be read. It needs mu.
func (m *Monitor) breaks(a *attached, err error) {
	if errors.Is(err, unix.ENETDOWN) {
		return // told once when it goes down; the socket works on when it is up again
	}
	m.cfg.Log.Error("frames of other nodes cannot be read on an interface", "interface", a.is.Name, "error", err)
	a.close()
	a.reopen = time.Now().Add(reopenAfter)
}

// hear needs mu.
func (m *Monitor) hear(a *attached, datagram []byte) {
	m.stats.Received++
	body, reason := m.cfg.Seal.Unseal(datagram)
	var f ccm
	if reason == "" {
		f, reason = decode(body)
	}
	if reason == "" && f.Node == m.cfg.Node { // it came back, by a loop in the network or another interface of ours
		return
	}
	if reason == "" && !m.want.Nodes[f.Node] {
		reason = hello.ReasonUnknownNode
	}
	if reason == "" {
		reason = a.state.hear(time.Now(), f)
	}
	if reason == "" {
		return
	}
	m.stats.Rejected[reason]++
	switch reason {
	case hello.ReasonNoKey, hello.ReasonUnknownNode, hello.ReasonUnproven:
		return // normal while a node starts or joins
	}
	if !m.told[reason] {
		m.told[reason] = true
		m.cfg.Log.Warn("rejected a frame of another node; further ones are only counted", "reason", reason, "interface", a.is.Name, "node", f.Node)
	}
}

// send needs mu.
func (m *Monitor) send(a *attached, f ccm) {
	if a.wire == nil {
		return
	}
	for _, datagram := range m.cfg.Seal.Seal(f.encode()) {
		if err := a.wire.Write(datagram); err != nil {
			m.stats.SendErrors++
			continue
		}
		m.stats.Sent++
	}
}

// publish needs mu.
func (m *Monitor) publish() {
	for index, a := range m.on {
		if a.state.changed {
			m.status[index] = a.state.status()
			signal.Send(m.changed)
		}
	}
}

func (a *attached) close() {
	if a.wire != nil {
		_ = a.wire.Close() // the reader ends by it; there is nothing to do about an error
		a.wire = nil
	}
}
