package hello

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/fairlead/internal/signal"
)

// A goodbye is sent so many times, so far apart, as no node acknowledges it.
const (
	goodbyes   = 3
	goodbyeGap = 5 * time.Millisecond
	relisten   = time.Second // between attempts to open the transport
)

// Mesh keeps the node in touch with all others. Its methods may be called at
// any time, from several goroutines.
type Mesh struct {
	cfg     Config
	view    atomic.Pointer[View]
	changed chan struct{}
	urgent  chan struct{} // one slot: say hello now, not at the next tick
	again   chan struct{} // one slot: the next tick may be sooner

	mu        sync.Mutex // guards what follows
	state     *machine
	transport Transport             // nil while not listening
	buf       []byte                // for a datagram
	failing   map[netip.Addr]string // sends that fail, and the error that the log knows of
	guard     guard
}

// New makes a mesh that is silent until Run and Set are called.
func New(cfg Config) (*Mesh, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Listen == nil {
		cfg.Listen = listenUDP
	}
	m := &Mesh{
		cfg:     cfg,
		changed: make(chan struct{}, 1),
		urgent:  make(chan struct{}, 1),
		again:   make(chan struct{}, 1),
		state:   newMachine(cfg, randomNonce),
		failing: map[netip.Addr]string{},
		buf:     make([]byte, 2*maxDatagram),
	}
	m.publish(time.Now())
	return m, nil
}

// randomNonce gives 64 unguessable bits that are not all 0.
func randomNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(binary.BigEndian.Uint64(b[:]), 1)
}

// jitter gives the time to the next hello: 80 to 100 % of the interval, so that
// nodes do not beat in step and a detection time always has room for as many
// hellos as the multiplier says (compare RFC 5880, 6.8.7). random(n) gives 0 to n-1.
func jitter(interval time.Duration, random func(n int64) int64) time.Duration {
	return interval - time.Duration(random(int64(interval/5)))
}

// Run speaks and listens until ctx ends. Where the port cannot be opened it
// says so and tries again. On the way out it asks the others to count this node
// as alive for MaxHold, unless it is leaving or Goodbye was called.
func (m *Mesh) Run(ctx context.Context) error {
	transport := m.listen(ctx)
	if transport == nil {
		return nil
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		m.receive(ctx, transport)
	}()
	m.mu.Lock()
	m.transport = transport
	m.state.listen(time.Now())
	m.mu.Unlock()

	m.speak(ctx)

	m.mu.Lock()
	parting := m.state.parting
	m.mu.Unlock()
	if !parting {
		m.Goodbye(MaxHold)
	}
	m.mu.Lock()
	m.transport = nil
	m.mu.Unlock()
	err := transport.Close()
	<-heard
	return err
}

