package hello

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"
)

// A datagram, version 1, numbers big-endian:
//
//	 0   4  magic "FLHI"
//	 4   1  version
//	 5   1  flags: 1 serving, 2 leaving, 4 unable to serve any IPv4 address, 8 any IPv6
//	       address, 16 sound; others are ignored
//	 6   2  hold in milliseconds, 0 for none
//	 8   8  incarnation: random id of the sending process
//	16   8  sequence, grows by one with each hello of an incarnation
//	24   8  ask: a nonce that the receiver is to send back, 0 for none
//	32   8  echo: a nonce of the receiver's that is sent back, 0 for none
//	40   1  length n of the node name, 1 to 253
//	41   1  number a of IPv4 addresses
//	42   1  number b of IPv6 addresses
//	43   n  node name
//	    4a  IPv4 addresses that the node is unable to serve
//	   16b  IPv6 addresses that it is unable to serve
//	     *  additions: a kind and a length of one byte each, and so many bytes; those of
//	        other kinds are ignored. Kind 1: the node's stations, 6 bytes each. Kind 2: the
//	        milliseconds of silence after which the node wants to be taken for dead, 2 bytes.
//	        Kind 4, once or several times: the epoch of the node, 8 bytes, and some of its claims: a
//	        stance of one byte, the address in 16 and the epoch in 8 bytes of each. Kinds 5 to 7 are
//	        of the topology, see gossip_wire.go. Kind 8: an interface, see appendInterfaces; kind 9: there are more.
//	        Kind 13, once or several times: prefixes of which the node is unable to serve any address, see
//	        appendUnable. Kind 15: a digest of the node's table, 8 bytes, and, unless they are left out, those of
//	        its buckets, 4 bytes each. Kind 16: a bit, of 32, for each bucket in which its table differs from that of
//	        a node that it hears. The flag of their family is for older releases then, and means nothing to others
//	    32  HMAC-SHA256 of everything before
//
// A change that old nodes cannot ignore needs a new version, and nodes that
// send both for as long as an upgrade takes.
const (
	magic      = "FLHI"
	version    = 1
	headerSize = 43
	macSize    = sha256.Size
	maxName    = 253 // a Kubernetes node name is a DNS subdomain
	// maxStations bounds the stations that are told, so that they take no room that
	// addresses need.
	maxStations       = 16
	additionStations  = 1
	additionRequested = 2
	requestedSize     = 2
	idSize            = len(nodeID{})
	// reserved is what the additions take that come and go.
	reserved     = 2*additionHead + requestedSize + epochSize
	additionHead = 2
	stationSize  = len(Station{})
	maxDatagram  = 1199 // fits the smallest IPv6 MTU with room for tunnels
)

const (
	flagServing = 1 << iota
	flagLeaving
	flagUnableAny4
	flagUnableAny6
	flagSound
)

// said is what a node says about itself.
type said struct {
	serving, leaving       bool
	sound                  bool           // something on the network answers it
	unableAny4, unableAny6 bool           // no address of the family; but see unableIn
	unable                 []netip.Addr   // sorted, unmapped, no duplicates, none of such a family
	unableIn               []netip.Prefix // sorted, disjoint; of a family that has some, no other address is meant
	stations               []Station      // sorted, no duplicates; nil: not told
	claims                 []Claim        // of this node: what is told now; of others: what they told lately
	interfaces             []Interface    // sorted; not more than are told
	part                   bool           // there are more of them, or they have more subnets
	differs                uint32         // in which buckets its table differs from that of a node that it hears
}

func (s said) equal(o said) bool {
	return s.serving == o.serving && s.leaving == o.leaving && s.sound == o.sound &&
		s.unableAny4 == o.unableAny4 && s.unableAny6 == o.unableAny6 && slices.Equal(s.unable, o.unable) &&
		slices.Equal(s.unableIn, o.unableIn) &&
		slices.Equal(s.stations, o.stations) &&
		slices.Equal(s.claims, o.claims) && s.part == o.part && s.differs == o.differs && slices.EqualFunc(s.interfaces, o.interfaces, Interface.Equal)
}

