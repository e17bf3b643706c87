// Package pulse is the part of the speaker that must not stop: a small process beside the
// agent that tells the other nodes that this one is alive, and answers on the local network
// for the addresses that it owns. It has no Kubernetes client. The agent hands it a
// Table over a unix socket; when the agent crashes, is upgraded or loses the API server,
// pulse goes on with the last one.
//
// Each node decides for itself which node owns an address: package owner does, from what the server collects, and the
// server applies it. Nodes that have the same table and see the same nodes alive agree.
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

import "time"

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
