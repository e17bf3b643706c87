package bgp

import (
	"encoding/binary"
	"fmt"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// The fixed part of the body of an OPEN: version, AS number, hold time, identifier. After it
// come the length of the optional parameters in one octet, and these.
const (
	openFixed  = 9
	holdTimeAt = 3
	// extendedLength stands in place of a length, and again in place of a type, where the lengths
	// of parameters have two octets (RFC 9072).
	extendedLength = 255
)

// malformedOpen says what cannot be read of an OPEN.
func malformedOpen(words string) *refusal {
	return &refusal{packet.BGP_ERROR_OPEN_MESSAGE_ERROR, 0, nil, words}
}

// offered are the capabilities of a router that matter to us.
type offered struct {
	families [][]byte // AFI, an octet, SAFI
	foreign  bool     // one of them is not ours
	asn      []byte   // of 32 bits (RFC 6793)
	restart  []byte   // flags and time (RFC 4724)
	refresh  bool     // RFC 2918
	nextHop6 bool     // takes IPv6 next hops of IPv4 unicast prefixes (RFC 8950)
}

// renderOpen is an OPEN with the capabilities that matter to us, of one with any. What else
// it says is for GoBGP to judge.
func renderOpen(body []byte) ([]byte, *refusal) {
	var has offered
	if refused := parameters(body[openFixed:], &has); refused != nil {
		return nil, refused
	}
	// RFC 4271 has it mean that the session has no hold time, 4.2; GoBGP would give each message no time at all.
	if binary.BigEndian.Uint16(body[holdTimeAt:]) == 0 {
		return nil, &refusal{
			packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME, nil,
			"an OPEN has the hold time 0, with which neither side would notice that the other is gone: set one of 3 seconds or more at the router",
		}
	}
	var capabilities []byte
	add := func(code packet.BGPCapabilityCode, value ...byte) {
		capabilities = append(append(capabilities, byte(code), byte(len(value))), value...)
	}
	for _, family := range has.families {
		add(packet.BGP_CAP_MULTIPROTOCOL, family...)
	}
	if has.asn != nil {
		add(packet.BGP_CAP_FOUR_OCTET_AS_NUMBER, has.asn...)
	}
	if has.refresh {
		add(packet.BGP_CAP_ROUTE_REFRESH)
	}
	if has.nextHop6 {
		add(packet.BGP_CAP_EXTENDED_NEXTHOP, []byte(nextHop6)...)
	}
	if has.restart != nil {
		// Without families: the router has no routes that we would keep, and none that
		// ours would have to wait for.
		add(packet.BGP_CAP_GRACEFUL_RESTART, has.restart...)
	}
	open := append([]byte{}, body[:openFixed]...)
	if len(capabilities) == 0 {
		return message(packet.BGP_MSG_OPEN, append(open, 0)...), nil
	}
	open = append(open, byte(2+len(capabilities)), packet.BGP_OPT_CAPABILITY, byte(len(capabilities)))
	return message(packet.BGP_MSG_OPEN, append(open, capabilities...)...), nil
}

// parameters reads the optional parameters with their length before them.
func parameters(b []byte, has *offered) *refusal {
	width := 1 // of lengths
	length, b := int(b[0]), b[1:]
	if length == extendedLength && len(b) >= 3 && b[0] == extendedLength {
		width, length, b = 2, int(binary.BigEndian.Uint16(b[1:])), b[3:]
	}
	if length != len(b) {
		return malformedOpen(fmt.Sprintf("the optional parameters of an OPEN have %d octets and not %d", len(b), length))
	}
	for len(b) > 0 {
		kind := b[0]
		value, rest, ok := cut(b[1:], width)
		if !ok {
			return malformedOpen("an optional parameter of an OPEN is longer than all are")
		}
		if kind != packet.BGP_OPT_CAPABILITY {
			return &refusal{
				packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_UNSUPPORTED_OPTIONAL_PARAMETER, nil,
				fmt.Sprintf("an OPEN has an optional parameter of the unknown type %d", kind),
			}
		}
		for len(value) > 0 {
			var capability []byte
			code := packet.BGPCapabilityCode(value[0])
			if capability, value, ok = cut(value[1:], 1); !ok {
				return malformedOpen("a capability of an OPEN is longer than all are")
			}
			if !has.take(code, capability) {
				return malformedOpen(fmt.Sprintf("the capability %d of an OPEN has %d octets", code, len(capability)))
			}
		}
		b = rest
	}
	return nil
}

// cut takes a value off with its length before it.
func cut(b []byte, width int) (value, rest []byte, ok bool) {
	if len(b) < width {
		return nil, nil, false
	}
	length := int(b[0])
	if width == 2 {
		length = int(binary.BigEndian.Uint16(b))
	}
	if b = b[width:]; length > len(b) {
		return nil, nil, false
	}
	return b[:length], b[length:], true
}

// nextHop6 is a part of the capability of RFC 8950: IPv4 unicast by IPv6.
const nextHop6 = "\x00\x01\x00\x01\x00\x02"

// take takes in one capability, of which the last of a kind counts. It tells whether its
// length can be.
func (o *offered) take(code packet.BGPCapabilityCode, value []byte) bool {
	switch code {
	case packet.BGP_CAP_MULTIPROTOCOL:
		if len(value) != 4 {
			return false
		}
		o.family(value)
	case packet.BGP_CAP_FOUR_OCTET_AS_NUMBER:
		if len(value) != 4 {
			return false
		}
		o.asn = value
	case packet.BGP_CAP_ROUTE_REFRESH:
		o.refresh = true
	case packet.BGP_CAP_GRACEFUL_RESTART:
		if len(value)%4 != 2 {
			return false
		}
		o.restart = value[:2]
	case packet.BGP_CAP_EXTENDED_NEXTHOP:
		if len(value)%len(nextHop6) != 0 {
			return false
		}
		for at := 0; at < len(value); at += len(nextHop6) {
			o.nextHop6 = o.nextHop6 || string(value[at:at+len(nextHop6)]) == nextHop6
		}
	}
	return true
}

// family takes in a family once. One that is not ours stands for all such: that a router has
// others alone is another thing than that it names none, which means IPv4 (RFC 4760).
func (o *offered) family(value []byte) {
	if !unicast(value) {
		if o.foreign {
			return
		}
		o.foreign = true
	}
	value = []byte{value[0], value[1], 0, value[3]}
	for _, known := range o.families {
		if string(known) == string(value) {
			return
		}
	}
	o.families = append(o.families, value)
}