// listen opens the transport, however long it takes. It gives nil once ctx ends.
func (m *Mesh) listen(ctx context.Context) Transport {
	var told string
	for {
		transport, err := m.cfg.Listen(ctx, m.cfg.Port)
		if err == nil {
			return transport
		}
		if told != err.Error() {
			told = err.Error()
			m.cfg.Log.Error("cannot listen for hellos, trying again until it works", "port", m.cfg.Port, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(relisten):
		}
	}
}

// speak sends the hellos and watches the time until ctx ends. No node is taken for silent
// before all was heard that had come by then.
func (m *Mesh) speak(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var due time.Time // of the next hello
	for {
		m.mu.Lock()
		now := time.Now()
		_ = m.drain(m.transport, flood) // receive tells the error
		m.state.check(now)
		if m.state.isDue(now, due) {
			m.send(m.state.hellos(now))
			m.state.left(time.Now())
			due = now.Add(jitter(m.state.interval, mathrand.Int64N))
		}
		for _, out := range m.state.rest(now) {
			m.send(out)
		}
		m.publish(now)
		timer.Reset(m.state.next(due).Sub(now))
		m.mu.Unlock()

		select {
		case <-ctx.Done():
			return
		case <-m.urgent:
			due = time.Time{}
		case <-m.again:
		case <-timer.C:
		}
	}
}

// receive hears until the transport is closed.
func (m *Mesh) receive(ctx context.Context, transport Transport) {
	var told string
	for {
		err := transport.Wait()
		if err == nil {
			m.mu.Lock()
			err = m.drain(transport, batch)
			if m.state.isPressing() {
				signal.Send(m.again)
			}
			m.publish(time.Now())
			m.mu.Unlock()
		}
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if told != err.Error() {
				told = err.Error()
				m.cfg.Log.Error("cannot receive hellos, trying again until it works", "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(m.cfg.Interval):
			}
		default:
			told = ""
		}
	}
}

// batch is how many datagrams are heard before what waits for mu gets its turn, and flood how many before hellos are
// sent that are due.
const (
	batch = 64
	flood = 4096
)

// drain hears what has come, and needs mu. A node whose hello waits here while check looks at
// the clock would be taken for silent. Of a flood it hears only so much at a time.
func (m *Mesh) drain(transport Transport, most int) error {
	begun := time.Now()
	m.state.resume(begun)
	defer func() { m.guarded(begun, transport) }()
	for range most {
		n, from, come, err := transport.Take(m.buf)
		if err != nil || !come {
			return err
		}
		now, strangers := time.Now(), m.ofStrangers()
		m.send(m.state.hear(now, m.buf[:n], from))
		m.guard.took(now, from.Addr(), m.ofStrangers() == strangers)
		m.confirm(transport)
	}
	return nil
}

// confirm passes on where our hellos get. It needs mu.
func (m *Mesh) confirm(transport Transport) {
	if c, can := transport.(confirmer); can {
		for _, to := range m.state.reached {
			c.Confirm(netip.AddrPortFrom(to, m.cfg.Port))
		}
	}
	m.state.reached = m.state.reached[:0]
}

// send needs mu, which also keeps the sequence in order on the wire.
func (m *Mesh) send(out outgoing) {
	if m.transport == nil {
		return
	}
	for _, datagram := range out.datagrams {
		for _, to := range out.to {
			err := m.transport.Send(netip.AddrPortFrom(to, m.cfg.Port), datagram)
			m.sent(to, err)
		}
	}
}

// sent counts and tells of a failure when it begins, changes and ends.
func (m *Mesh) sent(to netip.Addr, err error) {
	told, failed := m.failing[to]
	switch {
	case err == nil && !failed:
	case err == nil:
		delete(m.failing, to)
		m.cfg.Log.Info("hellos can be sent again", "to", to)
	case told != err.Error():
		m.failing[to] = err.Error()
		m.cfg.Log.Warn("cannot send hellos, trying again until it works", "to", to, "err", err)
	}
	if err != nil {
		m.state.stats.SendErrors++
		return
	}
	m.state.stats.Sent++
}

// publish needs mu, or that m is not in use yet.
func (m *Mesh) publish(now time.Time) {
	if !m.state.dirty {
		return
	}
	v := m.state.view(now)
	if last := m.view.Load(); last != nil {
		v.Version = last.Version + 1
	}
	m.view.Store(&v)
	signal.Send(m.changed)
}

// Set takes over the whole wanted state. The view follows at once; the others
// hear at once of a change in Serving, Unable, Leaving or Key.
func (m *Mesh) Set(w Wanted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.guard.takes(w.Peers)
	if m.state.set(now, w) {
		signal.Send(m.urgent)
	} else if !m.state.claimsDue().IsZero() {
		signal.Send(m.again)
	}
	for to := range m.failing {
		if !m.state.sendsTo(to) {
			delete(m.failing, to)
		}
	}
	m.publish(now)
}

// View gives the nodes that are alive now. It costs nothing, and must not be written to.
func (m *Mesh) View() View { return *m.view.Load() }

// Changed has something to receive after the view has changed. It is for one
// reader, and several changes may be one.
func (m *Mesh) Changed() <-chan struct{} { return m.changed }

// Goodbye tells the others that this process ends: either it restarts and they
// shall count the node as alive for hold, at most MaxHold; or, with 0, the node
// leaves and they take over at once. It is final, and returns when it was sent.
func (m *Mesh) Goodbye(hold time.Duration) {
	for i := range goodbyes {
		m.mu.Lock()
		now := time.Now()
		if i == 0 {
			m.state.part(now, hold)
		}
		m.send(m.state.hellos(now))
		for _, out := range m.state.rest(now) {
			m.send(out)
		}
		m.publish(now)
		m.mu.Unlock()
		if i < goodbyes-1 {
			time.Sleep(goodbyeGap)
		}
	}
}

// Stats are the counters and gauges as of now.
func (m *Mesh) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.figures()
}