// member is how a node that says so appears in a View.
func (s said) member() Member {
	within := func(of func(netip.Addr) bool) bool {
		return slices.ContainsFunc(s.unableIn, func(p netip.Prefix) bool { return of(p.Addr()) })
	}
	m := Member{
		Serving: s.serving && !s.leaving, Heard: true, UnableIn: s.unableIn,
		UnableAny4: s.unableAny4 && !within(netip.Addr.Is4), UnableAny6: s.unableAny6 && !within(netip.Addr.Is6),
		Stations: s.stations, Claims: s.claims, Interfaces: s.interfaces, Part: s.part, Differs: s.differs,
	}
	if len(s.unable) > 0 {
		m.Unable = make(map[netip.Addr]bool, len(s.unable))
		for _, a := range s.unable {
			m.Unable[a] = true
		}
	}
	return m
}

// hello is one datagram.
type hello struct {
	said
	node             string
	incarnation, seq uint64
	ask, echo        uint64
	hold             time.Duration // whole milliseconds
	requested        time.Duration // silence that makes the node dead, in whole milliseconds; 0: not told
	epoch            uint64        // 0: not told

	tableDigest uint64 // of all of the node's table; 0: not told
	table       *table // nil: not told

	summary summary
	reverse []nodeID // that get the hello because they watch the sender
	links   []link   // in a record: of the nodes that it watches
	room    int      // for all this, in bytes; 0: a datagram's
}

// limit is how long it may be without its MAC.
func (h hello) limit() int {
	if h.room > 0 {
		return h.room
	}
	return maxDatagram - macSize
}

// nodeID stands for the name of a node, to be short on the wire.
type nodeID [4]byte

func idOf(node string) nodeID {
	digest := sha256.Sum256([]byte(node))
	return nodeID(digest[:])
}

// saying turns what is wanted into what fits into a datagram.
// less is for how much less there is room than in a hello.
func saying(node string, w Wanted, less int) said {
	s := said{serving: w.Serving, leaving: w.Leaving, stations: sorted(w.Stations)}
	room := maxDatagram - headerSize - len(node) - macSize - reserved - less
	s.interfaces, s.part = told(w.Interfaces, room-len(s.additions()))
	s.unable = plain(w.Unable)
	return s.fit(room-len(s.additions()), w.Claimed)
}

// sorted gives stations in order, each once, and not more than fit. It is never nil.
func sorted(stations []Station) []Station {
	all := append([]Station{}, stations...)
	slices.SortFunc(all, func(a, b Station) int { return bytes.Compare(a[:], b[:]) })
	all = slices.Compact(all)
	return all[:min(len(all), maxStations)]
}

// additions is what follows the addresses.
func (s said) additions() []byte {
	var b []byte
	if s.stations != nil {
		b = append(b, additionStations, byte(stationSize*len(s.stations)))
	}
	for _, station := range s.stations {
		b = append(b, station[:]...)
	}
	return s.appendUnable(s.appendInterfaces(b))
}

// with takes in the additions that follow the addresses. What is cut short is ignored, as
// are unknown ones.
func (h hello) with(additions []byte) hello {
	for len(additions) >= additionHead {
		kind, length := additions[0], int(additions[1])
		if additions = additions[additionHead:]; length > len(additions) {
			break
		}
		switch addition := additions[:length]; {
		case kind == additionStations && length%stationSize == 0:
			for station := range slices.Chunk(addition, stationSize) {
				h.stations = append(h.stations, Station(station))
			}
			h.stations = sorted(h.stations)
		case kind == additionClaims:
			h = h.claimed(addition)
		case kind == additionInterface:
			h.said = h.withInterface(addition)
		case kind == additionNoInterface:
			h.part = true
		case kind == additionUnable:
			h.said = h.withUnable(addition)
		case kind == additionTable:
			h = h.withTable(addition)
		case kind == additionDiffers && length == differsSize:
			h.differs = binary.BigEndian.Uint32(addition)
		case kind == additionRequested && length == requestedSize:
			h.requested = time.Duration(binary.BigEndian.Uint16(addition)) * time.Millisecond
		default:
			h = h.withTopology(kind, addition)
		}
		additions = additions[length:]
	}
	return h
}

// encode gives the datagram without its MAC.
func (h hello) encode() []byte {
	b := h.bare()
	return append(b, h.claiming(h.limit()-len(b))...) // last, since it takes what room is left
}

