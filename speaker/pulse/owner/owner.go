// Package owner decides for which addresses a node answers on the local network: one pure function, Step, from what is
// known to what is to be done. It knows neither sockets nor clocks nor the mesh; package pulse collects the Input, steps,
// and applies the Output.
//
// # In which order the machines rule
//
// decide has the whole of it. A later rule has precedence over an earlier one, since it rests on more:
//
//  1. Link filter, reach, link isolation: on which links of this node each address could be answered for, without
//     those that are cut off from the other nodes (802.1ag continuity check).
//  2. Election: the first candidate of the table that is alive and able, near to the address, and not damped (flap
//     damping, as of RFC 2439).
//  3. Preemption: where the table says that candidates take nothing back (VRRP's Preempt_Mode off), the node that
//     answers already, as it or its claim says.
//  4. Asymmetric paths: a node that does not hear this one takes over from it, so this one leaves it the address.
//  5. Self-fencing: a node that is cut off answers for nothing, and one that may be takes over nothing.
//  6. Probing (RFC 5227, section 2.1): an address that no node has had is probed before its first use.
//  7. Arbitration: if another node answers, too, the one that took the address last keeps it.
//  8. Release: an address that a new table gives to another node is answered for until that node answers, and
//     so is one that no node answered for, since tables differ (backups).
//
// The other machines decide on no address. Defence tells of stations that have one of ours (RFC 5227, section 2.4),
// the audit asks for addresses of other nodes as a client does, and previous owners and data planes say to which
// nodes open connections belong.
package owner

