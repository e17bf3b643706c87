package api

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// State is what pulse tells back, a value that is not changed once told: what is true now.
type State struct {
	Settled bool     // the hello mesh has listened long enough to know which nodes are silent
	Alive   []string // the nodes that are alive, sorted, this one included
	Silent  []string // the nodes that are dead and did not say that they leave, sorted
	// Owned has the addresses that are answered for.
	Owned map[netip.Addr]Ownership
	// Unable are claimed addresses that cannot be answered for, because none of
	// the interfaces that would do so exists, is up and works. Another node is
	// made to take them over. Sorted.
	Unable []netip.Addr
	// CutOff are the gateways that do not answer this node, which hears no more than half of
	// the nodes that it heard, and therefore answers for nothing; empty while it may. Sorted.
	CutOff []netip.Addr
	// CutLinks are the interfaces over which no other node is heard, though others hear each
	// other there. Sorted by index.
	CutLinks []string
	// Damped are the nodes that come last among the candidates, as they died again and again; sorted.
	Damped []string
	// Left are the addresses that are this node's by its table, and that another one answers
	// for, to which they are left; by address.
	Left map[netip.Addr]string
	// Handover tells why open connections are not handed over to the nodes that had their addresses before; "":
	// they are.
	Handover string
	// Contested are the addresses of this node that a station has which is no node's.
	Contested map[netip.Addr]Contest
	// Doubted are addresses that another node is to answer for, and about which this one,
	// the next candidate, found something wrong.
	Doubted map[netip.Addr]Doubt
	// BFD tells of the sessions of the table, by BGPPeer name.
	BFD map[string]bfd.Status
	// Adjacent are the routers at the other ends of the interfaces of the table.
	Adjacent map[string]view.Adjacency
}

// Ownership says how an address is answered for, and why by this node.
type Ownership struct {
	Interfaces []string // sorted by index
	Since      time.Time
	// Dead and Unable are the candidates before this node, which are not alive, or alive
	// and not able to answer, and Distant those that are able and have no subnet with the
	// address, as this one has. All are empty for the first of all.
	Dead, Unable, Distant []string `json:",omitempty"`
	// Damped are those before it that could answer, and died again and again.
	Damped []string `json:",omitempty"`
	// Preferred are those before it that could answer, and do not take the address from it (desired.Candidacy.NoPreempt).
	Preferred []string `json:",omitempty"`
	// Next is the node that would take the address over; empty if none could.
	Next string `json:",omitempty"`
}

// Equal reports whether two ownerships are the same by value.
func (o Ownership) Equal(p Ownership) bool {
	return o.Since.Equal(p.Since) && o.Next == p.Next && slices.Equal(o.Interfaces, p.Interfaces) &&
		slices.Equal(o.Dead, p.Dead) && slices.Equal(o.Unable, p.Unable) && slices.Equal(o.Distant, p.Distant) &&
		slices.Equal(o.Damped, p.Damped) && slices.Equal(o.Preferred, p.Preferred)
}

// Contest is an address of ours that a station has which is no node's, or an interface of a node.
type Contest struct {
	Station   string // its MAC
	Node      string // the node of which an interface has the address; empty: the station is no node's
	Interface string // on which it was heard
	Since     time.Time
	// Withheld: the station had the address before any node did, so that this one does
	// not answer for it.
	Withheld bool
	// Yielded: the station announces the address as often as this node does, and has the lower MAC, so that this node
	// announces it no more.
	Yielded bool
}

// Equal reports whether two contests are the same by value.
func (c Contest) Equal(o Contest) bool {
	since := c.Since.Equal(o.Since)
	c.Since = o.Since
	return since && c == o
}

// Doubt is what a node found when it asked, as a client would, for an address that another
// one is to answer for; or that no node can answer for it.
type Doubt struct {
	Owner string // the node that is to answer; empty if no candidate can, and then the rest, too
	// Station is the MAC of one that answers and should not, empty if none answered, and
	// Node the node that has it, empty if none does. Where that is the one that asked, its
	// kernel would answer.
	Node, Station string
	// Alone: the owner was not heard besides that station.
	Alone bool
	// Interface is that on which it was heard or, if none answered, on which it was asked.
	// Where it is the kernel of the one that asked, it is the interface that has the address.
	Interface string
	Since     time.Time
}

// Equal reports whether two doubts are the same by value.
func (d Doubt) Equal(o Doubt) bool {
	since := d.Since.Equal(o.Since)
	d.Since = o.Since
	return since && d == o
}

// Equal reports whether two states are the same by value.
func (s State) Equal(o State) bool {
	return s.Settled == o.Settled && s.Handover == o.Handover &&
		slices.Equal(s.Alive, o.Alive) && slices.Equal(s.Silent, o.Silent) && slices.Equal(s.Unable, o.Unable) &&
		slices.Equal(s.CutOff, o.CutOff) && slices.Equal(s.CutLinks, o.CutLinks) && slices.Equal(s.Damped, o.Damped) && maps.Equal(s.Left, o.Left) &&
		maps.EqualFunc(s.Owned, o.Owned, Ownership.Equal) && maps.EqualFunc(s.Contested, o.Contested, Contest.Equal) &&
		maps.EqualFunc(s.Doubted, o.Doubted, Doubt.Equal) && maps.EqualFunc(s.BFD, o.BFD, bfd.Status.Equal) &&
		maps.Equal(s.Adjacent, o.Adjacent)
}
