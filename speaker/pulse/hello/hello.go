// Package hello finds out which nodes are alive. Each node sends a small
// authenticated datagram to some other nodes, in small clusters to all, twenty times a second. A node of
// which a few in a row are missing is taken for dead, long before Kubernetes notices.
//
// The package has two parts: machine decides, given datagrams and times, and knows
// neither sockets nor clocks; Mesh feeds it and sends what it says.
//
// # Which nodes are alive
//
// Each node watches its neighbours on some rings of all nodes, see ring: all others in a cluster of up to nine
// nodes, about eight of more. So what it sends does not grow with the cluster. What it says of itself, and which of the
// nodes that it watches it hears, is its record, which gossip spreads to all. From the records each node computes
// which nodes are alive, see judge:
//
//   - A node is alive that is reached from here over nodes each of which hears the next one. So frames that are
//     lost between two nodes alone move no address.
//   - It is dead if two of those that watch it do not hear it and no other has heard it since, or if none of them hears it.
//   - It is alive while a hold lasts that it has announced. So a restart moves no address.
//   - One that no node has ever heard is alive while Kubernetes says that its speaker is ready. So a firewall
//     between the nodes costs speed, not correctness.
//
// A node that is not heard, and hears those that do not hear it, learns that from their records and can leave its
// addresses to them.
//
// # How long a silence is a death
//
// Interval × Multiplier, as long as hellos are on time. A node whose own hellos leave late
// asks the others, in these hellos, to wait longer (as in BFD, where the sender sets the
// multiplier). A node that misses hellos of another one waits longer by itself, until another node misses them as well. So a
// death is noticed as soon as machines and wires allow, and the death of a busy or badly connected node
// is noticed later, instead of a living one being taken for dead. What was learned is forgotten
// after some minutes. Nodes need not agree on these times: each is bounded, so in the end they
// agree on which nodes are dead.
//
// # What is believed
//
// A hello carries an HMAC with a key that all nodes share, the random id of the
// process that sent it (its incarnation) and a sequence number that grows. An incarnation is
// believed once it has answered a nonce of ours, and until it has been silent for
// a detection time. So a recorded hello never revives a dead node, not even in the
// eyes of a process that has just started. No clocks are compared, so a clock
// that goes back locks no node out. Proving takes one round trip.
package hello

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// MaxHold bounds for how long a restarting node counts as alive without a hello.
const MaxHold = 15 * time.Second

// Config is what a Mesh is made of.
type Config struct {
	Node string // our name in Kubernetes
	Port uint16 // UDP port that we listen on and send to
	// Interval is the longest time between hellos to a node that is watched, see jitter; at least 10 ms. To the others that
	// are not known to be alive it is longer among more than Interval / 1 ms nodes.
	Interval   time.Duration
	Multiplier int // so many intervals of silence are a death; at least 3, so that one lost hello is none
	Log        *slog.Logger
	// Listen opens the transport; nil: a UDP socket on all addresses of both
	// families.
	Listen func(ctx context.Context, port uint16) (Transport, error)
}

// Transport carries datagrams between nodes. Its methods may run at the same time.
type Transport interface {
	// Send never blocks: a datagram that cannot leave now is an error.
	Send(to netip.AddrPort, datagram []byte) error
	// Wait returns once there may be a datagram to take. It fails with net.ErrClosed
	// after Close.
	Wait() error
	// Take gives the next datagram that has come: how long it is and where it came from.
	// It never blocks: come is false where there is none.
	Take(buf []byte) (n int, from netip.AddrPort, come bool, err error)
	Close() error
}

// confirmer is a Transport that can be told what is known to get there.
type confirmer interface{ Confirm(to netip.AddrPort) }

// Peer is another node.
type Peer struct {
	// Addrs are the node's addresses by its status; hellos go to the first of each family.
	Addrs []netip.Addr
	// Ready: Kubernetes says that the node's speaker runs. Believed only until
	// the first hello comes from it.
	Ready bool
}

// Wanted is the whole state that the mesh is given.
type Wanted struct {
	Peers map[string]Peer // by node name, without ourselves
	// Key is the HMAC-SHA256 key that all nodes share. While it is empty no
	// hello is sent or believed. A key that is replaced or taken away stays
	// in use beside the new one for a minute, because the nodes do not learn
	// of it at the same moment.
	Key     []byte
	Serving bool         // this node can serve addresses at all
	Unable  []netip.Addr // addresses that this node was asked to serve and cannot
	Leaving bool         // going away for good: others take over at once
	// Claimed are all addresses that some node is asked to serve. Where Unable are too many to be
	// listed, they are told by ranges without any other of these; see Member.
	Claimed []netip.Addr
	// Stations are the MACs by which this node answers on its networks. The first
	// sixteen in order are told.
	Stations []Station
	// Vouched: something on the network has answered this node, so that it is not deaf
	// though it may hear no other node.
	Vouched bool
	// Claims are what this node says of addresses on which nodes do not agree, one of each. New ones
	// are told at once, some in a hello, and all of them again and again in turns; see TurnOf.
	Claims []Claim
	// Interfaces are those on which this node may answer, as many as fit.
	Interfaces []Interface
	// Damped are the nodes of which this one says that they flap.
	Damped []string
	// Table has a digest of the table of this node for each bucket of addresses: equal on nodes that
	// order the candidates for all of these addresses in the same way.
	Table [TableBuckets]uint32
}

