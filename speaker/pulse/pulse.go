// Package pulse is what must not stop: a small process beside the agent that
// tells the other nodes that this one is alive, and answers on the local network
// for the addresses that it owns. It has no Kubernetes client. The agent hands
// it a whole Table over a unix socket; when the agent crashes, is upgraded or
// loses the API server, pulse goes on with the last one.
//
// Who owns an address is decided on each node by itself: it is the first of the
// claim's candidates that is alive and able. All nodes have the same candidates
// in the same order, so those that see the same nodes alive agree.
//
// # When pulse starts
//
// A new pulse listens for a detection time before it owns anything. It says that
// it is alive meanwhile, and that it serves only once it answers: the node that
// answers until then stops when it hears that, and not before.
//
// # When pulse stops
//
// A restart takes a second or two, and none of it is worth a takeover: the
// kernel goes on forwarding, and the clients have this node in their neighbour
// tables. So pulse asks the other nodes to count this one as alive for
// restartHold, and a new one waits for the agent's table before it says or
// answers anything. Only if the agent said that the node is leaving do the
// others take over at once, and pulse stops answering before it tells them: a
// late answer would lead clients back here. Both containers of a pod are asked
// to end at the same moment, so pulse goes on for lastWord in case the agent has
// that to say.
package pulse

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// Table is all that pulse has to know, handed over as a whole each time.
type Table struct {
	Node      string       // this node
	NodeAddrs []netip.Addr // its addresses in the cluster, both families
	Peers     map[string]hello.Peer
	Key       view.Secret  // of the hello mesh; while it is empty nothing is answered
	Serving   bool         // this node can serve addresses at all
	Unable    []netip.Addr // claimed addresses that this node cannot serve
	Leaving   bool         // the node goes for good; the others take over
	// Claims has the addresses that this node may answer for. Their forwarding
	// is in the kernel already.
	Claims map[netip.Addr]desired.Claim
}

// State is what pulse tells back: what is true now.
type State struct {
	Settled bool     // the hello mesh has listened long enough to know who is silent
	Alive   []string // the nodes that are alive, sorted, this one included
	// Owned has the addresses that are answered for.
	Owned map[netip.Addr]Ownership
	// Unable are claimed addresses that cannot be answered for, because none of
	// the interfaces that would do so exists, is up and works. Another node is
	// made to take them over. Sorted.
	Unable []netip.Addr
}

// Ownership says how an address is answered for.
type Ownership struct {
	Interfaces []string // sorted by index
	Since      time.Time
}

// Equal compares two states by value.
func (s State) Equal(o State) bool {
	return s.Settled == o.Settled && slices.Equal(s.Alive, o.Alive) && slices.Equal(s.Unable, o.Unable) &&
		maps.EqualFunc(s.Owned, o.Owned, func(a, b Ownership) bool {
			return a.Since.Equal(b.Since) && slices.Equal(a.Interfaces, b.Interfaces)
		})
}

// restartHold is for how long the other nodes shall count this one as alive
// after pulse said goodbye to restart: several times what a restart takes.
const restartHold = 10 * time.Second
