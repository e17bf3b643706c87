package arp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// Numbers of RFC 826 that the codec has no names for.
const (
	hardwareEthernet = 1
	macLength        = 6
	ipv4Length       = 4
)

// Handle is of neighbour.Protocol.
//
// Probes (RFC 5227, sender 0.0.0.0) are answered as any request, but for an address that
// we probe ourselves. Announcements are not: they ask nothing, and an answer would fight
// with the station that is just taking over.
func (protocol) Handle(frame []byte, ours *neighbour.Answers) (found neighbour.Finding, err error) {
	var f ethernet.Frame
	if err := f.UnmarshalBinary(frame); err != nil {
		return found, fmt.Errorf("ethernet frame of %d bytes: %w", len(frame), err)
	}
	if f.VLAN != nil || f.EtherType != ethernet.EtherTypeARP {
		return found, nil
	}
	var p arp.Packet
	if err := p.UnmarshalBinary(f.Payload); err != nil {
		return found, fmt.Errorf("ARP packet of %d bytes: %w", len(f.Payload), err)
	}
	if p.HardwareType != hardwareEthernet || p.ProtocolType != uint16(ethernet.EtherTypeIPv4) ||
		p.HardwareAddrLength != macLength || p.IPLength != ipv4Length {
		return found, errors.New("ARP packet not of IPv4 over Ethernet")
	}
	asker := neighbour.MAC(p.SenderHardwareAddr)
	if !asker.Station() || asker == ours.MAC {
		return found, nil
	}
	asks := p.Operation == arp.OperationRequest
	switch {
	case ours.Concerns(p.SenderIP):
		found.What, found.Claim = neighbour.Conflict, neighbour.Claim{
			Address: p.SenderIP, Station: asker, Source: differing(f, asker),
			Reply: p.Operation == arp.OperationReply && neighbour.MAC(f.Destination) == ours.MAC, Announced: p.SenderIP == p.TargetIP,
		}
	case asks && p.SenderIP.IsUnspecified() && ours.Probes(p.TargetIP):
		found.What, found.Claim = neighbour.Conflict, neighbour.Claim{
			Address: p.TargetIP, Station: asker, Source: differing(f, asker), Probe: true,
		}
		return found, nil
	case asks && ours.Includes(p.TargetIP):
		found.What = neighbour.Asked
	}
	// Who only has an address that we probe, such as the gateway, is a client like any other.
	if asks && ours.Includes(p.TargetIP) && !ours.Includes(p.SenderIP) {
		found.Reply, err = encode(arp.OperationReply, ours.MAC, p.TargetIP, asker, p.SenderIP, asker)
	}
	return found, err
}

// differing is the source of a frame, unset where that is the sender of the ARP packet.
func differing(f ethernet.Frame, sender neighbour.MAC) neighbour.MAC {
	if source := neighbour.MAC(f.Source); source != sender {
		return source
	}
	return neighbour.MAC{}
}

// Frames is of neighbour.Protocol.
//
// An announcement is a gratuitous request, which nearly everybody believes at once, and a
// reply for those that only believe replies. In the reply the target hardware address is
// the new one, too (RFC 5944 section 4.6), or Linux takes it for an ordinary one and
// ignores it for a second after the last change.
//
// A probe is a request without a sender's address, which changes nobody's table (RFC 5227
// section 2.1.1).
func (protocol) Frames(what neighbour.Word, mac neighbour.MAC, address netip.Addr) ([]neighbour.Frame, error) {
	from := address
	if what == neighbour.Probe {
		from = netip.IPv4Unspecified()
	}
	request, err := encode(arp.OperationRequest, mac, from, neighbour.MAC{}, address, neighbour.Broadcast())
	if err != nil || what == neighbour.Probe {
		return []neighbour.Frame{request}, err
	}
	reply, err := encode(arp.OperationReply, mac, address, mac, address, neighbour.Broadcast())
	return []neighbour.Frame{request, reply}, err
}

// Question is of neighbour.Protocol.
func (protocol) Question(mac neighbour.MAC, address, from netip.Addr, to neighbour.MAC) (neighbour.Frame, error) {
	if !to.Station() {
		to = neighbour.Broadcast()
	}
	return encode(arp.OperationRequest, mac, from, neighbour.MAC{}, address, to)
}

// encode makes a whole frame from sender to target, put on the wire for to.
func encode(
	op arp.Operation, sender neighbour.MAC, senderIP netip.Addr, target neighbour.MAC, targetIP netip.Addr, to neighbour.MAC,
) (neighbour.Frame, error) {
	p, err := arp.NewPacket(op, sender[:], senderIP, target[:], targetIP)
	if err != nil {
		return neighbour.Frame{}, fmt.Errorf("ARP for %s: %w", senderIP, err)
	}
	payload, err := p.MarshalBinary()
	if err != nil {
		return neighbour.Frame{}, fmt.Errorf("ARP for %s: %w", senderIP, err)
	}
	f := ethernet.Frame{Destination: to[:], Source: sender[:], EtherType: ethernet.EtherTypeARP, Payload: payload}
	frame, err := f.MarshalBinary()
	return neighbour.Frame{To: to, Bytes: frame}, err
}
