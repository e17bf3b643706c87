// Package arp answers ARP (RFC 826) for addresses that no interface has, and
// tells the segment when such an address has moved here. It is what makes
// clients of the local network send an address's packets to this node.
package arp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Interface is where to listen.
type Interface struct {
	Index int
	Name  string
	MAC   MAC
	// Ups counts how often the interface came up; see links.Link.
	Ups uint64
}

// Stats are the counts of a Responder since its start.
type Stats struct {
	Answers     uint64 // requests answered
	Gratuitous  uint64 // gratuitous requests and replies sent
	ParseErrors uint64 // frames that were not well-formed ARP
	Conflicts   uint64 // requests in which another station claimed an address of ours
	SendErrors  uint64 // frames that the kernel did not take
}

type counters struct {
	answers, gratuitous, parseErrors, conflicts, sendErrors atomic.Uint64
}

// Responder answers ARP on a set of interfaces. Its methods may be called by
// several goroutines; Open opens sockets in the network namespace of its caller.
type Responder struct {
	log   *slog.Logger
	count counters

	mu     sync.Mutex
	ports  map[int]*port // by interface index
	broken chan struct{}
}

// New makes a responder that answers nothing.
func New(log *slog.Logger) *Responder {
	return &Responder{log: log, ports: map[int]*port{}, broken: make(chan struct{}, 1)}
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
		if !wanted[index] || open.dead.Load() {
			open.close()
			delete(r.ports, index)
		}
	}
	failed := map[int]error{}
	for _, i := range want {
		if open := r.ports[i.Index]; open != nil {
			open.describe(i)
			continue
		}
		open, err := listen(i, &r.count, r.readerDied)
		if err != nil {
			failed[i.Index] = fmt.Errorf("listen for ARP on %s: %w", i.Name, err)
			continue
		}
		r.ports[i.Index] = open
	}
	return failed
}

// Answer makes the open interfaces answer for exactly these IPv4 addresses, by
// interface index. An address that is new on an interface is announced to the
// segment from now on; one that is no longer wanted is not answered for when
// Answer returns, but for a reply that is on its way. Interfaces that are not
// open are left out.
func (r *Responder) Answer(want map[int][]netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for index, open := range r.ports {
		open.answer(want[index])
	}
}

// Broken receives when an interface stopped working by itself: the next Open
// opens it anew.
func (r *Responder) Broken() <-chan struct{} { return r.broken }

func (r *Responder) readerDied(name string, err error) {
	r.log.Error("reading ARP requests failed", "interface", name, "error", err)
	select {
	case r.broken <- struct{}{}:
	default:
	}
}

// Close stops answering everywhere.
func (r *Responder) Close() { r.Open(nil) }

// Stats returns the counts.
func (r *Responder) Stats() Stats {
	return Stats{
		Answers:     r.count.answers.Load(),
		Gratuitous:  r.count.gratuitous.Load(),
		ParseErrors: r.count.parseErrors.Load(),
		Conflicts:   r.count.conflicts.Load(),
		SendErrors:  r.count.sendErrors.Load(),
	}
}
