// Package pulse is the part of the speaker that must not stop: a small process beside the
// agent that tells the other nodes that this one is alive, and answers on the local network
// for the addresses that it owns. It has no Kubernetes client. The agent hands it a complete
// Table over a unix socket; when the agent crashes, is upgraded or loses the API server,
// pulse goes on with the last one.
//
// Each node decides for itself which node owns an address: the first of the claim's candidates that
// is alive and able, but that one which has no subnet with the address leaves it to the first that has
// one (near). Nodes that have the same table and see the same nodes alive agree. What is heard on the
// network, and what nodes say of it, has precedence over that; see below.
//
// # Who else has an address
//
// Nodes tell each other their MACs, so that a claim to one of our addresses can be told to
// come from a node, which hands it over or takes it over, or from a stranger. A stranger is
// reported and the address defended (contests). A node asks the network for an address that
// no node has had before it uses it (vetting), but never for one that moves. If a new table
// takes an address away from a node, the node goes on answering until its successor replies to a
// poll (yielding). The node that would be next checks now and then whether an address is answered
// for, and by whom (patrol).
//
// # When nodes do not agree
//
// A node that hears no more than half of the others asks the network whether it is the one
// that is cut off, and answers for nothing if so (isolation). A node that another one does not
// hear leaves to that one what it takes over (heirs). If two nodes see each other answer for an
// address, the one that took it last keeps it; if their hellos do not get through, the table
// decides (disputes).
//
// # When pulse starts
//
// A new pulse listens for a detection time before it owns anything. In that time it says that
// it is alive, but not yet that it serves; it says that only once it answers. The node that
// answers until then stops when it hears that, and not before.
//
// # When pulse stops
//
// A restart takes a second or two, and is not worth a takeover: the kernel goes on forwarding,
// and the clients have this node in their neighbour tables. So pulse asks the other nodes to
// count this one as alive for restartHold, and a new pulse waits for the agent's table before
// it says or answers anything. Only if the agent said that the node is leaving do the others
// take over at once. Pulse then stops answering before it tells them, since a late answer would
// lead clients back here. Both containers of a pod are asked to end at the same moment, so pulse
// goes on for lastWord in case the agent still has to say that, and for drained while the agent has
// routers leave its routes. Where the machine shuts down, the others take over at once, too, but the
// node does not say that it leaves: they count it as dead when it falls silent, and its pods as well.
//
// The routers at the other ends of BFD sessions are asked for patience as well, for bfdHold,
// since a router that takes the node for dead drops its routes although the kernel forwards. If
// the node really dies in that time, that is noticed so much later. Only a node that leaves
// sends AdminDown. When pulse crashes, a router with short intervals drops the routes of the
// node until pulse is back: it cannot tell a crash from a death. See package bfd.
package pulse

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// Table is all that pulse has to know, handed over as a whole each time.
type Table struct {
	Node      string       // this node
	NodeAddrs []netip.Addr // its addresses in the cluster, both families
	Peers     map[string]hello.Peer
	Key       view.Secret  // of the hello mesh; until there is one nothing is answered, and an empty one replaces none
	Serving   bool         // this node can serve addresses at all
	Unable    []netip.Addr // claimed addresses that this node cannot serve
	Leaving   bool         // the node goes for good; the others take over
	ShutsDown bool         // with Leaving: its machine goes with it, and its silence is a death
	// Claims has the addresses that this node may answer for. Their forwarding
	// is in the kernel already.
	Claims map[netip.Addr]desired.Candidacy
	// Elsewhere are the addresses that only other nodes may answer for. One that comes
	// from there is not new to the network. Sorted.
	Elsewhere []netip.Addr
	// BFD has the BFD sessions to hold, by BGPPeer name.
	BFD map[string]desired.BFD
	// Unnumbered are the interfaces at whose other ends routers are to be found.
	Unnumbered []string
}

// State is what pulse tells back: what is true now.
type State struct {
	Settled bool     // the hello mesh has listened long enough to know who is silent
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
	Dead, Unable, Distant []string
	// Next is the node that would take the address over; empty if none could.
	Next string
}

// Equal compares two ownerships by value.
func (o Ownership) Equal(p Ownership) bool {
	return o.Since.Equal(p.Since) && o.Next == p.Next && slices.Equal(o.Interfaces, p.Interfaces) &&
		slices.Equal(o.Dead, p.Dead) && slices.Equal(o.Unable, p.Unable) && slices.Equal(o.Distant, p.Distant)
}

// Equal compares two states by value.
func (s State) Equal(o State) bool {
	return s.Settled == o.Settled && slices.Equal(s.Alive, o.Alive) &&
		slices.Equal(s.Silent, o.Silent) && slices.Equal(s.Unable, o.Unable) && slices.Equal(s.CutOff, o.CutOff) && slices.Equal(s.CutLinks, o.CutLinks) &&
		maps.Equal(s.Left, o.Left) && s.Handover == o.Handover &&
		maps.EqualFunc(s.Owned, o.Owned, Ownership.Equal) && maps.EqualFunc(s.Contested, o.Contested, func(a, b Contest) bool {
		since := a.Since.Equal(b.Since)
		a.Since = b.Since
		return since && a == b
	}) && maps.EqualFunc(s.Doubted, o.Doubted, func(a, b Doubt) bool {
		since := a.Since.Equal(b.Since)
		a.Since = b.Since
		return since && a == b
	}) && maps.EqualFunc(s.BFD, o.BFD, bfd.Status.Equal) && maps.Equal(s.Adjacent, o.Adjacent)
}

// restartHold is for how long the other nodes shall count this one as alive
// after pulse said goodbye to restart: several times what a restart takes.
const restartHold = 10 * time.Second

// shutdownHold is for how long they shall count a node as alive whose machine shuts down: until pulse
// has ended. A hello after that would say that the node leaves.
const shutdownHold = 2 * time.Second

const (
	// bfdHold is what routers are asked for. It is longer, since an upgrade may have
	// to fetch an image, and since it is the routes of the whole node that are at
	// stake. At multiplier 3 it makes an interval of 20 s, which routers can count.
	bfdHold = time.Minute
	// bfdWithin is how long they have to agree.
	bfdWithin = time.Second
)
