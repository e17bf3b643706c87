package forwarding

import (
	"errors"
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
)

// Clean deletes the flows to pending destinations that go to none of the
// endpoints that serve there now; of TCP and SCTP those that were not answered. An
// endpoint that terminates but still serves keeps its flows, though new ones go elsewhere.
// What fails is tried the next time, and what succeeds once more after a while. It returns after how long it is to be called
// again for what is put off, 0 if nothing is, and the errors of what failed.
func (c *conntrackReconciler) Clean() (again time.Duration, err error) {
	look, err := c.begin()
	if look == nil {
		return 0, err
	}
	var errs []error
	for _, family := range addr.Families() {
		errs = append(errs, c.cleanOf(family, view.UDP, look))
	}
	again, err = c.cleanConnections(look)
	c.Lock()
	defer c.Unlock()
	c.misled, c.since = c.misled || look.misled && len(c.pending) > 0, nil
	if len(c.pending)+len(c.looked) == 0 {
		c.former = nil
	}
	c.finish()
	return again, errors.Join(append(errs, err)...)
}

// cleanConnections looks for unanswered connections of each protocol and family until the time for that is used up. Those
// that it has no time for come first the next time. It returns when that is due, 0 if it has looked for all, and the errors of what failed.
func (c *conntrackReconciler) cleanConnections(look *search) (again time.Duration, err error) {
	protocols, families := []view.Protocol{view.TCP, view.SCTP}, addr.Families()
	all := len(protocols) * len(families)
	var errs []error
	for i := range all {
		turn := (c.turn + i) % all
		family, protocol := families[turn%len(families)], protocols[turn/len(families)]
		if len(look.of(family, protocol)) == 0 {
			continue
		}
		if again = c.connections.Wait(); again > 0 {
			c.turn = turn
			break
		}
		errs = append(errs, c.cleanOf(family, protocol, look))
	}
	return again, errors.Join(errs...)
}

// begin returns what is looked for, nil if nothing is.
func (c *conntrackReconciler) begin() (*search, error) {
	c.Lock()
	defer c.Unlock()
	c.lookAgain()
	if len(c.pending) == 0 && len(c.orphans) == 0 {
		c.misled = false
		c.finish()
		return nil, nil
	}
	look := &search{orphans: maps.Clone(c.orphans), places: c.places, former: slices.Clone(c.former), misled: c.misled}
	var err error
	if look.own, err = readLocalAddresses(); err != nil {
		return nil, err
	}
	look.allowed = c.serving(maps.Keys(c.pending))
	c.misled = false
	c.since = map[destination]struct{}{}
	return look, nil
}

// serving returns which endpoints destinations have, nil for those that no Service has. Of several Services that claim
// one, those come first that the rules prefer.
func (c *conntrackReconciler) serving(some iter.Seq[destination]) map[destination][]netip.AddrPort {
	all := map[destination][]netip.AddrPort{}
	for at := range some {
		var endpoints []netip.AddrPort
		first := math.MaxInt
		for _, p := range c.at[at] {
			switch rank := p.rank(at.Addr()); {
			case rank < first:
				first, endpoints = rank, slices.Clone(p.serving)
			case rank == first:
				endpoints = append(endpoints, p.serving...)
			}
		}
		all[at] = endpoints
	}
	return all
}

// finish forgets what a next process would have had to know, once it is done.
func (c *conntrackReconciler) finish() {
	for at := range c.pending {
		if at.protocol == view.UDP {
			return
		}
	}
	if c.before == nil && len(c.orphans) == 0 && !c.putOff {
		c.journal.forget()
	}
}

// search is what Clean looks for. It does not change.
type search struct {
	own     *localAddresses
	allowed map[destination][]netip.AddrPort // where flows to the pending destinations may go
	orphans map[addr.Family]orphan
	places  places
	former  []places
	misled  bool
}

// of returns the pending destinations of a family and protocol.
func (l *search) of(family addr.Family, protocol view.Protocol) (some []destination) {
	for at := range l.allowed {
		if at.family == family && at.protocol == protocol {
			some = append(some, at)
		}
	}
	return some
}

func (c *conntrackReconciler) cleanOf(family addr.Family, protocol view.Protocol, look *search) error {
	mine := look.of(family, protocol)
	isOrphan, orphaned := look.orphans[family]
	orphaned = orphaned && protocol == view.UDP
	if len(mine) == 0 && !orphaned {
		return nil
	}
	deleting := &inDeletion{Mutex: &c.Mutex}
	if protocol != view.UDP {
		defer func(began time.Time) { c.connections.Spend(time.Since(began) - deleting.waited) }(time.Now())
	}
	_, err := c.delete(family, protocol, deleting, func(flow conntrack.Flow) bool {
		to := destination{family, protocol, flow.To}
		endpoints, ours := look.allows(to)
		if deleting.begun && (c.changed(to) || c.isAnothers(to, look)) {
			return false
		}
		if orphaned && isOrphan(flow, look.own) {
			return true
		}
		return ours && !slices.Contains(endpoints, flow.Answers)
	})
	if err != nil {
		return err
	}
	c.Lock()
	defer c.Unlock()
	for _, at := range mine {
		if _, again := c.since[at]; !again {
			c.done(at)
		}
	}
	if orphaned {
		delete(c.orphans, family)
	}
	return nil
}

// inDeletion is the lock, whether it is held, and for how long it was waited for, which is not the search's time.
type inDeletion struct {
	*sync.Mutex
	begun  bool
	waited time.Duration
}

// Lock is of sync.Locker.
func (d *inDeletion) Lock() {
	began := time.Now()
	d.Mutex.Lock()
	d.begun, d.waited = true, d.waited+time.Since(began)
}

// Unlock is of sync.Locker.
func (d *inDeletion) Unlock() { d.begun = false; d.Mutex.Unlock() }

// changed tells whether flows to a destination may go elsewhere since Clean began. They are pending again.
func (c *conntrackReconciler) changed(to destination) bool {
	_, itself := c.since[to]
	_, port := c.since[nodePort(to.family, to.protocol, to.Port())]
	return itself || port
}

// isAnothers tells whether a destination that is not looked at is a Service's. On an address of the node it comes before a NodePort
// of the same number.
func (c *conntrackReconciler) isAnothers(to destination, look *search) bool {
	_, looked := look.allowed[to]
	return !looked && len(c.at[to]) > 0
}

// allows tells whether a flow to a destination is looked for, and where it may go.
func (l *search) allows(to destination) (endpoints []netip.AddrPort, ours bool) {
	a := to.Addr()
	if endpoints, ours = l.allowed[to]; ours || !l.own.have(a) {
		return endpoints, ours
	}
	endpoints, ours = l.allowed[nodePort(to.family, to.protocol, to.Port())]
	if !l.places.have(a) {
		former := slices.ContainsFunc(l.former, func(p places) bool { return p.have(a) })
		return nil, ours && former
	}
	return endpoints, ours
}
