package arp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

// MAC is an Ethernet address.
type MAC [6]byte

// broadcast reaches every station of the segment.
var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// String is the usual notation with colons.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// station tells whether the address can be that of one station: neither unset
// nor a group.
func (m MAC) station() bool { return m != MAC{} && m[0]&1 == 0 }

// Numbers of RFC 826 that the codec has no names for.
const (
	hardwareEthernet = 1
	macLength        = 6
	ipv4Length       = 4
)

// answers is what one port answers with: an immutable table that the reader
// looks up without a lock.
type answers struct {
	mac MAC
	// since holds for each address the announcement that was begun with it.
	since map[netip.Addr]announcement
}

// event says what a frame was to us.
type event uint8

const (
	ignored  event = iota
	asked          // a request for one of our addresses, to be answered
	conflict       // another station claims one of our addresses
)

// handle decides on one received frame: the reply to send, if it asks for an
// address of ours. An error means that the frame is not well-formed ARP.
//
// Probes (RFC 5227, sender 0.0.0.0) are answered as any request. Announcements
// are not: they ask nothing, and an answer would fight with the station that
// is just taking over.
func handle(frame []byte, a *answers) (reply []byte, to MAC, what event, err error) {
	var f ethernet.Frame
	if err := f.UnmarshalBinary(frame); err != nil {
		return nil, MAC{}, ignored, fmt.Errorf("ethernet frame of %d bytes: %w", len(frame), err)
	}
	if f.VLAN != nil || f.EtherType != ethernet.EtherTypeARP {
		return nil, MAC{}, ignored, nil
	}
	var p arp.Packet
	if err := p.UnmarshalBinary(f.Payload); err != nil {
		return nil, MAC{}, ignored, fmt.Errorf("ARP packet of %d bytes: %w", len(f.Payload), err)
	}
	if p.HardwareType != hardwareEthernet || p.ProtocolType != uint16(ethernet.EtherTypeIPv4) ||
		p.HardwareAddrLength != macLength || p.IPLength != ipv4Length {
		return nil, MAC{}, ignored, errors.New("ARP packet not of IPv4 over Ethernet")
	}
	asker := MAC(p.SenderHardwareAddr)
	if !asker.station() || asker == a.mac {
		return nil, MAC{}, ignored, nil
	}
	if _, ours := a.since[p.SenderIP]; ours {
		return nil, MAC{}, conflict, nil
	}
	if _, ours := a.since[p.TargetIP]; !ours || p.Operation != arp.OperationRequest {
		return nil, MAC{}, ignored, nil
	}
	reply, err = encode(arp.OperationReply, a.mac, p.TargetIP, asker, p.SenderIP, asker)
	return reply, asker, asked, err
}

// gratuitous returns the frames that tell the whole segment that the address is
// at mac: a request, which nearly everybody believes at once, and a reply for
// those that only believe replies. In the reply the target hardware address is
// the new one, too (RFC 5944 section 4.6), or Linux takes it for an ordinary one
// and ignores it for a second after the last change.
func gratuitous(mac MAC, address netip.Addr) ([][]byte, error) {
	request, err := encode(arp.OperationRequest, mac, address, MAC{}, address, broadcast)
	if err != nil {
		return nil, err
	}
	reply, err := encode(arp.OperationReply, mac, address, mac, address, broadcast)
	if err != nil {
		return nil, err
	}
	return [][]byte{request, reply}, nil
}

// encode makes a whole frame from sender to target, put on the wire for to.
func encode(op arp.Operation, sender MAC, senderIP netip.Addr, target MAC, targetIP netip.Addr, to MAC) ([]byte, error) {
	p, err := arp.NewPacket(op, sender[:], senderIP, target[:], targetIP)
	if err != nil {
		return nil, fmt.Errorf("ARP for %s: %w", senderIP, err)
	}
	payload, err := p.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("ARP for %s: %w", senderIP, err)
	}
	f := ethernet.Frame{Destination: to[:], Source: sender[:], EtherType: ethernet.EtherTypeARP, Payload: payload}
	return f.MarshalBinary()
}
