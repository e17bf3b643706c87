package forwarding

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/outcome"
)

// deleteFlows is conntrack.Delete.
type deleteFlows func(family addr.Family, protocol view.Protocol, lock sync.Locker, stale func(conntrack.Flow) bool) (int, error)

// conntrackReconciler finds out which flows each Apply of a backend makes stale, and deletes them. The
// kernel asks the rules about the first packet of a flow only, and keeps what they said for
// as long as the client goes on.
//
// A UDP client that never pauses would go on sending to an endpoint that is gone, or past
// a Service that has come: its flows follow each change of a UDP port. A TCP or SCTP
// client that asked an endpoint which is gone, or past a Service, before there were rules or while others had taken
// them away, would repeat itself in vain until it gives up, after two minutes as a
// rule: a flow that was not answered is deleted when its endpoint serves no more, when its
// destination comes, and when rules come back. Connections end by themselves, or when their client begins another
// one on their ports, see reusedPorts.
//
// Of a Service that was deleted while no process ran, the rules tell that an earlier one left
// in the kernel; of one whose rules went in the instant in which it ended, the journal. If those were
// flushed, too, its flows cannot be told from those of others, and are left alone.
//
// Clean reads the connection table beside the next Applies, which change what it looks for. The lock keeps flows
// from being deleted while one of them writes rules.
type conntrackReconciler struct {
	sync.Mutex
	delete deleteFlows
	// inherited reads those rules before the first Apply; nil after it.
	inherited func() (map[addr.Family]inherited, error)
	// before is what they say, until all that is wanted is in place of them.
	before map[addr.Family]inherited
	// orphans are then the flows that only these rules tell of, until they are deleted.
	orphans map[addr.Family]orphan
	// journal tells the next process which flows this one was about to delete.
	journal flowJournal
	// placed are the ports that the kernel has, at the same by their destinations, and places where their
	// NodePorts answer.
	placed map[desired.PortKey]*served
	at     map[destination][]*served
	places places
	// former are where they answered until the flows there have been looked at, both times.
	former []places
	// revision of the wanted ports that placed is of, but for the missing ones.
	revision uint64
	missing  outcome.Missing
	putOff   bool // some of those are
	// gaps are the families of which others had taken rules away.
	gaps gaps
	// pending are the destinations whose flows are still to be looked at, looked those that
	// were, and when, and are to be once more, and last those that are for the last time.
	pending map[destination]struct{}
	looked  map[destination]time.Time
	last    map[destination]bool
	// since are the destinations that came to pending since Clean began: what it finds there may be out of date. nil: it is not under way.
	since map[destination]struct{}
	// misled: pending has a destination whose flows may lead to what serves no more.
	misled bool
	// connections is what time the search for unanswered ones may take: it looks through
	// the whole table, though only one Service may have come. turn is the one that was put off first.
	connections kernelwatch.RateLimit
	turn        int
}

// destination is where clients of a family send to: an address and port, or that
// NodePort on any of the node's addresses.
type destination struct {
	family   addr.Family
	protocol view.Protocol
	netip.AddrPort
}

func newConntrackReconciler(del deleteFlows, read func() (map[addr.Family]inherited, error), journal flowJournal) *conntrackReconciler {
	return &conntrackReconciler{
		delete: del, inherited: read, journal: journal, orphans: map[addr.Family]orphan{},
		placed: map[desired.PortKey]*served{}, at: map[destination][]*served{}, gaps: newGaps(),
		pending: map[destination]struct{}{}, looked: map[destination]time.Time{}, last: map[destination]bool{},
		connections: kernelwatch.NewRateLimit(),
	}
}

// prepare takes note, before an Apply, of what that takes away: of what an earlier process wrote, and of the UDP
// flows that the next process is to delete if this one cannot. It returns the error of reading the former.
func (c *conntrackReconciler) prepare(want desired.Forwarding) error {
	var unread error
	if c.inherited != nil {
		c.before, unread = c.inherited()
		c.inherited = nil
	}
	before := c.missing
	if c.journal.whole {
		before = nil
	}
	c.journal.note(changes(want, c.placed, c.revision, before, isUDP))
	return unread
}

// follow finds out, after an Apply, what that made stale. It is left to Clean.
func (c *conntrackReconciler) follow(want desired.Forwarding, missing outcome.Missing, err error, of Gauge) {
	c.note(want, missing, outcome.Unsettled(err))
	c.putOff = len(outcome.PutOff(err)) > 0
	for family := range c.gaps.closed(of, missing, err) {
		c.lookAtAll(family, want, missing)
	}
	if len(outcome.Behind(missing, err)) == 0 {
		for family, rules := range c.before {
			c.orphans[family] = rules.orphans(family, want)
		}
		c.before = nil
	}
}

