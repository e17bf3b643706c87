package bgp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// The body of an OPEN begins with version, AS number, hold time in seconds, and BGP identifier. After these
// come the length of the optional parameters in one octet, and these.
const (
	asnAt        = 1
	holdTimeAt   = 3
	identifierAt = 5
	openFixed    = 9

	version4      = 4
	leastHoldTime = 3
	// extendedLength stands in place of a length, and again in place of a type, where the lengths
	// of parameters have two octets (RFC 9072).
	extendedLength = 255
)

// refusedOpen returns why an OPEN is refused (RFC 4271, 6.2).
func refusedOpen(subcode uint8, format string, args ...any) *refusal {
	return &refusal{code: packet.BGP_ERROR_OPEN_MESSAGE_ERROR, subcode: subcode, words: fmt.Sprintf(format, args...)}
}

// capabilities are those of a router that matter to us.
type capabilities struct {
	families [][]byte // AFI, an octet, SAFI
	foreign  bool     // one of the families is not ours
	asn      []byte   // of 32 bits (RFC 6793)
	restart  []byte   // flags and time (RFC 4724)
	refresh  bool     // RFC 2918
	nextHop6 bool     // takes IPv6 next hops of IPv4 unicast prefixes (RFC 8950)
}

// takeOpen refuses an OPEN with which there is no session, and otherwise notes what is negotiated and returns the
// OPEN with the capabilities that matter. GoBGP is left nothing to refuse.
func (g *guard) takeOpen(body []byte) ([]byte, *refusal) {
	if version := body[0]; version != version4 {
		refused := refusedOpen(packet.BGP_ERROR_SUB_UNSUPPORTED_VERSION_NUMBER, "an OPEN of BGP version %d", version)
		refused.data = []byte{0, version4}
		return nil, refused
	}
	var has capabilities
	if refused := parameters(body[openFixed:], &has); refused != nil {
		return nil, refused
	}
	asn, hold := uint32(binary.BigEndian.Uint16(body[asnAt:])), binary.BigEndian.Uint16(body[holdTimeAt:])
	if has.asn != nil {
		asn = binary.BigEndian.Uint32(has.asn)
	}
	router, _ := netip.AddrFromSlice(body[identifierAt:openFixed])
	switch {
	case hold < leastHoldTime: // RFC 4271, 4.2, lets 0 mean none; GoBGP would give each message no time at all
		return nil, refusedOpen(packet.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME,
			"an OPEN has the hold time %d, with which neither side would notice in time that the other is gone: set one of 3 seconds or more at the router", hold)
	case router.IsUnspecified() || asn == g.id.MyASN && router == g.id.RouterID: // RFC 6286
		return nil, refusedOpen(packet.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER, "bad BGP identifier %v", router)
	case asn != g.id.PeerASN && (g.id.PeerASN != 0 || asn == g.id.MyASN):
		refused := refusedOpen(packet.BGP_ERROR_SUB_BAD_PEER_AS, "%s", wrongASN(g.id, asn))
		refused.sentence = true
		return nil, refused
	}
	g.negotiated = negotiate(g.id, asn, time.Duration(hold)*time.Second, has)
	return renderOpen(body, has), nil
}

// wrongASN tells by which field of the BGPPeer the router's AS number is wrong.
func wrongASN(id desired.Identity, asn uint32) string {
	switch {
	case id.PeerASN == 0:
		return fmt.Sprintf("%v is in our own autonomous system %d, and dynamicASN is external: set it to internal, or correct the AS of the router", id.PeerAddress, asn)
	case id.DynamicASN:
		return fmt.Sprintf("%v opens the session with AS number %d in place of ours, %d, and dynamicASN is internal: set it to external, or correct the AS of the router", id.PeerAddress, asn, id.MyASN)
	}
	return fmt.Sprintf("%v opens the session with AS number %d in place of %d: correct peerASN, or the AS of the router", id.PeerAddress, asn, id.PeerASN)
}

// negotiate returns what a session has, given the router's OPEN and ours.
func negotiate(id desired.Identity, asn uint32, hold time.Duration, has capabilities) Negotiated {
	n := Negotiated{
		PeerASN: asn, HoldTime: hold, KeepaliveTime: time.Duration(seconds(id.KeepaliveTime)) * time.Second,
		GracefulRestart: id.GracefulRestart && has.restart != nil, FourOctetASN: has.asn != nil,
	}
	if ours := time.Duration(seconds(id.HoldTime)) * time.Second; ours <= hold {
		n.HoldTime = ours
	} else { // as GoBGP does it
		n.KeepaliveTime = (hold / 3).Truncate(time.Second)
	}
	// RFC 4760: a speaker without the capability means IPv4 unicast.
	n.IPv4 = carries(id, addr.IPv4) && (len(has.families) == 0 || has.offers(packet.AFI_IP))
	n.IPv6 = carries(id, addr.IPv6) && has.offers(packet.AFI_IP6)
	n.unextended = id.Interface != "" && n.IPv4 && !has.nextHop6
	n.IPv4 = n.IPv4 && !n.unextended
	return n
}