// Station is an Ethernet address of a node.
type Station [6]byte

// View has the nodes that are alive, as one node sees it. It is never written to again.
type View struct {
	Version uint64 // is another one in each View of a Mesh
	// Settled: we have listened, with a key, for a full detection time, so
	// that silence means something.
	Settled bool
	// Alive has the nodes that are alive, ourselves included.
	Alive map[string]Member
	// Silent has the nodes that were heard and fell silent without having said that
	// they leave, sorted.
	Silent []string
	// Apart has those of the nodes that are alive which this one does not hear any more while others do, sorted.
	Apart []string
	// Differs has a bit for each bucket of addresses for which the tables of nodes that are alive differ.
	Differs uint32
}

// Member is a node that is alive.
type Member struct {
	Serving bool
	// Unable has the addresses that the node was asked to serve and cannot. Where they are too many to be told, it has others
	// between them that no node is asked to serve, or all of a family; see fit.
	Unable ranges
	// Heard: we know it from the node itself, not from Kubernetes.
	Heard bool
	// Deaf: the node has said for a while that it does not hear us, though it hears others,
	// and takes over from us.
	Deaf bool
	// Silent are the nodes that it does not hear, ourselves among them. Only of one that is Deaf.
	Silent map[string]bool
	// Stations are the MACs by which the node answers on its networks; nil of one that was not heard.
	Stations []Station
	// Claims are what the node says of addresses on which nodes do not agree.
	Claims []Claim
	// Interfaces are those on which the node may answer; nil of one that was not heard. Part: not all is told of them.
	Interfaces []Interface
	Part       bool
	// Differs has a bit for each bucket of addresses for which its table differs from that of a node that it hears.
	Differs uint32
	// Damped: a node that is alive says that it flaps.
	Damped bool
}

// Damped returns the nodes that are, sorted.
func (v View) Damped() []string {
	var all []string
	for node, m := range v.Alive {
		if m.Damped {
			all = append(all, node)
		}
	}
	slices.Sort(all)
	return all
}

// CanServe tells whether a node is alive and able to serve an address.
func (v View) CanServe(node string, a netip.Addr) bool {
	m, alive := v.Alive[node]
	return alive && m.CanServe(a)
}

// IsAlive tells whether the node is alive, able or not.
func (v View) IsAlive(node string) bool {
	_, alive := v.Alive[node]
	return alive
}

// CanServe tells whether a node that is alive is able to serve an address.
func (m Member) CanServe(a netip.Addr) bool { return m.Serving && !m.Unable.contains(a.Unmap()) }

// Reason says why a datagram was not believed.
type Reason string

// The reasons, as they appear in metrics.
const (
	ReasonMagic       Reason = "magic"        // not a hello
	ReasonVersion     Reason = "version"      // a hello of a version that we do not speak
	ReasonMAC         Reason = "mac"          // made with another key, or changed on its way
	ReasonMalformed   Reason = "malformed"    // authentic, and still not to be read
	ReasonNoKey       Reason = "no-key"       // we have no key yet
	ReasonUnknownNode Reason = "unknown-node" // authentic, from a node that we were not told of
	ReasonReplayed    Reason = "replayed"     // older than what we have heard already
	ReasonUnproven    Reason = "unproven"     // of a process that has not answered our nonce yet; normal once at a start
)

// Stats are counters since the start, and gauges.
type Stats struct {
	Sent       uint64 // datagrams handed to the transport
	SendErrors uint64 // datagrams that it refused
	Received   uint64 // datagrams that came, believed or not
	Duplicates uint64 // copies of the newest hello, which come by another family or under another key
	Rejected   map[Reason]uint64
	Deaths     uint64 // nodes that fell silent without a word

	Gossip  uint64 // datagrams with what nodes say of others
	Repairs uint64 // comparisons with what another node knows, after gossip was lost

	Late  time.Duration // by how much our own hellos left late in the last minutes, at most
	Asked time.Duration // after so much silence others shall take this node for dead
	Waits time.Duration // so long a silence of some other node is waited for

	Watched int // nodes whose silence this one notices itself
	Heard   int // nodes that are alive by their own word, without ourselves
	Apart   int // nodes that are not heard and count as alive because others hear them
	Unheard int // nodes that were never heard and count as alive because Kubernetes says that they are ready
}

func (c Config) check() error {
	switch {
	case c.Node == "" || len(c.Node) > maxName:
		return fmt.Errorf("node name %q: must have 1 to %d bytes", c.Node, maxName)
	case c.Port == 0:
		return fmt.Errorf("hello port 0: must be 1 to 65535, the same on all nodes")
	case c.Interval < 10*time.Millisecond:
		return fmt.Errorf("hello interval %v: must be at least 10ms", c.Interval)
	case c.Multiplier < 3:
		return fmt.Errorf("hello multiplier %d: must be at least 3, or one lost datagram is a death", c.Multiplier)
	}
	return nil
}
