// Package linkcheck is a continuity check of links, after that of IEEE 802.1ag (CFM): it finds out over which interfaces
// this node exchanges frames with other nodes.
//
// Hellos go to the addresses that nodes have in the cluster. So they notice a dead node, and a
// dead link only if it carries these addresses. An interface for other addresses may have its
// carrier and reach no host, as behind a switch port in the wrong VLAN or a media converter that
// has failed, and only clients would notice.
//
// So on each such interface a node sends a continuity check message (CCM) some twenty times a second, to a group address
// of the nodes: one frame for all of them, however many there are. The frame has a number, and, in the place of the one
// bit of a CCM that says whether the sender hears others (RDI), the numbers of the newest frames that the node heard there from others. A node that finds the
// number of a frame of its own in a frame of another node knows that, since the moment when it
// sent its own, frames have passed in both directions. That moment is all that is remembered.
//
// # What is believed
//
// Frames are sealed with the key of the hellos. A recorded frame has the number of an old frame
// in it and proves nothing new, so no nonce is needed and no clocks are compared. Which nodes
// are heard, and which frame of each is the newest, is only used for what this node tells in
// return. Frames of a process that did not send the newest ones are accepted if such a number
// proves that they are new, or after a while of silence.
//
// # How long a silence counts
//
// As with hellos: interval × multiplier. If answers are late or lost, or two frames of a node in a
// row are, the node waits longer, up to twenty intervals, for some minutes. A time in which this
// process stood still does not count. An interface that was silent counts as heard only after it
// has been heard for a while, so that one that works only now and then does not count. An
// interface that got its carrier back is silent until something is heard on it.
//
// A node that hears no other on an interface does not know whose link is at fault. The others say in
// their hellos whether they hear each other over theirs; package owner decides by both.
package linkcheck

import (
	"net"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// Wanted is the whole state that a Monitor is given.
type Wanted struct {
	// Nodes are the others, by name. What comes from nodes that are not among them is not heard.
	Nodes map[string]bool
	// On are the interfaces, by index.
	On map[int]Interface
}

// Interface is where frames are exchanged.
type Interface struct {
	Nth  uint64 // tells it from a former one with its index, as Ups how often it came up; see links.Link
	Name string
	MAC  net.HardwareAddr
	Ups  uint64
}

// Status is what is known of an interface.
type Status struct {
	// Silent: no frame has gone there and back for a detection time.
	Silent bool
	// Heard are some nodes with which frames are exchanged, at most hello.MaxHeard. They
	// stay the same as long as they are.
	Heard []hello.ID
	// Met has all nodes that were heard over it since it came up, and the IDs of the interfaces that
	// they sent from. It is never written to.
	Met map[string]hello.ID
}

// Stats are counters since the start.
type Stats struct {
	Sent       uint64 // frames
	SendErrors uint64 // frames that the kernel did not take
	Received   uint64 // frames, believed or not
	Rejected   map[hello.Reason]uint64
}

const (
	// most bounds how many intervals are waited for, where no more were configured.
	most = 20
	// chance is how many frames in a row are lost by chance.
	chance = 2
	// mindFor is for how long it is remembered that answers were late.
	mindFor = 3 * time.Minute
	// steady is for how long an interface that was silent must be heard, with its carrier all along.
	steady = time.Second
	// each bounds what frames cost among many nodes: none hears more than a thousand a second on an interface.
	each = time.Millisecond
)
