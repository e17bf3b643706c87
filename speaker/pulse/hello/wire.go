package hello

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// A datagram, of which the numbers below are bytes:
//
//	 0   4  magic "FLHI"
//	 4   1  version: 1 a hello, 2 gossip
//	 5   8  sequence, big-endian: grows by one with each datagram of an incarnation
//	13   *  a map of CBOR (RFC 8949), of which the numbered fields of the types hello and gossip are the keys
//	    32  HMAC-SHA256 of everything before
//
// Nodes leave out keys that they do not know. A change that old nodes cannot ignore needs a new version, and nodes that
// send both for as long as an upgrade takes.
const (
	magic         = "FLHI"
	version       = 1
	versionGossip = 2
	headerSize    = len(magic) + 1 + 8
	macSize       = sha256.Size
	maxName       = 253 // a Kubernetes node name is a DNS subdomain
	// maxStations bounds the stations that are told, so that they take no room that
	// addresses need.
	maxStations = 16
	maxDatagram = 1199 // fits the smallest IPv6 MTU with room for tunnels
)

// said is what a node says about itself.
type said struct {
	Serving    bool        `cbor:"1,keyasint,omitempty"`
	Leaving    bool        `cbor:"2,keyasint,omitempty"`
	Sound      bool        `cbor:"3,keyasint,omitempty"`  // something on the network answers it
	Unable     ranges      `cbor:"4,keyasint,omitempty"`  // see fit
	Stations   []Station   `cbor:"5,keyasint"`            // sorted, no duplicates; nil: not told
	Claims     []Claim     `cbor:"6,keyasint,omitempty"`  // of this node: what is told now; of others: what they told lately
	Interfaces []Interface `cbor:"7,keyasint,omitempty"`  // sorted; not more than are told
	Part       bool        `cbor:"8,keyasint,omitempty"`  // there are more of them, or they have more subnets
	Differs    uint32      `cbor:"9,keyasint,omitempty"`  // in which buckets its table differs from that of a node that it hears
	Damped     []ID        `cbor:"26,keyasint,omitempty"` // of which it says that they flap; sorted, no duplicates
}

func (s said) equal(o said) bool {
	return s.Serving == o.Serving && s.Leaving == o.Leaving && s.Sound == o.Sound && slices.Equal(s.Unable, o.Unable) &&
		slices.Equal(s.Stations, o.Stations) && slices.Equal(s.Claims, o.Claims) && slices.Equal(s.Damped, o.Damped) &&
		s.Part == o.Part && s.Differs == o.Differs && slices.EqualFunc(s.Interfaces, o.Interfaces, Interface.Equal)
}

// member is how a node that says so appears in a View.
func (s said) member() Member {
	return Member{
		Serving: s.Serving && !s.Leaving, Heard: true, Unable: s.Unable, Stations: s.Stations, Claims: s.Claims,
		Interfaces: s.Interfaces, Part: s.Part, Differs: s.Differs,
	}
}

// hello is one datagram, and what a node says to all, its record.
type hello struct {
	said
	summary

	Node        string        `cbor:"10,keyasint"`
	Incarnation uint64        `cbor:"11,keyasint"`           // random id of the sending process
	Seq         uint64        `cbor:"12,keyasint,omitempty"` // in a record: its version; else that of the datagram
	Ask         uint64        `cbor:"13,keyasint,omitempty"` // a nonce that the receiver is to send back
	Echo        uint64        `cbor:"14,keyasint,omitempty"` // a nonce of the receiver's that is sent back
	Hold        time.Duration `cbor:"15,keyasint,omitempty"`
	Requested   time.Duration `cbor:"16,keyasint,omitempty"` // silence that makes the node dead
	Epoch       uint64        `cbor:"17,keyasint,omitempty"` // the highest that it has heard of
	TableDigest uint64        `cbor:"18,keyasint,omitempty"` // of all of the node's table
	Table       *table        `cbor:"19,keyasint,omitempty"` // while a neighbour has another one
	Reverse     []ID          `cbor:"20,keyasint,omitempty"` // that get the hello because they watch the sender
	Links       []link        `cbor:"21,keyasint,omitempty"` // in a record: of the nodes that it watches
}

// ID stands for the name of a node or an interface where many have to fit: 4 bytes of its SHA-256.
type ID [4]byte