// note finds the destinations whose endpoints changed. A port that is not as wanted may have
// its old rules still, also one that is to go: what is deleted of its flows would come again
// with the next packet. So they are left alone until the kernel has followed, and so are the
// places where NodePorts answer in families that are unsettled.
func (c *conntrackReconciler) note(want desired.Forwarding, missing outcome.Missing, unsettled map[addr.Family]bool) {
	if now := placesOf(want).unless(unsettled, c.places); !c.places.equal(now) {
		c.former = append(c.former, c.places)
		c.places = now
		for key, p := range c.placed {
			c.look(key, *p)
		}
		c.misled = true
	}
	at, again := c.revision, c.missing
	c.revision, c.missing = want.Revision, missing // to be looked at again
	for change := range changes(want, c.placed, at, again, missing.Not) {
		c.follows(change)
		c.place(change)
		if _, foreign := want.Foreign[change.key.Service]; foreign && change.to == nil {
			c.lookOnce(change.key, *change.from)
		}
	}
}

// place takes over a change that the kernel has followed.
func (c *conntrackReconciler) place(change change) {
	delete(c.placed, change.key)
	if change.from != nil {
		for at := range change.from.destinations(change.key) {
			c.at[at] = slices.DeleteFunc(c.at[at], func(p *served) bool { return p == change.from })
			if len(c.at[at]) == 0 {
				delete(c.at, at)
			}
		}
	}
	if change.to != nil {
		c.placed[change.key] = change.to
		for at := range change.to.destinations(change.key) {
			c.at[at] = append(c.at[at], change.to)
		}
	}
}

// follows has the flows looked at that a change of a port may have made stale: with TCP and SCTP none if there are only
// more endpoints.
func (c *conntrackReconciler) follows(change change) {
	if !isUDP(change.key) && !change.takesAway() && !change.leadsHere() {
		return
	}
	c.misled = c.misled || change.takesAway()
	for _, p := range []*served{change.from, change.to} {
		if p != nil {
			c.look(change.key, *p)
		}
	}
}

func isUDP(key desired.PortKey) bool { return key.Protocol == view.UDP }

func (c *conntrackReconciler) look(key desired.PortKey, p served) {
	for at := range p.destinations(key) {
		c.await(at)
		delete(c.last, at)
	}
}

// await has the flows to a destination looked at, also by a Clean that is under way once more.
func (c *conntrackReconciler) await(at destination) {
	c.pending[at] = struct{}{}
	if c.since != nil {
		c.since[at] = struct{}{}
	}
}

// lookOnce has the flows that another proxy has from now on looked at this one time: what it makes
// in the meantime looks like what entered the table late, which goes where it would send it, too.
func (c *conntrackReconciler) lookOnce(key desired.PortKey, p served) {
	for at := range p.destinations(key) {
		c.await(at)
		c.last[at] = true
		delete(c.looked, at)
	}
}

// afterwards is how long after a look at flows there is another one. A packet that has met the
// old rules may still be on its way through the node, whose flow enters the table when it
// leaves, also where a processor was taken away from it in between.
const afterwards = 5 * time.Second

// lookAgain has those flows looked at that were a while ago, once.
func (c *conntrackReconciler) lookAgain() {
	for at, when := range c.looked {
		if time.Since(when) >= afterwards {
			c.pending[at], c.last[at] = struct{}{}, true
			delete(c.looked, at)
		}
	}
}

func (c *conntrackReconciler) done(at destination) {
	delete(c.pending, at)
	if c.last[at] {
		delete(c.last, at)
		return
	}
	c.looked[at] = time.Now()
}

// lookAtAll has the flows of all ports of a family looked at, but for those that are missing.
func (c *conntrackReconciler) lookAtAll(family addr.Family, want desired.Forwarding, missing outcome.Missing) {
	c.misled = true
	for key, p := range want.Ports {
		if _, lacking := missing[key]; !lacking && key.Family == family {
			c.look(key, servedBy(p))
		}
	}
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// places are where NodePorts answer, if they are addresses of the node.
type places struct{ nodePorts, loopback []netip.Prefix }

func placesOf(want desired.Forwarding) places {
	return places{slices.Clone(want.NodePorts), slices.Clone(want.Loopback)}
}

// unless has those of some families be as they were before.
func (p places) unless(some map[addr.Family]bool, before places) places {
	if len(some) == 0 {
		return p
	}
	mix := func(now, before []netip.Prefix) []netip.Prefix {
		changed := func(p netip.Prefix) bool { return some[addr.FamilyOf(p.Addr())] }
		stay := slices.DeleteFunc(slices.Clone(before), func(p netip.Prefix) bool { return !changed(p) })
		return slices.SortedFunc(slices.Values(slices.Concat(slices.DeleteFunc(slices.Clone(now), changed), stay)), netip.Prefix.Compare)
	}
	return places{mix(p.nodePorts, before.nodePorts), mix(p.loopback, before.loopback)}
}

func (p places) equal(o places) bool {
	return slices.Equal(p.nodePorts, o.nodePorts) && slices.Equal(p.loopback, o.loopback)
}

func (p places) have(a netip.Addr) bool {
	if a.IsLoopback() {
		return within(p.loopback, a)
	}
	return within(p.nodePorts, a)
}

func nodePort(family addr.Family, protocol view.Protocol, port uint16) destination {
	return destination{family, protocol, netip.AddrPortFrom(netip.Addr{}, port)}
}