// bare is the datagram without its MAC and claims.
func (h hello) bare() []byte {
	var flags byte
	if h.serving {
		flags |= flagServing
	}
	if h.leaving {
		flags |= flagLeaving
	}
	if h.unableAny4 {
		flags |= flagUnableAny4
	}
	if h.unableAny6 {
		flags |= flagUnableAny6
	}
	if h.sound {
		flags |= flagSound
	}
	b := make([]byte, 0, headerSize+len(h.node)+16*len(h.unable)+128) // and so much for some additions
	b = append(b, magic...)
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(h.hold/time.Millisecond))
	b = binary.BigEndian.AppendUint64(b, h.incarnation)
	b = binary.BigEndian.AppendUint64(b, h.seq)
	b = binary.BigEndian.AppendUint64(b, h.ask)
	b = binary.BigEndian.AppendUint64(b, h.echo)
	four := firstIPv6(h.unable)
	b = append(b, byte(len(h.node)), byte(four), byte(len(h.unable)-four))
	b = append(b, h.node...)
	for _, a := range h.unable {
		b = append(b, a.AsSlice()...)
	}
	b = append(b, h.additions()...)
	if h.requested > 0 {
		b = append(b, additionRequested, requestedSize)
		b = binary.BigEndian.AppendUint16(b, uint16(min(h.requested/time.Millisecond, math.MaxUint16)))
	}
	return h.appendTable(h.appendTopology(b))
}

// appendIDs adds an addition of nodes, if there are any.
func appendIDs(b []byte, kind byte, ids []nodeID) []byte {
	if len(ids) == 0 {
		return b
	}
	b = append(b, kind, byte(idSize*len(ids)))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

func readIDs(addition []byte) []nodeID {
	ids := make([]nodeID, 0, len(addition)/idSize)
	for id := range slices.Chunk(addition, idSize) {
		ids = append(ids, nodeID(id))
	}
	return ids
}

// open checks everything about a datagram that needs no knowledge of nodes,
// and reads it. The reason is empty when it is good.
func open(datagram []byte, keys keyring) (hello, Reason) {
	switch {
	case len(datagram) < headerSize+1+macSize || string(datagram[:4]) != magic:
		return hello{}, ReasonMagic
	case datagram[4] != version:
		return hello{}, ReasonVersion
	}
	body, reason := keys.authentic(datagram)
	if reason != "" {
		return hello{}, reason
	}
	h, ok := decode(body)
	if !ok {
		return hello{}, ReasonMalformed
	}
	return h, ""
}

// decode reads a datagram without its MAC.
func decode(body []byte) (hello, bool) {
	if len(body) < headerSize {
		return hello{}, false
	}
	name, four, six := int(body[40]), int(body[41]), int(body[42])
	rest := body[headerSize:]
	if name == 0 || name > maxName || len(rest) < name+4*four+16*six {
		return hello{}, false
	}
	flags := body[5]
	h := hello{
		said: said{
			serving:    flags&flagServing != 0,
			leaving:    flags&flagLeaving != 0,
			unableAny4: flags&flagUnableAny4 != 0,
			unableAny6: flags&flagUnableAny6 != 0,
			sound:      flags&flagSound != 0,
		},
		hold:        time.Duration(binary.BigEndian.Uint16(body[6:])) * time.Millisecond,
		incarnation: binary.BigEndian.Uint64(body[8:]),
		seq:         binary.BigEndian.Uint64(body[16:]),
		ask:         binary.BigEndian.Uint64(body[24:]),
		echo:        binary.BigEndian.Uint64(body[32:]),
		node:        string(rest[:name]),
	}
	rest = rest[name:]
	for range four {
		h.unable = append(h.unable, netip.AddrFrom4([4]byte(rest)))
		rest = rest[4:]
	}
	for range six {
		a := netip.AddrFrom16([16]byte(rest))
		if a.Is4In6() {
			return hello{}, false
		}
		h.unable = append(h.unable, a)
		rest = rest[16:]
	}
	slices.SortFunc(h.unable, netip.Addr.Compare)
	h.unable = slices.Compact(h.unable)
	return h.with(rest), true
}
