package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// State is a session's state (RFC 5880, 4.1).
type State uint8

// The states, as they are on the wire.
const (
	AdminDown State = iota
	Down
	Init
	Up
)

// String is the state as RFC 5880 writes it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

var stateNames = [...]string{"AdminDown", "Down", "Init", "Up"}

// Diag says why a session changed to Down or AdminDown last (RFC 5880, 4.1).
type Diag uint8

// The diagnostics that this side gives; a peer may give others.
const (
	NoDiag       Diag = 0
	Expired      Diag = 1 // nothing was heard for the detection time
	NeighborDown Diag = 3 // the peer said that the session is down
	AdminOff     Diag = 7 // the session was shut down administratively
)

// String tells it in words.
func (d Diag) String() string {
	if int(d) < len(diagWords) {
		return diagWords[d]
	}
	return fmt.Sprintf("diagnostic %d", uint8(d))
}

var diagWords = [...]string{
	"no diagnostic", "control detection time expired", "echo function failed", "neighbor signaled session down",
	"forwarding plane reset", "path down", "concatenated path down", "administratively down", "reverse concatenated path down",
}

// Packet is a BFD control packet (RFC 5880, 4.1) without authentication. The
// bit A is always clear in it; M and the echo interval are so in what is sent.
type Packet struct {
	Diag  Diag
	State State
	// Poll asks for an answer with Final. Independent: the peer's BFD does not
	// share fate with its control plane (C). Demand: it asks for no periodic packets.
	Poll, Final, Independent, Demand bool

	Multiplier   uint8
	My, Your     uint32 // discriminators; Your is 0 while it is not known
	DesiredTx    time.Duration
	RequiredRx   time.Duration // 0: send nothing periodically
	RequiredEcho time.Duration // 0: no echo packets
}

const (
	version    = 1
	packetSize = 24 // bytes, without authentication

	bitPoll        = 0x20
	bitFinal       = 0x10
	bitIndependent = 0x08
	bitAuth        = 0x04
	bitDemand      = 0x02
	bitMultipoint  = 0x01
)

// Why a datagram is no packet of ours. Callers count them.
var (
	errVersion    = errors.New("version is not 1")
	errLength     = errors.New("length does not fit")
	errMultiplier = errors.New("detection multiplier is 0")
	errMultipoint = errors.New("the multipoint bit is set")
	errAuth       = errors.New("it is authenticated, and sessions here are not")
	errMine       = errors.New("the sender's discriminator is 0")
	errYours      = errors.New("the receiver's discriminator is 0 in a session that is beyond Down")
)

// Parse reads a datagram and refuses what RFC 5880 (6.8.6) tells to discard
// before looking for the session.
func Parse(b []byte) (Packet, error) {
	switch {
	case len(b) < packetSize || int(b[3]) > len(b) || b[3] < packetSize:
		return Packet{}, errLength
	case b[0]>>5 != version:
		return Packet{}, errVersion
	case b[1]&bitAuth != 0:
		return Packet{}, errAuth
	case b[2] == 0:
		return Packet{}, errMultiplier
	case b[1]&bitMultipoint != 0:
		return Packet{}, errMultipoint
	}
	p := Packet{
		Diag: Diag(b[0] & 0x1f), State: State(b[1] >> 6),
		Poll: b[1]&bitPoll != 0, Final: b[1]&bitFinal != 0,
		Independent: b[1]&bitIndependent != 0, Demand: b[1]&bitDemand != 0,
		Multiplier: b[2],
		My:         binary.BigEndian.Uint32(b[4:]), Your: binary.BigEndian.Uint32(b[8:]),
		DesiredTx: interval(b[12:]), RequiredRx: interval(b[16:]), RequiredEcho: interval(b[20:]),
	}
	switch {
	case p.My == 0:
		return Packet{}, errMine
	case p.Your == 0 && p.State != Down && p.State != AdminDown:
		return Packet{}, errYours
	}
	return p, nil
}

// Append writes the packet behind b. Intervals are rounded up to microseconds.
func (p Packet) Append(b []byte) []byte {
	flags := byte(p.State) << 6
	for bit, set := range map[byte]bool{
		bitPoll: p.Poll, bitFinal: p.Final, bitIndependent: p.Independent, bitDemand: p.Demand,
	} {
		if set {
			flags |= bit
		}
	}
	b = append(b, version<<5|byte(p.Diag)&0x1f, flags, p.Multiplier, packetSize)
	b = binary.BigEndian.AppendUint32(b, p.My)
	b = binary.BigEndian.AppendUint32(b, p.Your)
	for _, d := range []time.Duration{p.DesiredTx, p.RequiredRx, p.RequiredEcho} {
		b = binary.BigEndian.AppendUint32(b, uint32((d+time.Microsecond-1)/time.Microsecond))
	}
	return b
}

// interval reads microseconds.
func interval(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Microsecond
}
