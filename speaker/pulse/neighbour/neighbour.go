// Package neighbour answers the question who has an address, on the local network and
// for addresses that no interface has, and tells the segment when such an address has
// moved here. This makes clients on the local network send packets for the address to
// this node.
//
// It has everything that does not depend on the protocol: which interfaces are open,
// what is answered on each, when an address is announced, and the counts. The protocols
// are packages of their own: arp for IPv4, ndp for IPv6.
package neighbour

import (
	"net"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the MAC that reaches every station of the segment.
func Broadcast() MAC { return MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

// String is the usual notation with colons.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Station tells whether the address can be that of one station: neither unset
// nor a group.
func (m MAC) Station() bool { return m != MAC{} && m[0]&1 == 0 }

// Interface is where to listen.
type Interface struct {
	Index int
	Name  string
	MAC   MAC
	// Ups counts how often the interface came up or failed over; see links.Link.
	Ups uint64
}

// Protocol is what ARP and NDP do each in its own way.
type Protocol interface {
	// String is its name, for people.
	String() string
	// Listen opens an interface for what Handle reads.
	Listen(i Interface) (Wire, error)
	// Handle decides on one received frame. An error means that the frame is not
	// well-formed. What a frame asks of an address that is not ours, and what our own
	// station sent, is Ignored.
	Handle(frame []byte, ours *Answers) (Finding, error)
	Phrases
}

// Phrases are what a node says on its own account.
type Phrases interface {
	// Frames are what is said to the whole segment about an address.
	Frames(what Word, mac MAC, address netip.Addr) ([]Frame, error)
	// Question is what a host with the address from asks that wants to send something to
	// the address. It is for all stations, or for one alone, as the polls of RFC 1122, section
	// 2.3.2.1, and RFC 4861, section 7.3.1, are.
	Question(mac MAC, address, from netip.Addr, to MAC) (Frame, error)
}

// Word is what is said to the whole segment about an address.
type Word uint8

// The words.
const (
	Announcement Word = iota // the address is at our MAC
	Probe                    // does anybody have the address? We do not, yet.
)

// Wire is an open interface.
type Wire interface {
	Traffic
	// Hear lets questions about exactly these addresses reach the interface.
	// Afresh says that the interface may have forgotten what it was told before.
	Hear(addresses []netip.Addr, afresh bool) error
	// Gone tells whether the interface is gone, be there another one with its index.
	Gone() bool
	// Close ends it, and ReadFrom with it.
	Close() error
}

// Traffic is what comes and goes on an open interface.
type Traffic interface {
	// ReadFrom receives the next frame.
	ReadFrom(buffer []byte) (n int, from net.Addr, err error)
	// WriteTo sends a whole frame to a packet.Addr.
	WriteTo(frame []byte, to net.Addr) (int, error)
	// Dropped counts the frames that came and were not read, for there were too many at once.
	Dropped() uint64
}

// Frame is a whole Ethernet frame and the station or group that it is for.
type Frame struct {
	To    MAC
	Bytes []byte
}

// Event says what a frame was to us.
type Event uint8

// The events.
const (
	Ignored  Event = iota
	Asked          // a question about one of our addresses, to be answered
	Conflict       // another station claims one of our addresses, or one that we probe
)

// Finding is what a frame was to us.
type Finding struct {
	What Event
	// Reply is to what is Asked. A Conflict has one, too, if a station asks for one of our addresses from
	// one that we only probe, as a gateway may while it is probed.
	Reply Frame
	Claim Claim // of a Conflict, without the interface
}

// Claim is the word of another station that an address is at its MAC.
type Claim struct {
	Address   netip.Addr
	Station   MAC
	Interface string // that it was heard on, and its index
	Index     int
	// Probe: the station asks whether it may take the address, and has not got it.
	Probe bool
	// Reply: the frame is a reply to this node alone, as the answer to a question of it is.
	Reply bool
	// Announced: it is told to the segment unasked, as by a station that takes or defends the address.
	Announced bool
	// Source is the Ethernet source of the frame, unset where that is Station.
	Source MAC
}

// Answers is what one interface answers with: an immutable table that the reader
// looks up without a lock.
type Answers struct {
	MAC MAC // of the interface
	// since holds for each address the announcement that was begun with it.
	since map[netip.Addr]announcement
	// probed are addresses that are not answered for, and that nobody else should have.
	probed map[netip.Addr]bool
}

// NewAnswers makes a table.
func NewAnswers(mac MAC, addresses ...netip.Addr) *Answers {
	a := &Answers{MAC: mac, since: make(map[netip.Addr]announcement, len(addresses))}
	for _, address := range addresses {
		a.since[address] = 0
	}
	return a
}

// Includes tells whether the address is answered for.
func (a *Answers) Includes(address netip.Addr) bool {
	_, ours := a.since[address]
	return ours
}

// Watching is the table with addresses that we ask for beside those that it answers for.
func (a *Answers) Watching(probed ...netip.Addr) *Answers {
	w := &Answers{MAC: a.MAC, since: a.since, probed: make(map[netip.Addr]bool, len(probed))}
	for _, address := range probed {
		w.probed[address] = true
	}
	return w
}

// Probes tells whether the address is one that we ask for, to know whether it is free.
func (a *Answers) Probes(address netip.Addr) bool { return a.probed[address] }

// Concerns tells whether it matters to us who has the address.
func (a *Answers) Concerns(address netip.Addr) bool { return a.Includes(address) || a.Probes(address) }
