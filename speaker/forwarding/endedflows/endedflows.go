// Package endedflows deletes, once this node has taken an address, the entries of TCP connections to it that ended before.
// A client may have begun another one from the same port by way of another node. Its packets would meet the old entry, so
// that the kernel would not hand them over to that node.
package endedflows

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
)

// againEvery is the time between two attempts at what has failed, and rest how long nothing is looked for after a search, as
// a multiple of the time that it took: it reads all TCP connections, of which a node may have a million, and addresses that
// come and go all the time are to take no more than a third of a processor.
const (
	againEvery = 10 * time.Second
	rest       = 2
)

// Sweeper deletes them in a goroutine of its own.
type Sweeper struct {
	del     func(family addr.Family, to func(netip.Addr) bool) (int, error)
	deleted func(addr.Family, int)
	log     *slog.Logger
	wake    chan struct{}
	told    string // of a failure, to log a change only

	mu    sync.Mutex
	owned map[netip.Addr]time.Time // since when
	taken map[netip.Addr]bool      // since the last attempt that went well
}

// New returns a sweeper that tells how many entries of a family it has deleted.
func New(deleted func(addr.Family, int), log *slog.Logger) *Sweeper {
	return &Sweeper{del: conntrack.DeleteEnded, deleted: deleted, log: log, wake: make(chan struct{}, 1), taken: map[netip.Addr]bool{}}
}

// Owns takes in since when this node has answered for which addresses. The caller does not change the map any more.
func (s *Sweeper) Owns(owned map[netip.Addr]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, since := range owned {
		if before, had := s.owned[a]; !had || !since.Equal(before) {
			s.taken[a] = true
			signal.Send(s.wake)
		}
	}
	s.owned = owned
}

// Run deletes until ctx ends, and returns no error. What fails is tried again.
func (s *Sweeper) Run(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-again:
		}
		again = nil
		began := time.Now()
		if err := s.sweep(); err != nil {
			again = time.After(againEvery)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest * time.Since(began)):
		}
	}
}

// sweep deletes the entries of the addresses that were taken.
func (s *Sweeper) sweep() error {
	s.mu.Lock()
	taken := s.taken
	s.taken = map[netip.Addr]bool{}
	s.mu.Unlock()
	var errs []error
	for _, family := range familiesOf(taken) {
		n, err := s.del(family, func(a netip.Addr) bool { return taken[a] })
		s.deleted(family, n)
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err == nil {
		s.told = ""
		return nil
	}
	if err.Error() != s.told {
		s.told = err.Error()
		s.log.Error("connections that are open while an address moves to this node may hang where a client has used their port before; it is tried again",
			"error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range taken {
		s.taken[a] = true
	}
	return err
}

// familiesOf returns the families of addresses.
func familiesOf(some map[netip.Addr]bool) (families []addr.Family) {
	for _, family := range addr.Families() {
		for a := range some {
			if addr.FamilyOf(a) == family {
				families = append(families, family)
				break
			}
		}
	}
	return families
}