func renderOpen(body []byte, has capabilities) []byte {
	var all []byte
	add := func(code packet.BGPCapabilityCode, value ...byte) {
		all = append(append(all, byte(code), byte(len(value))), value...)
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
		// Without families: we keep no routes of the router, and ours wait for none.
		add(packet.BGP_CAP_GRACEFUL_RESTART, has.restart...)
	}
	open := append([]byte{}, body[:openFixed]...)
	if len(all) == 0 {
		return message(packet.BGP_MSG_OPEN, append(open, 0)...)
	}
	open = append(open, byte(2+len(all)), packet.BGP_OPT_CAPABILITY, byte(len(all)))
	return message(packet.BGP_MSG_OPEN, append(open, all...)...)
}

// parameters reads the optional parameters with their length before them.
func parameters(b []byte, has *capabilities) *refusal {
	width := 1 // of lengths
	length, b := int(b[0]), b[1:]
	if length == extendedLength && len(b) >= 3 && b[0] == extendedLength {
		width, length, b = 2, int(binary.BigEndian.Uint16(b[1:])), b[3:]
	}
	if length != len(b) {
		return refusedOpen(0, "the optional parameters of an OPEN have %d octets and not %d", len(b), length)
	}
	for len(b) > 0 {
		kind := b[0]
		value, rest, ok := cut(b[1:], width)
		if !ok {
			return refusedOpen(0, "an optional parameter of an OPEN is longer than all are")
		}
		if kind != packet.BGP_OPT_CAPABILITY {
			return refusedOpen(packet.BGP_ERROR_SUB_UNSUPPORTED_OPTIONAL_PARAMETER, "an OPEN has an optional parameter of the unknown type %d", kind)
		}
		for len(value) > 0 {
			var capability []byte
			code := packet.BGPCapabilityCode(value[0])
			if capability, value, ok = cut(value[1:], 1); !ok {
				return refusedOpen(0, "a capability of an OPEN is longer than all are")
			}
			if !has.take(code, capability) {
				return refusedOpen(0, "the capability %d of an OPEN has %d octets", code, len(capability))
			}
		}
		b = rest
	}
	return nil
}

// cut returns the value at the beginning of b, after its length in so many octets, and what follows it.
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

// take notes one capability, of which the last of a kind counts, and returns whether its length is valid.
func (c *capabilities) take(code packet.BGPCapabilityCode, value []byte) bool {
	switch code {
	case packet.BGP_CAP_MULTIPROTOCOL:
		if len(value) != 4 {
			return false
		}
		c.family(value)
	case packet.BGP_CAP_FOUR_OCTET_AS_NUMBER:
		if len(value) != 4 {
			return false
		}
		c.asn = value
	case packet.BGP_CAP_ROUTE_REFRESH:
		c.refresh = true
	case packet.BGP_CAP_GRACEFUL_RESTART:
		if len(value)%4 != 2 {
			return false
		}
		c.restart = value[:2]
	case packet.BGP_CAP_EXTENDED_NEXTHOP:
		if len(value)%len(nextHop6) != 0 {
			return false
		}
		for at := 0; at < len(value); at += len(nextHop6) {
			c.nextHop6 = c.nextHop6 || string(value[at:at+len(nextHop6)]) == nextHop6
		}
	}
	return true
}

func (c *capabilities) offers(afi uint16) bool {
	return slices.ContainsFunc(c.families, func(family []byte) bool { return unicast(family) && binary.BigEndian.Uint16(family) == afi })
}

// family notes a family once. One that is not ours stands for all such: a router with others alone is
// not a router that names none, which means IPv4 (RFC 4760).
func (c *capabilities) family(value []byte) {
	if !unicast(value) {
		if c.foreign {
			return
		}
		c.foreign = true
	}
	value = []byte{value[0], value[1], 0, value[3]}
	if !slices.ContainsFunc(c.families, func(known []byte) bool { return bytes.Equal(known, value) }) {
		c.families = append(c.families, value)
	}
}

// restartState is the bit R in the flags of the graceful restart capability (RFC 4724, 3).
const restartState = 0x80

// clearRestartState clears the bit R in an OPEN of our own, in place. GoBGP sets it wherever it sets the bit F, without
// which routers drop the routes that they kept. But R also has a router not wait for our End-of-RIB: one that
// restarts itself would then program its kernel before it has heard us, and lose our routes for a moment. So R
// is for the first session of a process alone.
func clearRestartState(open []byte) {
	var ours capabilities
	if len(open) > headerLength+openFixed && parameters(open[headerLength+openFixed:], &ours) == nil && ours.restart != nil {
		ours.restart[0] &^= restartState // a part of the OPEN
	}
}
