// Package onlink tells over which interfaces this node exchanges frames with other nodes. The
// mesh of hellos goes by the addresses that nodes have in the cluster, so it knows of a dead node,
// and of a dead link only where that is the one which these addresses are on. An interface that
// carries other addresses may have a carrier and reach nobody: a switch port in the wrong VLAN,
// a converter that died. Nobody would notice but the clients.
//
// So on each such interface a node sends a frame some twenty times a second to a group of the
// nodes: one for all of them, however many there are. In it is the number of the
// frame, and the numbers of the newest frames that it heard there from others. Who finds the number of a frame
// of its own in one of another node knows by both that a moment ago, when it sent that one,
// frames passed there and back. All that is remembered is that time.
//
// # What is believed
//
// Frames are sealed with the key of the hellos. A recorded one has the number of an old frame
// in it and proves nothing that was not known: so no nonce is asked for, and no clock is compared.
// From whom frames are heard, and which is the newest, is only what is told in return. Of a process that
// did not send the newest frames, those are taken which prove by such a number that they are new,
// or that come when there was silence for a while.
//
// # How long a silence is one
//
// As with hellos: interval × multiplier, and it counts as soon as it has lasted. Where answers come late or are
// lost, or two frames in a row of a node, it is waited longer, up to
// twenty intervals, for some minutes; and it is none while this process stands still. An interface
// that was silent counts as heard only once it was for a while, so that one that works now and then is none.
// One that got its carrier back has been told of nothing: it is silent until something is heard.
//
// Who hears nobody on an interface does not know whether it is to blame. That others hear each
// other over theirs, they say in their hellos; package pulse decides by both.
package onlink

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
	Name string
	MAC  net.HardwareAddr
	Ups  uint64 // how often it came up; see links.Link
}

// Status is what is known of an interface.
type Status struct {
	// Silent: no frame has gone there and back for a detection time.
	Silent bool
	// Heard are some nodes with which frames are exchanged, at most hello.MaxHeard. They
	// stay the same as long as they are.
	Heard []hello.ID
	// Met has all nodes that were heard over it since it came up, and the IDs of the interfaces that
	// they sent from. Nobody may write to it.
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
