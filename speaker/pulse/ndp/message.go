package ndp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// allNodes is the group that every node of the segment is in.
func allNodes() netip.Addr { return netip.IPv6LinkLocalAllNodes() }

// The parts of an IPv6 header (RFC 8200, section 3) and of an ICMPv6 one.
const (
	headerLength = 40
	icmpLength   = 4
)

// message is a neighbour discovery message that has passed the checks that both
// kinds share (RFC 4861, sections 7.1.1 and 7.1.2).
type message struct {
	station  neighbour.MAC // that sent the frame
	from, to netip.Addr
	body     ndp.Message
}

// decode reads a frame. It gives no message for a frame that carries none without
// an error. A frame that a filter let pass always carries one, or is an error.
func decode(frame []byte) (*message, error) {
	var f ethernet.Frame
	if err := f.UnmarshalBinary(frame); err != nil {
		return nil, fmt.Errorf("ethernet frame of %d bytes: %w", len(frame), err)
	}
	if f.VLAN != nil || f.EtherType != ethernet.EtherTypeIPv6 {
		return nil, nil
	}
	p := f.Payload
	if len(p) < headerLength || p[0]>>4 != 6 {
		return nil, fmt.Errorf("no IPv6 packet in %d bytes", len(p))
	}
	if p[6] != unix.IPPROTO_ICMPV6 {
		return nil, nil
	}
	m := &message{
		station: neighbour.MAC(f.Source),
		from:    netip.AddrFrom16([16]byte(p[8:24])),
		to:      netip.AddrFrom16([16]byte(p[24:40])),
	}
	length := int(binary.BigEndian.Uint16(p[4:]))
	payload := p[headerLength:]
	switch {
	case length > len(payload) || length < icmpLength:
		return nil, fmt.Errorf("ICMPv6 message of %d bytes in %d", length, len(payload))
	case p[7] != ndp.HopLimit:
		return nil, fmt.Errorf("hop limit %d: the message may come from outside of the segment", p[7])
	case m.from.IsMulticast():
		return nil, fmt.Errorf("message from %s, which is a group", m.from)
	case checksum(icmp.IPv6PseudoHeader(m.from.AsSlice(), m.to.AsSlice()), payload[:length]) != 0:
		return nil, errors.New("wrong checksum")
	case payload[1] != 0:
		return nil, fmt.Errorf("ICMPv6 code %d", payload[1])
	}
	var err error
	m.body, err = ndp.ParseMessage(payload[:length]) // extra bytes of the frame are padding
	return m, err
}