import (
	"cmp"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// Input is what is known now.
type Input struct {
	Table     *api.Table // the newest one; nil: none yet
	View      hello.View
	Links     *links.Snapshot // nil: not known yet
	Gateways  []links.Gateway
	LinkCheck map[int]linkcheck.Status // by index of the interface
	Failed    map[Place]bool           // could not be opened
	// Heard are claims of other stations that came since the last step.
	Heard []neighbour.Claim
	// IsQuiet tells whether no hello came from a node for a detection time.
	IsQuiet func(node string) bool
	// Damping is within what time a node that dies again comes last for a while, and for how long at first; zero: never.
	Damping time.Duration
	// Booted: this machine has just booted, so that nothing on it can have answered for an address before.
	Booted bool
	// Epoch is later than all that were heard of, for the addresses that are taken in this step.
	Epoch uint64
	// Changed: something other than Table, Links and Heard may differ from the last step.
	Changed bool
}

// Output is what is to be done, in this order.
type Output struct {
	Decision *Decision               // nil: as before
	Answers  map[addr.Family]Answers // nil: as before
	Frames   []Frame
	Findings []slog.Record // to be logged
	Next     time.Time     // when the next step is due if nothing happens until then; zero: never
}

// Decision is what follows from all that is known.
type Decision struct {
	Listen  map[addr.Family][]links.Link // where addresses may have to be answered for
	Links   *links.Snapshot              // those that anything follows from
	Monitor linkcheck.Wanted
	// Tell is for the mesh; nil: as before. Ready: this node answers for what it owns, once Answers are in place, and
	// Tell says that it serves. Stale: the mesh is to be told more than that, at once.
	Tell         *hello.Wanted
	Ready, Stale bool
	// Previous are the nodes that had addresses before, by one of their own addresses; nil: as before.
	Previous map[netip.Addr]netip.Addr
	Taken    bool      // addresses are answered for that were not before
	Advanced bool      // Epoch was used
	State    api.State // of addresses and nodes
}

// Answers are for one family.
type Answers struct {
	Answered, Probed map[int][]netip.Addr         // by index of the interface
	Every            map[netip.Addr]time.Duration // announce intervals, of both families
}

// Frame is one to be sent.
type Frame struct {
	What    neighbour.Word
	Address netip.Addr
	Link    int        // index of the interface
	From    netip.Addr // it is a question as a host with this address asks it, and What is void; unset: it is none
	To      neighbour.MAC
}

// Place is where addresses of one family are answered for.
type Place struct {
	Family addr.Family
	Link   int // its index
}

// Machine is what one node knows of its addresses between two steps. It is for one goroutine.
type Machine struct {
	node   string
	in     Input
	out    Output
	now    time.Time
	table  *api.Table
	before *api.Table // the one before it, until what follows from the change is done
	full   *links.Snapshot
	state  api.State

	mine   map[netip.Addr][]links.Link // what this node owns, withheld or not
	wait   map[netip.Addr]bool         // what it withholds
	gained bool                        // the last decision has it answer for what it did not before
	told   told

	filter      linkFilter
	isolation   linkIsolation
	listening   listening
	unheard     unheardNodes
	absent      []string // nodes that count as dead by them
	fencing     fencing
	damping     damping
	incumbents  incumbents
	nodes       stations
	probing     probing
	arbitration arbitration
	releases    releases
	backups     backups
	defence     defence
	audit       audit
	previous    previousOwners
	dataplanes  dataplanes
	answering   []string // the kernels of silent nodes that answer, when it was logged last
}

// New returns the machine of a node that has heard nothing yet. jitter returns a random time up to one.
func New(node string, jitter func(time.Duration) time.Duration) *Machine {
	m := &Machine{node: node, releases: releases{}, previous: previousOwners{}, dataplanes: dataplanes{}}
	m.audit.self, m.audit.jitter, m.audit.strange = node, jitter, func(s neighbour.MAC) bool { return m.nodes.strange(s) }
	m.audit.kernel = func(asked map[netip.Addr][]links.Link) map[netip.Addr]string {
		return hostchecks.Answering(m.in.Links, asked)
	}
	m.probing.self, m.probing.kernel = node, m.kernelReplies
	return m
}

// Step takes in what is known and returns what is to be done. With the same input and time it returns nothing new.
func (m *Machine) Step(now time.Time, in Input) Output {
	m.in, m.out, m.now = in, Output{}, now
	news := m.takeTable(now)
	news = m.takeLinks() || news || in.Changed
	news = m.hear(now) || news
	if news {
		m.decide(now)
	}
	if m.attend(now) {
		m.decide(now)
	}
	m.out.Next = m.next()
	return m.out
}

// takeTable takes in the table and reports whether it is another one.
func (m *Machine) takeTable(now time.Time) (news bool) {
	t := m.in.Table
	if t == nil || t == m.table {
		return false
	}
	m.before, m.table = m.table, t
	m.told.stale = true
	m.backups.table(now, m.before, t)
	m.probing.elsewhere(now, t.Elsewhere)
	m.probing.booted = m.in.Booted
	m.probing.table(now, t.Addresses())
	return true
}

// takeLinks takes in the links and reports whether any differs from which something follows.
func (m *Machine) takeLinks() (news bool) {
	if m.in.Links == m.full {
		return false
	}
	m.full = m.in.Links
	return m.table != nil && m.full != nil && m.filter.look(m.table, m.releases.names(), m.full)
}

// decide makes up the Decision. The package comment says why it is in this order.
func (m *Machine) decide(now time.Time) {
	d := cmp.Or(m.out.Decision, &Decision{}) // of the same step
	m.out.Decision = d
	t, v := m.table, m.in.View
	if t == nil || m.in.Links == nil {
		d.State = m.assess(now, nil)
		return
	}
	answered := m.state.Owned

	// What this node can answer for.
	m.releases.part(now, answered, m.before, t, v, m.arbitration.has)
	m.filter.look(t, m.releases.names(), m.in.Links)
	d.Links = m.filter.links
	r := m.filter.reachable()
	m.releases.reach(r, t, d.Links)
	on := r.networks()
	m.listening.update(now, on, m.fencing.lost())
	d.Listen = on
	m.told.present(stationsOf(on, t.NodeAddrs, d.Links))
	d.Monitor = m.separate(r, r.without(m.in.Failed, on))
	m.unheard.update(now, v, t, r, m.in.Gateways)
	m.findAbsent()

	// What is this node's.
	m.fence(now, r)
	m.damp(now)
	serves := m.fencing.is != cutOff
	m.incumbents.hear(now, t, v, m.listening.until, serves)
	due, elsewhere, behind := owned(t, v, r, serves, m.keeper(now))
	mine := m.hesitate(now, due)
	m.nodes.learn(now, m.node, m.told.stations, v)
	m.probing.told(now, v)
	wait := m.probing.vet(now, mine, elsewhere, m.audit.found)
	m.releases.update(now, answered, elsewhere, m.before, t, v, m.arbitration.has)
	m.releases.told(m.node, v, m.arbitration.epochs)
	m.backups.update(now, m.node, behind, m.releases.answers, v)
	left := m.arbitration.keep(now, m.node, mine, v)
	m.findLeft(left)
	maps.Copy(wait, left)
	m.releases.still(mine, r)

	// What follows from that.
	m.previous.follow(m.before, t, v, due, left)
	m.incumbents.precede(m.previous)
	m.before = nil
	m.dataplanes.update(now, v.Silent, m.previous, t, r)
	m.arbitration.retake(now, mine, wait, t.Claims, answered, &m.incumbents, m.fencing.is != together)
	d.Advanced = m.arbitration.take(mine, wait, m.in.Epoch) || d.Advanced
	m.discuss(now)
	m.mine, m.wait = mine, wait
	maps.DeleteFunc(behind, func(a netip.Addr, _ standby) bool { return m.releases.isAdopted(a) })
	m.audit.keep(now, behind, r, len(t.Claims)+len(t.Elsewhere))
	if !t.Leaving { // a node that leaves goes on as it was
		d.Previous = m.previous.nodeAddrs(t, m.goesOn, m.isDead)
	}
	m.out.Answers = m.answers()
	m.tell(d, r.unable(), v.Settled && serves && !m.listening.waits(now, v))
	d.State = m.assess(now, without(mine, wait))
	d.Taken = d.Taken || m.gained
}

// hesitate is what is left of mine without what this node would take over from others while it may be cut off, or
// has not listened since its link came up.
func (m *Machine) hesitate(now time.Time, mine map[netip.Addr][]links.Link) map[netip.Addr][]links.Link {
	if !m.fencing.waits() && !m.listening.waits(now, m.in.View) {
		return mine
	}
	mine = maps.Clone(mine)
	maps.DeleteFunc(mine, func(a netip.Addr, _ []links.Link) bool { return !m.isAnswered(a) })
	return mine
}

// discuss has the others told what this node says of addresses.
func (m *Machine) discuss(now time.Time) {
	epochs, has := m.arbitration.epochs, m.arbitration.has
	disputed := slices.DeleteFunc(m.arbitration.claims(now), func(c hello.Claim) bool { return m.releases.answers(c.Address) })
	m.told.discuss(disputed, m.releases.claims(epochs), m.backups.claims(), m.incumbents.claims(epochs, has), m.probing.claims(has),
		m.probing.occupied(m.in.View, func(a netip.Addr) bool { return has(a) || m.incumbents.leaves[a] != "" }))
}

// isDead tells whether a node counts as dead.
func (m *Machine) isDead(node string) bool {
	return slices.Contains(m.in.View.Silent, node) || slices.Contains(m.absent, node)
}

// goesOn tells whether a node may be handed what belongs to connections that it has.
func (m *Machine) goesOn(node string) bool { return m.in.View.IsAlive(node) || m.dataplanes.goOn(node) }

// isAnswered tells whether an address is answered for.
func (m *Machine) isAnswered(a netip.Addr) bool {
	_, is := m.state.Owned[a]
	return is
}

// assess makes the state from what is answered for.
func (m *Machine) assess(now time.Time, mine map[netip.Addr][]links.Link) api.State {
	last, v := m.state, m.in.View
	next := api.State{
		Settled: v.Settled,
		Alive:   slices.DeleteFunc(slices.Sorted(maps.Keys(v.Alive)), func(node string) bool { return slices.Contains(v.Apart, node) }),
		Silent:  slices.Sorted(slices.Values(slices.Concat(v.Silent, v.Apart, m.absent))),
		Owned:   make(map[netip.Addr]api.Ownership, len(mine)),
		Unable:  m.told.unable,
		CutOff:  m.fencing.mute(),

		CutLinks: m.isolation.names,
		Left:     m.arbitration.leftTo(now),
		Damped:   v.Damped(),
	}
	var taken []netip.Addr
	for a, on := range mine {
		o, had := last.Owned[a]
		if !had {
			o.Since = now
			taken = append(taken, a)
		}
		o.Interfaces = nil
		for _, l := range on {
			o.Interfaces = append(o.Interfaces, l.Name)
		}
		next.Owned[a] = placed(o, m.table, v, a)
	}
	m.gained = len(taken) > 0
	m.defence.keep(now, mine, taken)
	next.Contested, next.Doubted = m.contested(), m.audit.doubts()
	m.findMoves(last, next, taken)
	m.findContests(last.Contested, next.Contested)
	m.findKernels()
	m.state = next
	return next
}

// contested is what there is to tell of strangers.
func (m *Machine) contested() map[netip.Addr]api.Contest {
	all := m.probing.conflicts()
	for a, c := range m.defence.of {
		all[a] = c.Contest
	}
	return all
}
