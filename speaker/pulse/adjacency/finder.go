// Package adjacency finds the router at the other end of an interface, and lets the router
// find this node, so that a BGP session needs no configured address (unnumbered). Routers
// announce their link-local address in router advertisements (RFC 4861, section 4.2), and FRR
// accepts a neighbor from which it has heard one.
//
// Our own advertisements have a router lifetime of 0, so that nobody uses this node as a
// default router. Those of others may have any lifetime, since a router that is no default
// router is a BGP neighbor all the same.
//
// An interface is meant to be a cable to one router. If several are heard, the first one stays
// until it has been silent for several of its intervals.
package adjacency

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/links"
)

const (
	// advertiseEvery is between two of our advertisements, as with FRR's of such interfaces.
	advertiseEvery = 10 * time.Second
	// solicitEvery is how often a router is asked for while none is known (RFC 4861, 10).
	solicitEvery = 4 * time.Second
	// gap is the least time between two of our advertisements, however many ask for one.
	gap = time.Second
	// silence is for how long a router must not have been heard before another one that
	// is heard takes its place.
	silence = 3 * advertiseEvery
	// retryAfter is the pause before a socket that could not be opened is tried again.
	retryAfter = time.Second
)

// Finder finds routers. Its methods may be called by several goroutines. Set opens sockets
// in the network namespace of its caller.
type Finder struct {
	log     *slog.Logger
	changed chan struct{}

	mu      sync.Mutex
	seats   map[string]seat // what was last asked for, by interface
	ports   map[string]*port
	trouble map[string]string
	again   *time.Timer // nil: all sockets are open
}

// seat is where a socket listens. Another seat needs another socket, and what was heard
// before counts no more: the link was down, or the node has another address.
type seat struct {
	link  int // index of the interface
	nth   uint64
	mac   string
	local netip.Addr // without a zone
	ups   uint64
}

// New makes a Finder that looks nowhere.
func New(log *slog.Logger) *Finder {
	return &Finder{
		log: log, changed: make(chan struct{}, 1),
		seats: map[string]seat{}, ports: map[string]*port{}, trouble: map[string]string{},
	}
}

// Changed receives after Status changed, and when it is worth while to call Set again for a
// socket that could not be opened. It is for one receiver.
func (f *Finder) Changed() <-chan struct{} { return f.changed }

func (f *Finder) notify() {
	signal.Send(f.changed)
}

// Set makes it look for routers at the other ends of exactly these interfaces. Doing so
// again changes nothing.
func (f *Finder) Set(interfaces []string, have *links.Snapshot) {
	f.mu.Lock()
	seats, trouble := map[string]seat{}, map[string]string{}
	for _, name := range interfaces {
		if s, why := seatOn(name, have); why == "" {
			seats[name] = s
		} else {
			trouble[name] = why
		}
	}
	var surplus []*port
	for name, p := range f.ports {
		if seats[name] != f.seats[name] {
			surplus = append(surplus, p)
			delete(f.ports, name)
		}
	}
	f.seats = seats
	retry := false
	for name, s := range seats {
		if f.ports[name] != nil {
			continue
		}
		p, err := open(name, s, f.log, f.notify)
		if err != nil {
			trouble[name] = fmt.Sprintf("router advertisements of interface %s cannot be heard: %v", name, err)
			retry = true
			continue
		}
		f.ports[name] = p
	}
	f.tell(trouble)
	if retry && f.again == nil {
		f.again = time.AfterFunc(retryAfter, f.retry)
	}
	f.mu.Unlock()
	for _, p := range surplus {
		p.close()
	}
}

func (f *Finder) retry() {
	f.mu.Lock()
	f.again = nil
	f.mu.Unlock()
	f.notify()
}

// tell logs troubles that are new or over.
func (f *Finder) tell(trouble map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(trouble)) {
		if trouble[name] != f.trouble[name] {
			f.log.Warn("no router can be found at the other end of an interface", "interface", name, "reason", trouble[name])
		}
	}
	f.trouble = trouble
}

// seatOn is where to listen on an interface, or why that is not possible now.
func seatOn(name string, have *links.Snapshot) (seat, string) {
	all := have.All()
	at := slices.IndexFunc(all, func(l links.Link) bool { return l.Name == name })
	if at < 0 {
		return seat{}, fmt.Sprintf("this node has no interface %s: correct spec.interface, or choose other nodes by nodeSelectors", name)
	}
	l := all[at]
	if !l.Up || !l.Running {
		return seat{}, fmt.Sprintf("interface %s is down, or its cable is unplugged", name)
	}
	local := slices.IndexFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() })
	if local < 0 {
		return seat{}, fmt.Sprintf("interface %s has no IPv6 link-local address: enable IPv6 on it (net.ipv6.conf.%s.disable_ipv6=0)", name, strings.ReplaceAll(name, ".", "/"))
	}
	return seat{link: l.Index, nth: l.Nth, mac: string(l.MAC), local: l.Prefixes[local].Addr().WithZone(""), ups: l.Ups}, ""
}

// Status tells of the interfaces of the last Set.
func (f *Finder) Status() map[string]view.Adjacency {
	f.mu.Lock()
	defer f.mu.Unlock()
	status := make(map[string]view.Adjacency, len(f.seats)+len(f.trouble))
	for name, why := range f.trouble {
		status[name] = view.Adjacency{Trouble: why}
	}
	for name, p := range f.ports {
		status[name] = view.Adjacency{Local: p.seat.local.WithZone(name), Router: p.router()}
	}
	return status
}

// Close ends all of it.
func (f *Finder) Close() {
	f.mu.Lock()
	ports := f.ports
	f.ports, f.seats = map[string]*port{}, map[string]seat{}
	if f.again != nil {
		f.again.Stop()
	}
	f.mu.Unlock()
	for _, p := range ports {
		p.close()
	}
}