// checksum is that of RFC 1071 over the pseudo-header, the length of which is not
// filled in, and the message: 0 for one that is whole.
func checksum(pseudo, message []byte) uint16 {
	sum := uint32(len(message))
	for _, part := range [][]byte{pseudo, message} {
		for i, b := range part {
			sum += uint32(b) << (8 * (1 - i%2))
		}
	}
	for sum>>16 > 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Handle is of neighbour.Protocol.
func (protocol) Handle(frame []byte, ours *neighbour.Answers) (found neighbour.Finding, err error) {
	m, err := decode(frame)
	if err != nil || m == nil || !m.station.Station() || m.station == ours.MAC {
		return found, err
	}
	switch body := m.body.(type) {
	case *ndp.NeighborSolicitation:
		return m.solicited(body, ours)
	case *ndp.NeighborAdvertisement:
		if body.TargetAddress.IsMulticast() {
			return found, fmt.Errorf("advertisement of %s, which is a group", body.TargetAddress)
		}
		if ours.Concerns(body.TargetAddress) {
			station, err := linkLayerAddress(body.Options, ndp.Target)
			found = m.claims(body.TargetAddress, station)
			found.Claim.Reply, found.Claim.Announced = body.Solicited && !m.to.IsMulticast(), !body.Solicited && m.to.IsMulticast()
			return found, err
		}
	}
	return found, nil
}

// claims is the finding that a station claims an address: the one that the options name,
// which neighbours will believe, or else the one that sent the frame.
func (m *message) claims(address netip.Addr, station neighbour.MAC) neighbour.Finding {
	claim := neighbour.Claim{Address: address, Station: m.station}
	if station.Station() && station != m.station {
		claim.Station, claim.Source = station, m.station
	}
	return neighbour.Finding{What: neighbour.Conflict, Claim: claim}
}

// solicited decides on a solicitation. One without a source asks whether anybody
// has the address, before it is used (RFC 4862, section 5.4): everybody is told
// then, since the asker cannot be. If we ask the same, neither has it yet.
func (m *message) solicited(s *ndp.NeighborSolicitation, ours *neighbour.Answers) (found neighbour.Finding, err error) {
	source, err := linkLayerAddress(s.Options, ndp.Source)
	switch {
	case err != nil:
		return found, err
	case s.TargetAddress.IsMulticast():
		return found, fmt.Errorf("solicitation of %s, which is a group", s.TargetAddress)
	case m.from.IsUnspecified():
		group, err := ndp.SolicitedNodeMulticast(s.TargetAddress)
		if err != nil || m.to != group || source != (neighbour.MAC{}) {
			return found, errors.Join(err, errors.New("a solicitation without a source, yet not of a station that has none"))
		}
		if ours.Probes(s.TargetAddress) {
			found = m.claims(s.TargetAddress, source)
			found.Claim.Probe = true
			return found, nil
		}
	case ours.Includes(m.from):
		return m.claims(m.from, source), nil
	case ours.Probes(m.from): // the gateway, maybe: it is a client like any other
		found = m.claims(m.from, source)
	}
	if !ours.Includes(s.TargetAddress) {
		return found, nil
	}
	if found.What == neighbour.Ignored {
		found.What = neighbour.Asked
	}
	if m.from.IsUnspecified() {
		found.Reply, err = advertise(ours.MAC, s.TargetAddress, neighbour.MAC{}, allNodes())
		return found, err
	}
	if !source.Station() {
		source = m.station // without the option, who sent the frame is all that is known
	}
	found.Reply, err = advertise(ours.MAC, s.TargetAddress, source, m.from)
	return found, err
}

// linkLayerAddress is the link-layer address of the source or the target among the
// options; the zero MAC if there is none.
func linkLayerAddress(options []ndp.Option, of ndp.Direction) (neighbour.MAC, error) {
	for _, o := range options {
		if l, ok := o.(*ndp.LinkLayerAddress); ok && l.Direction == of {
			if len(l.Addr) != len(neighbour.MAC{}) {
				return neighbour.MAC{}, fmt.Errorf("link-layer address of %d bytes", len(l.Addr))
			}
			return neighbour.MAC(l.Addr), nil
		}
	}
	return neighbour.MAC{}, nil
}

// Frames is of neighbour.Protocol.
//
// An announcement is an unsolicited advertisement to all nodes with the override flag,
// without which nobody would give up what they know (RFC 4861, section 7.2.6). A router
// that knows nothing of the address yet learns it by this, too (RFC 9131).
//
// A probe is a solicitation from no address to the group of the one that is asked for
// (RFC 4862, section 5.4.2).
func (protocol) Frames(what neighbour.Word, mac neighbour.MAC, address netip.Addr) ([]neighbour.Frame, error) {
	var f neighbour.Frame
	var err error
	if what == neighbour.Probe {
		f, err = solicit(mac, address, netip.IPv6Unspecified(), neighbour.MAC{})
	} else {
		f, err = advertise(mac, address, neighbour.MAC{}, allNodes())
	}
	return []neighbour.Frame{f}, err
}

// Question is of neighbour.Protocol.
func (protocol) Question(mac neighbour.MAC, address, from netip.Addr, to neighbour.MAC) (neighbour.Frame, error) {
	return solicit(mac, address, from, to)
}

// solicit makes a whole frame that asks all stations, or the one given, whether it has the address.
func solicit(mac neighbour.MAC, address, from netip.Addr, to neighbour.MAC) (neighbour.Frame, error) {
	group, err := ndp.SolicitedNodeMulticast(address)
	if err != nil {
		return neighbour.Frame{}, fmt.Errorf("solicitation of %s: %w", address, err)
	}
	s := &ndp.NeighborSolicitation{TargetAddress: address}
	if !from.IsUnspecified() { // the answer needs somewhere to go
		s.Options = []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac[:]}}
	}
	message, err := ndp.MarshalMessageChecksum(s, from, group)
	if err != nil {
		return neighbour.Frame{}, fmt.Errorf("solicitation of %s: %w", address, err)
	}
	if !to.Station() {
		to = stationOf(group)
	}
	return envelop(mac, to, from, group, message)
}

// stationOf is where the frames of a group go (RFC 2464, section 7).
func stationOf(group netip.Addr) neighbour.MAC {
	g := group.As16()
	return neighbour.MAC{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// advertise makes a whole frame that tells that the address is at mac: for the
// station with the address to, or for the group to if the station is the zero MAC.
func advertise(mac neighbour.MAC, address netip.Addr, station neighbour.MAC, to netip.Addr) (neighbour.Frame, error) {
	solicited := !to.IsMulticast()
	if !solicited {
		station = stationOf(to)
	}
	message, err := ndp.MarshalMessageChecksum(&ndp.NeighborAdvertisement{
		Solicited: solicited, Override: true, TargetAddress: address,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: mac[:]}},
	}, address, to)
	if err != nil {
		return neighbour.Frame{}, fmt.Errorf("advertisement of %s: %w", address, err)
	}
	return envelop(mac, station, address, to, message)
}

// envelop puts an ICMPv6 message into a packet and that into a frame.
func envelop(mac, station neighbour.MAC, from, to netip.Addr, message []byte) (neighbour.Frame, error) {
	packet := make([]byte, headerLength, headerLength+len(message))
	packet[0] = ipv6.Version << 4
	binary.BigEndian.PutUint16(packet[4:], uint16(len(message)))
	packet[6], packet[7] = unix.IPPROTO_ICMPV6, ndp.HopLimit
	source, target := from.As16(), to.As16()
	copy(packet[8:], source[:])
	copy(packet[24:], target[:])
	f := ethernet.Frame{Destination: station[:], Source: mac[:], EtherType: ethernet.EtherTypeIPv6, Payload: append(packet, message...)}
	bytes, err := f.MarshalBinary()
	return neighbour.Frame{To: station, Bytes: bytes}, err
}
