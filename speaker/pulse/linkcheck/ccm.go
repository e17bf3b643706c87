package linkcheck

import (
	"encoding/binary"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// A frame has an Ethernet header with an EtherType for local experiments (IEEE 802), the length of
// what follows in 2 bytes, since short frames are padded, and a datagram, numbers big-endian:
//
//	 0   4  magic "FLOL"
//	 4   1  version
//	 5   1  length n of the node name, 1 to 253
//	 6   4  ID of the interface that it left by
//	10   8  boot: random id of the sending process
//	18   8  number of the frame, which begins anywhere and grows by one for each interface
//	26   2  number h of frames that are told of
//	28   n  node name
//	    8h  the ID of a node, and the last 4 bytes of the number of the newest frame from it
//	     *  what later releases add
//	    32  HMAC-SHA256 of everything before
const (
	magic      = "FLOL"
	version    = 1
	headerSize = 28
	maxName    = 253
	heardSize  = len(hello.ID{}) + 4
	lengthSize = 2
	// maxHeard is how many frames are told of in one: it fits the smallest MTU of IPv6. Where
	// more nodes are heard, they take turns.
	maxHeard = 96
)

// ccm is what a node says on an interface.
type ccm struct {
	node   string
	from   hello.ID // the interface
	boot   uint64
	number uint64
	heard  []heard
}

// heard is that a frame of a node has come.
type heard struct {
	node   hello.ID
	number uint32
}

// encode gives the frame without its MAC.
func (f ccm) encode() []byte {
	b := make([]byte, 0, headerSize+len(f.node)+heardSize*len(f.heard))
	b = append(b, magic...)
	b = append(b, version, byte(len(f.node)))
	b = append(b, f.from[:]...)
	b = binary.BigEndian.AppendUint64(b, f.boot)
	b = binary.BigEndian.AppendUint64(b, f.number)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.heard)))
	b = append(b, f.node...)
	for _, h := range f.heard {
		b = append(b, h.node[:]...)
		b = binary.BigEndian.AppendUint32(b, h.number)
	}
	return b
}

// decode reads a frame without its MAC, which was found to be right.
func decode(b []byte) (f ccm, reason hello.Reason) {
	switch {
	case len(b) < headerSize || string(b[:4]) != magic:
		return f, hello.ReasonMagic
	case b[4] != version:
		return f, hello.ReasonVersion
	}
	name, count := int(b[5]), int(binary.BigEndian.Uint16(b[26:]))
	f.from, f.boot, f.number = hello.ID(b[6:]), binary.BigEndian.Uint64(b[10:]), binary.BigEndian.Uint64(b[18:])
	if b = b[headerSize:]; name == 0 || name > maxName || count > maxHeard || len(b) < name+count*heardSize {
		return f, hello.ReasonMalformed
	}
	f.node = string(b[:name])
	for b = b[name:]; len(f.heard) < count; b = b[heardSize:] {
		f.heard = append(f.heard, heard{hello.ID(b), binary.BigEndian.Uint32(b[4:])})
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
