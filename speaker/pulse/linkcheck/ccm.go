package linkcheck

import (
	"encoding/binary"

	"github.com/fxamacker/cbor/v2"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// A frame has an Ethernet header with an EtherType for local experiments (IEEE 802), the length of
// what follows in 2 bytes, since short frames are padded, and a datagram:
//
//	0   4  magic "FLOL"
//	4   1  version
//	5   *  a map of CBOR (RFC 8949), of which the numbered fields of ccm are the keys; nodes leave out what they do not know
//	   32  HMAC-SHA256 of everything before
const (
	magic      = "FLOL"
	version    = 1
	headerSize = len(magic) + 1
	lengthSize = 2
	// maxHeard is how many frames are told of in one: it fits the smallest MTU of IPv6. Where
	// more nodes are heard, they take turns.
	maxHeard = 90
)

// ccm is what a node says on an interface.
type ccm struct {
	Node   string   `cbor:"1,keyasint"`
	From   hello.ID `cbor:"2,keyasint"` // the interface
	Boot   uint64   `cbor:"3,keyasint"` // random id of the sending process
	Number uint64   `cbor:"4,keyasint"` // begins anywhere and grows by one for each interface
	// Heard has the last 4 bytes of the number of the newest frame that has come, by node.
	Heard map[hello.ID]uint32 `cbor:"5,keyasint,omitempty"`
}

// encode gives the frame without its MAC.
func (f ccm) encode() []byte {
	body, _ := cbor.Marshal(f) // never fails for these types
	return append(append([]byte(magic), version), body...)
}

// decode reads a frame without its MAC, which was found to be right.
func decode(b []byte) (f ccm, reason hello.Reason) {
	switch {
	case len(b) < headerSize || string(b[:len(magic)]) != magic:
		return f, hello.ReasonMagic
	case b[len(magic)] != version:
		return f, hello.ReasonVersion
	case cbor.Unmarshal(b[headerSize:], &f) != nil || f.Node == "":
		return ccm{}, hello.ReasonMalformed
	}
	return f, ""
}

// enclose gives what an Ethernet frame carries: datagram and its length, since short frames are padded.
func enclose(datagram []byte) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, lengthSize+len(datagram)), uint16(len(datagram)))
	return append(b, datagram...)
}

// disclose gives what was enclosed.
func disclose(payload []byte) (datagram []byte, ok bool) {
	if len(payload) < lengthSize {
		return nil, false
	}
	length := int(binary.BigEndian.Uint16(payload))
	if payload = payload[lengthSize:]; length > len(payload) {
		return nil, false
	}
	return payload[:length], true
}