// IDOf is the ID of a name.
func IDOf(name string) ID {
	digest := sha256.Sum256([]byte(name))
	return ID(digest[:])
}

// saying turns what is wanted into what takes no more room than this, in bytes.
func saying(w Wanted, room int) said {
	s := said{Serving: w.Serving, Leaving: w.Leaving, Stations: sorted(w.Stations), Damped: dampedIDs(w.Damped)}
	s.Interfaces, s.Part = told(w.Interfaces, room-len(encoded(s)))
	return s.fit(room-len(encoded(s)), plain(w.Unable), w.Claimed)
}

// roomFor is how much a node with so many peers may say of itself: it fits into its hellos, and into its record in the
// gossip of others, with all else that is ever said there.
func roomFor(node string, peers, longest int) int {
	const most, most32 = math.MaxUint64, math.MaxUint32
	h := hello{Node: node, Incarnation: most, Seq: most, Hold: MaxHold, Epoch: most, said: said{Sound: true, Leaving: true, Differs: most32}}
	record := h
	record.Links = slices.Repeat([]link{{State: linkSilent, Incarnation: most32, Seq: most32}}, min(peers, maxLinks))
	h.Ask, h.Echo, h.Requested, h.TableDigest, h.Reverse = most, most, MaxHold, most, make([]ID, maxReverse)
	h.summary = summary{Watches: true, Version: most, Digest: most, Buckets: &[buckets]uint32{}}
	for b := range h.Buckets {
		h.Buckets[b] = most32
	}
	return maxDatagram - macSize - headerSize - max(len(encoded(h)), len(encoded(record))+gossipOverhead+longest)
}

// sorted gives stations in order, each once, and not more than fit. It is never nil.
func sorted(stations []Station) []Station {
	all := append([]Station{}, stations...)
	slices.SortFunc(all, func(a, b Station) int { return bytes.Compare(a[:], b[:]) })
	all = slices.Compact(all)
	return all[:min(len(all), maxStations)]
}

func encoded(v any) []byte {
	b, _ := cbor.Marshal(v) // never fails for types such as these
	return b
}

func datagramOf(version byte, seq uint64, v any) []byte {
	return append(binary.BigEndian.AppendUint64(append([]byte(magic), version), seq), encoded(v)...)
}

// left is how much room there is beside what a hello has.
func (h hello) left() int { return maxDatagram - macSize - headerSize - len(encoded(h)) }

// open checks everything about a datagram that needs no knowledge of nodes, and returns its sequence and what follows its header.
// The reason is empty when it is good.
func open(datagram []byte, of byte, keys keyring) (seq uint64, body []byte, reason Reason) {
	switch {
	case len(datagram) <= headerSize+macSize || string(datagram[:len(magic)]) != magic:
		return 0, nil, ReasonMagic
	case datagram[len(magic)] != of:
		return 0, nil, ReasonVersion
	}
	if body, reason = keys.authentic(datagram); reason != "" {
		return 0, nil, reason
	}
	return binary.BigEndian.Uint64(body[len(magic)+1:]), body[headerSize:], ""
}

// read reads a hello. One node mostly says the same in one after another, so what it said last is kept as it was read.
func (m *machine) read(body []byte) (h hello, ok bool) {
	if h, ok = m.known[string(body)]; ok {
		return h, true
	}
	h, ok = decode(body)
	if p := m.peers[h.Node]; p != nil {
		delete(m.known, p.body)
		p.body = string(body)
		m.known[p.body] = h
	}
	return h, ok
}

// decode reads a hello or a record.
func decode(body []byte) (h hello, ok bool) {
	if cbor.Unmarshal(body, &h) != nil || h.Node == "" || len(h.Node) > maxName || h.Hold < 0 || h.Requested < 0 {
		return hello{}, false
	}
	h.Claims = slices.DeleteFunc(h.Claims, func(c Claim) bool { return !c.Address.IsValid() || c.Stance < Answers || c.Stance > Yields })
	for i := range h.Claims {
		h.Claims[i].Address = h.Claims[i].Address.Unmap()
	}
	return h, true
}

// plain gives valid addresses unmapped, without zones, in order, each once.
func plain(addrs []netip.Addr) []netip.Addr {
	var all []netip.Addr
	for _, a := range addrs {
		if a = a.Unmap().WithZone(""); a.IsValid() {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
