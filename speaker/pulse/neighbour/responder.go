package neighbour

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/fairlead/internal/signal"
)

// Stats are the counts of a Responder since its start.
type Stats struct {
	Answers       uint64 // questions answered
	Announcements uint64 // frames sent to tell that an address is here
	Probes        uint64 // frames sent to ask whether an address is free
	ParseErrors   uint64 // frames that were not well-formed
	Conflicts     uint64 // frames in which another station claimed an address of ours
	SendErrors    uint64 // frames that the kernel did not take
	Dropped       uint64 // frames that came and were not read, for there were too many at once
}

type counters struct {
	answers, announcements, probes, parseErrors, conflicts, sendErrors atomic.Uint64
	// dropped are those of interfaces that were closed.
	dropped atomic.Uint64
}

// Responder answers on a set of interfaces by one protocol. Its methods may be
// called by several goroutines; Open and Answer open sockets in the network
// namespace of their caller.
type Responder struct {
	protocol Protocol
	log      *slog.Logger
	count    counters
	claims   claims

	mu     sync.Mutex
	ports  map[int]*port // by interface index
	broken chan struct{}
}

// New makes a responder that answers nothing.
func New(p Protocol, log *slog.Logger) *Responder {
	return &Responder{
		protocol: p, log: log, ports: map[int]*port{},
		broken: make(chan struct{}, 1), claims: claims{news: make(chan struct{}, 1)},
	}
}

// Open makes the responder listen on exactly the interfaces wanted, which shows
// whether it could answer there before anybody relies on it. It answers nothing
// on new ones until Answer says so; where the MAC or Ups changed, everything is
// announced again.
//
// An interface that cannot be opened does not hold up the others: the result
// has the error of each that is not in place, by index. It is worth another try
// later.
func (r *Responder) Open(want []Interface) map[int]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := make(map[int]bool, len(want))
	for _, i := range want {
		wanted[i.Index] = true
	}
	for index, open := range r.ports {
		if !wanted[index] || open.dead.Load() || open.wire.Gone() {
			open.close()
			delete(r.ports, index)
		}
	}
	failed := map[int]error{}
	for _, i := range want {
		if err := r.open(i); err != nil {
			failed[i.Index] = fmt.Errorf("listen for %s on %s: %w", r.protocol, i.Name, err)
		}
	}
	return failed
}

// open brings one interface in place.
func (r *Responder) open(i Interface) error {
	if open := r.ports[i.Index]; open != nil {
		return open.describe(i)
	}
	open, err := listen(r.protocol, i, &r.count, &r.claims, r.readerDied)
	if err != nil {
		return err
	}
	r.ports[i.Index] = open
	return nil
}

// Answer makes the open interfaces answer for exactly these addresses, all of
// the protocol's family, by interface index. An address that is new on an
// interface is announced to the segment from now on; one that is no longer
// wanted is not answered for when Answer returns, but for a reply that is on its
// way. Interfaces that are not open are left out.
//
// Who claims an address that is answered for, or one that is probed, is heard and told
// by Claims. Those that are probed are not answered for.
//
// An address that is answered for and that has an interval in every is announced again
// after each, from when the announcements of the takeover are over.
func (r *Responder) Answer(want, probed map[int][]netip.Addr, every map[netip.Addr]time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for index, open := range r.ports {
		if err := open.answer(want[index], probed[index], every); err != nil {
			r.tell(open.name, err)
		}
	}
}

// Say sends once what there is to say of an address on an interface, if that is open.
func (r *Responder) Say(what Word, index int, address netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open := r.ports[index]; open != nil {
		open.say(what, open.answers.Load().MAC, address)
	}
}

// Ask asks once on an interface, if that is open, who has an address, as a host does that has
// the address from: the whole segment, or one station if to is set. Answers are heard while the
// address is answered for or probed.
func (r *Responder) Ask(index int, address, from netip.Addr, to MAC) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open := r.ports[index]; open != nil {
		open.ask(address, from, to)
	}
}

// Claimed receives when there are Claims to be taken.
func (r *Responder) Claimed() <-chan struct{} { return r.claims.news }

// Claims takes what other stations have claimed since it was taken last, each claim once.
func (r *Responder) Claims() []Claim { return r.claims.take() }

// Broken receives when an interface stopped working by itself: the next Open
// opens it anew, or has its error.
func (r *Responder) Broken() <-chan struct{} { return r.broken }

func (r *Responder) readerDied(name string, err error) {
	r.log.Error("reading questions of neighbours failed", "protocol", r.protocol.String(), "interface", name, "error", err)
	r.notify()
}

func (r *Responder) tell(name string, err error) {
	r.log.Error("questions of neighbours would not be heard", "protocol", r.protocol.String(), "interface", name, "error", err)
	r.notify()
}

func (r *Responder) notify() {
	signal.Send(r.broken)
}

// Close stops answering everywhere.
func (r *Responder) Close() { r.Open(nil) }

// Stats returns the counts.
func (r *Responder) Stats() Stats {
	return Stats{
		Answers:       r.count.answers.Load(),
		Announcements: r.count.announcements.Load(),
		Probes:        r.count.probes.Load(),
		ParseErrors:   r.count.parseErrors.Load(),
		Conflicts:     r.count.conflicts.Load(),
		SendErrors:    r.count.sendErrors.Load(),
		Dropped:       r.dropped(),
	}
}

// dropped counts the frames that were not read on any interface.
func (r *Responder) dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := r.count.dropped.Load()
	for _, open := range r.ports {
		total += open.wire.Dropped()
	}
	return total
}
