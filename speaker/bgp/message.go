package bgp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// header is a marker of 16 octets of ones, the length of the whole message in 2, and its
// type (RFC 4271, 4.1).
const (
	headerLength = 19
	lengthAt     = 16
	typeAt       = 18
	// longest is the length of the longest message. Longer ones (RFC 8654) are not negotiated.
	longest = 4096
)

const marker = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// lengths returns the least and most octets of a message of a type.
func lengths(kind byte) (shortest, most int, known bool) {
	switch kind {
	case packet.BGP_MSG_OPEN:
		return 29, longest, true
	case packet.BGP_MSG_UPDATE, packet.BGP_MSG_ROUTE_REFRESH:
		return 23, longest, true
	case packet.BGP_MSG_NOTIFICATION:
		return 21, longest, true
	case packet.BGP_MSG_KEEPALIVE:
		return headerLength, headerLength, true
	}
	return headerLength, longest, false
}

// refusal is why the guard ends a session: the NOTIFICATION that the router gets (RFC 4271, 6), and
// what users read.
type refusal struct {
	code, subcode uint8
	data          []byte
	words         string
	sentence      bool // words tell all by themselves
}

// Error names the error codes of the NOTIFICATION and what was wrong.
func (r *refusal) Error() string {
	return fmt.Sprintf("%s: %s", errorWords(r.code, r.subcode), r.words)
}

func (r *refusal) notification() []byte {
	return message(packet.BGP_MSG_NOTIFICATION, append([]byte{r.code, r.subcode}, r.data...)...)
}

func malformedHeader(subcode uint8, data []byte, words string) *refusal {
	return &refusal{code: packet.BGP_ERROR_MESSAGE_HEADER_ERROR, subcode: subcode, data: data, words: words}
}

// message returns a message with a body of at most 4077 octets.
func message(kind byte, body ...byte) []byte {
	m := make([]byte, 0, headerLength+len(body))
	m = append(m, marker...)
	m = binary.BigEndian.AppendUint16(m, uint16(headerLength+len(body)))
	return append(append(m, kind), body...)
}

// readMessage reads one message into the buffer, which has room for the longest. The error is
// a *refusal if what comes is not BGP.
func readMessage(from io.Reader, buffer []byte) (whole []byte, err error) {
	head := buffer[:headerLength]
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length, kind := int(binary.BigEndian.Uint16(head[lengthAt:])), head[typeAt]
	shortest, most, known := lengths(kind)
	switch {
	case string(head[:lengthAt]) != marker:
		return nil, malformedHeader(packet.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED, nil, "a message does not begin with the marker")
	case length < shortest || length > most:
		return nil, malformedHeader(packet.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, bytes.Clone(head[lengthAt:typeAt]), fmt.Sprintf("a message of type %d has the length %d", kind, length))
	case !known:
		return nil, malformedHeader(packet.BGP_ERROR_SUB_BAD_MESSAGE_TYPE, []byte{kind}, fmt.Sprintf("a message has the unknown type %d", kind))
	}
	if _, err := io.ReadFull(from, buffer[headerLength:length]); err != nil {
		return nil, err
	}
	return buffer[:length], nil
}
