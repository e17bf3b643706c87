package bgp

import (
	"encoding/binary"
	"fmt"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// guard makes of what a router sends what GoBGP is to see of it. GoBGP reads messages in
// goroutines of its own, where some of them end the whole process; and what it reads of
// routes it keeps. Of a router we need to know that it is there, what it can do, whether it
// wants our routes again and why it leaves. So that is all that is let through, and each
// message is rendered anew: GoBGP sees no byte that was not looked at.
//
// It is for one connection. What is left out, and why nothing is lost by it, is in
// docs/adr/0018-guard-in-front-of-gobgp.md.
type guard struct {
	opened bool // there was an OPEN
	up     bool // and a KEEPALIVE after it
}

// The subcodes of FSM errors (RFC 6608).
const (
	unexpectedInOpenSent    = 1
	unexpectedInOpenConfirm = 2
	unexpectedInEstablished = 3
)

// take gives what GoBGP is to see of a message that readMessage has read; nil for nothing.
// The error ends the session.
func (g *guard) take(whole []byte) ([]byte, *refusal) {
	kind, body := whole[typeAt], whole[headerLength:]
	if refused := g.expect(kind); refused != nil {
		return nil, refused
	}
	switch kind {
	case packet.BGP_MSG_OPEN:
		g.opened = true
		return renderOpen(body)
	case packet.BGP_MSG_UPDATE:
		return takeUpdate(body)
	case packet.BGP_MSG_KEEPALIVE:
		g.up = true
		return message(kind), nil
	case packet.BGP_MSG_NOTIFICATION:
		return message(kind, body...), nil // of which GoBGP only reads two octets and a text
	}
	return takeRefresh(body), nil
}

// expect refuses what has no place in the session as it is.
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
	return &refusal{packet.BGP_ERROR_FSM_ERROR, subcode, []byte{kind}, fmt.Sprintf("a message of type %d %s", kind, where)}
}

// takeUpdate makes a KEEPALIVE of a router's routes: they are not taken over, and say, as
// that does, that the router is there (RFC 4271, 4.4).
func takeUpdate(body []byte) ([]byte, *refusal) {
	malformed := &refusal{packet.BGP_ERROR_UPDATE_MESSAGE_ERROR, packet.BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, nil, "the parts of an UPDATE are longer than the whole"}
	withdrawn := int(binary.BigEndian.Uint16(body))
	if withdrawn+4 > len(body) {
		return nil, malformed
	}
	if attributes := int(binary.BigEndian.Uint16(body[2+withdrawn:])); withdrawn+attributes+4 > len(body) {
		return nil, malformed
	}
	return message(packet.BGP_MSG_KEEPALIVE), nil
}

// takeRefresh passes on that a router wants our routes of a family again (RFC 2918), and
// nothing of what later RFCs make of the message, which is not negotiated.
func takeRefresh(body []byte) []byte {
	const plain = 4
	if len(body) != plain || body[2] != 0 || !unicast(body) {
		return nil
	}
	return message(packet.BGP_MSG_ROUTE_REFRESH, body...)
}

// unicast tells whether two octets of AFI, one of whatever and one of SAFI are one of ours.
func unicast(family []byte) bool {
	afi := binary.BigEndian.Uint16(family)
	return (afi == packet.AFI_IP || afi == packet.AFI_IP6) && family[3] == packet.SAFI_UNICAST
}
