package forwarding

import (
	"errors"
	"maps"
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
// What fails is tried the next time, and what succeeds once more after a while.
func (c *conntrackReconciler) Clean() error {
	look, err := c.begin()
	if look == nil {
		return err
	}
	var errs []error
	for _, family := range addr.Families() {
		for _, protocol := range []view.Protocol{view.UDP, view.TCP, view.SCTP} {
			errs = append(errs, c.cleanOf(family, protocol, look))
		}
	}
	c.Lock()
	defer c.Unlock()
	if len(c.pending)+len(c.looked) == 0 {
		c.former = nil
	}
	c.finish()
	return errors.Join(errs...)
}

// begin returns what is looked for, nil if nothing is.
func (c *conntrackReconciler) begin() (*search, error) {
	c.Lock()
	defer c.Unlock()
	c.lookAgain()
	c.misled = false
	clear(c.since)
	if len(c.pending) == 0 && len(c.orphans) == 0 {
		c.finish()
		return nil, nil
	}
	own, err := readLocalAddresses()
	if err != nil {
		return nil, err
	}
	look := &search{orphans: maps.Clone(c.orphans), former: slices.Clone(c.former)}
	c.lookFor(look, c.pending, own)
	for at := range c.pending {
		if _, placed := look.allowed[at]; !placed {
			look.allowed[at] = nil
		}
	}
	return look, nil
}

// lookFor has a search know what the kernel does with destinations.
func (c *conntrackReconciler) lookFor(look *search, some map[destination]struct{}, own *localAddresses) {
	look.own, look.places = own, c.places
	look.allowed, look.others = map[destination][]netip.AddrPort{}, map[destination]struct{}{}
	for key, p := range c.placed {
		for at := range p.destinations(key) {
			if _, is := some[at]; is {
				look.allowed[at] = append(look.allowed[at], p.serving...)
			} else if own.have(at.Addr()) {
				look.others[at] = struct{}{}
			}
		}
	}
}

// finish forgets what a next process would have had to know, once it is done.
func (c *conntrackReconciler) finish() {
	for at := range c.pending {
		if at.protocol == view.UDP {
			return
		}
	}
	if c.before == nil && len(c.orphans) == 0 {
		c.journal.forget()
	}
}

// search is what Clean looks for. It does not change.
type search struct {
	own     *localAddresses
	allowed map[destination][]netip.AddrPort // where flows to the pending destinations may go
	// others are destinations of Services on the node's own addresses that are not pending.
	// They come before a NodePort of the same number.
	others  map[destination]struct{}
	orphans map[addr.Family]orphan
	places  places
	former  []places
}

func (c *conntrackReconciler) cleanOf(family addr.Family, protocol view.Protocol, look *search) error {
	var mine []destination
	for at := range look.allowed {
		if at.family == family && at.protocol == protocol {
			mine = append(mine, at)
		}
	}
	isOrphan, orphaned := look.orphans[family]
	orphaned = orphaned && protocol == view.UDP
	if len(mine) == 0 && !orphaned {
		return nil
	}
	if protocol != view.UDP {
		if !c.connections.Allowed() {
			return nil // the next time they are found; clients ask again meanwhile
		}
		defer func(began time.Time) { c.connections.Spend(time.Since(began)) }(time.Now())
	}
	deleting := &inDeletion{Mutex: &c.Mutex}
	_, err := c.delete(family, protocol, deleting, func(flow conntrack.Flow) bool {
		to := destination{family, protocol, flow.To}
		if deleting.begun && c.changed(to) {
			return false
		}
		if orphaned && isOrphan(flow, look.own) {
			return true
		}
		endpoints, ours := look.allows(to)
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

// inDeletion is the lock, and whether it is held.
type inDeletion struct {
	*sync.Mutex
	begun bool
}

// Lock is of sync.Locker.
func (d *inDeletion) Lock() { d.Mutex.Lock(); d.begun = true }

// Unlock is of sync.Locker.
func (d *inDeletion) Unlock() { d.begun = false; d.Mutex.Unlock() }

// changed tells whether flows to a destination may go elsewhere since Clean began. They are pending again.
func (c *conntrackReconciler) changed(to destination) bool {
	_, itself := c.since[to]
	_, port := c.since[nodePort(to.family, to.protocol, to.Port())]
	return itself || port
}

// allows tells whether a flow to a destination is looked for, and where it may go.
func (l *search) allows(to destination) (endpoints []netip.AddrPort, ours bool) {
	a := to.Addr()
	endpoints, ours = l.allowed[to]
	if _, another := l.others[to]; ours || another || !l.own.have(a) {
		return endpoints, ours
	}
	endpoints, ours = l.allowed[nodePort(to.family, to.protocol, to.Port())]
	if !l.places.have(a) {
		former := slices.ContainsFunc(l.former, func(p places) bool { return p.have(a) })
		return nil, ours && former
	}
	return endpoints, ours
}
