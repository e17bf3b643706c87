package bgp

import (
	"encoding/binary"
	"fmt"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

// guard turns what a router sends on one connection into what GoBGP sees of it. GoBGP reads messages in
// goroutines of its own, where some messages end the whole process; and it keeps the routes that it
// reads. A node needs to know of a router that it is there, its capabilities, its ROUTE-REFRESHes and
// why it leaves. The guard lets only that through, and renders each message anew: GoBGP sees no
// byte that was not checked. docs/adr/0018-guard-in-front-of-gobgp.md says what it leaves out, and why
// nothing is lost by that.
type guard struct {
	id         desired.Identity
	opened     bool // an OPEN has passed
	up         bool // and a KEEPALIVE after it
	negotiated Negotiated
}

// The subcodes of FSM errors (RFC 6608).
const (
	unexpectedInOpenSent    = 1
	unexpectedInOpenConfirm = 2
	unexpectedInEstablished = 3
)

// take returns what GoBGP is to see of a message that readMessage has read; nil for nothing.
// A refusal ends the session.
func (g *guard) take(whole []byte) ([]byte, *refusal) {
	kind, body := whole[typeAt], whole[headerLength:]
	if refused := g.expect(kind); refused != nil {
		return nil, refused
	}
	switch kind {
	case packet.BGP_MSG_OPEN:
		g.opened = true
		return g.takeOpen(body)
	case packet.BGP_MSG_UPDATE:
		return takeUpdate(body)
	case packet.BGP_MSG_KEEPALIVE:
		g.up = true
		return message(kind), nil
	case packet.BGP_MSG_NOTIFICATION:
		return message(kind, body...), nil // GoBGP reads two octets of it and a text
	}
	return takeRefresh(body), nil
}

// expect refuses what is out of order (RFC 4271, 8.2.2).
func (g *guard) expect(kind byte) *refusal {
	switch {
	case kind == packet.BGP_MSG_NOTIFICATION:
	case !g.opened && kind != packet.BGP_MSG_OPEN:
		return unexpected(kind, unexpectedInOpenSent, "before an OPEN")
	case g.opened && !g.up && kind != packet.BGP_MSG_KEEPALIVE:
		return unexpected(kind, unexpectedInOpenConfirm, "between OPEN and KEEPALIVE")
	case g.up && kind == packet.BGP_MSG_OPEN:
		return unexpected(kind, unexpectedInEstablished, "in a session that is up")
	}
	return nil
}

func unexpected(kind, subcode byte, where string) *refusal {
	return &refusal{code: packet.BGP_ERROR_FSM_ERROR, subcode: subcode, data: []byte{kind}, words: fmt.Sprintf("a message of type %d %s", kind, where)}
}

// takeUpdate returns a KEEPALIVE in place of a router's routes: nothing uses them, and an UPDATE restarts
// the hold timer as a KEEPALIVE does (RFC 4271, 4.4).
func takeUpdate(body []byte) ([]byte, *refusal) {
	malformed := &refusal{
		code: packet.BGP_ERROR_UPDATE_MESSAGE_ERROR, subcode: packet.BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST,
		words: "the parts of an UPDATE are longer than the whole",
	}
	withdrawn := int(binary.BigEndian.Uint16(body))
	if withdrawn+4 > len(body) {
		return nil, malformed
	}
	if attributes := int(binary.BigEndian.Uint16(body[2+withdrawn:])); withdrawn+attributes+4 > len(body) {
		return nil, malformed
	}
	return message(packet.BGP_MSG_KEEPALIVE), nil
}

// takeRefresh passes plain ROUTE-REFRESHes on (RFC 2918), and no kind of later RFCs, which are not
// negotiated.
func takeRefresh(body []byte) []byte {
	const plain = 4
	if len(body) != plain || body[2] != 0 || !unicast(body) {
		return nil
	}
	return message(packet.BGP_MSG_ROUTE_REFRESH, body...)
}

// unicast returns whether two octets of AFI, a reserved one and one of SAFI are IPv4 or IPv6 unicast.
func unicast(family []byte) bool {
	afi := binary.BigEndian.Uint16(family)
	return (afi == packet.AFI_IP || afi == packet.AFI_IP6) && family[3] == packet.SAFI_UNICAST
}
