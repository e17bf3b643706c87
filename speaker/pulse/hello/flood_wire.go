package hello

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
)

// Nodes send each other gossip beside their hellos: datagrams of version 2.
//
// Additions to hellos. Kind 5: a byte, 1 if the sender watches the nodes to which the hello goes, the version of its
// record, 8 bytes, and a digest of all records that it has, 8 bytes. Kind 6: the reverse neighbours, which get
// the hello because they watch the sender and not because it watches them, 4 bytes of the SHA-256 of each name. Kind 14, only while a
// neighbour has another digest: a digest of the records in each bucket, 4 bytes each.
//
// A gossip datagram:
//
//	 0   4  magic "FLHI"
//	 4   1  version, 2
//	 5   1  0
//	 6   8  incarnation of the sender
//	14   8  sequence, of the same numbers as its hellos
//	22   1  length n of its name
//	23   n  its name
//	     *  items: a kind of one byte, a length of two, and so many bytes; those of other kinds
//	        are ignored. Kind 1: a record. Kind 2: an index: the number of a bucket, and of each
//	        record there is in it the longID, the version, and the first 4 bytes of the incarnation
//	    32  HMAC-SHA256 of everything before
//
// A record is what a node says to all: a hello without MAC, of which the sequence is the version
// of the record, with additions of kind 7: the nodes that it watches, each a longID, a byte that
// tells the state (0 pending, 1 heard, 2 silent, 3 refuted), and for the last two the last 4
// bytes of the incarnation and of the sequence of its newest hello.
const (
	versionGossip     = 2
	gossipHead        = 23
	itemHead          = 3
	itemRecord        = 1
	itemIndex         = 2
	indexEntry        = longSize + 8 + 4
	additionSummary   = 5
	additionReverse   = 6
	additionLinks     = 7
	additionBuckets   = 14
	summarySize       = 1 + 8 + 8
	bucketsSize       = 4 * buckets
	linkSize          = longSize + 1 // of one that is pending or heard
	linkEvidence      = 8            // what the others have more
	linksPerAddition  = 255 / (linkSize + linkEvidence)
	maxLinks          = 2 * rings * maxWalk
	maxReverse        = 16
	buckets           = 32
	longSize          = len(longID{})
	maxGossipOverhead = gossipHead + itemHead // of a record
)

// longID stands for the name of a node where two must not be mixed up: 8 bytes of its SHA-256.
type longID [8]byte

func longIDOf(node string) longID {
	digest := sha256.Sum256([]byte(node))
	return longID(digest[:])
}

func (id longID) compare(o longID) int { return bytes.Compare(id[:], o[:]) }

func (id longID) bucket() int { return int(id[0]) % buckets }

// summary is what a node says of records in its hellos.
type summary struct {
	told    bool // false: the node is of a release without records
	watches bool // the sender watches the receivers, but for the reverse neighbours
	version uint64
	digest  uint64           // of all records that it has
	buckets *[buckets]uint32 // of those in each bucket; nil: not told
}

// linkState is what a node knows of one that it watches.
type linkState byte

const (
	linkPending linkState = iota // nothing yet
	linkHeard
	linkSilent  // heard once, and silent for a detection time
	linkRefuted // heard, and later than a watcher that calls it silent
)

// link is what a node says of one that it watches. incarnation and seq are of the newest hello that it
// heard, of one that it calls silent, or of which it refutes that.
type link struct {
	to               longID
	state            linkState
	incarnation, seq uint32
}

func (l link) hasEvidence() bool { return l.state == linkSilent || l.state == linkRefuted }

// recordReserve is for how much less there is room in what a node says than in a datagram: its
// record travels in the gossip of another node, with that one's name, of so many bytes at most.
func recordReserve(name, peers int) int {
	inHello := additionHead + summarySize + additionHead + bucketsSize + additionHead + maxReverse*idSize
	links := min(peers, maxLinks)
	inGossip := maxGossipOverhead + name + (links+linksPerAddition-1)/linksPerAddition*additionHead + links*(linkSize+linkEvidence) +
		additionHead + epochSize - reserved
	return max(inHello, inGossip)
}

// appendTopology adds the additions of the topology.
func (h hello) appendTopology(b []byte) []byte {
	if h.summary.told {
		var watches byte
		if h.summary.watches {
			watches = 1
		}
		b = append(b, additionSummary, summarySize, watches)
		b = binary.BigEndian.AppendUint64(b, h.summary.version)
		b = binary.BigEndian.AppendUint64(b, h.summary.digest)
		if h.summary.buckets != nil {
			b = append(b, additionBuckets, bucketsSize)
			for _, digest := range h.summary.buckets {
				b = binary.BigEndian.AppendUint32(b, digest)
			}
		}
	}
	b = appendIDs(b, additionReverse, h.reverse)
	for some := range slices.Chunk(h.links, linksPerAddition) {
		at := len(b) + 1
		b = append(b, additionLinks, 0)
		for _, l := range some {
			b = append(b, l.to[:]...)
			b = append(b, byte(l.state))
			if l.hasEvidence() {
				b = binary.BigEndian.AppendUint32(b, l.incarnation)
				b = binary.BigEndian.AppendUint32(b, l.seq)
			}
		}
		b[at] = byte(len(b) - at - 1)
	}
	return b
}

// withTopology takes in one addition of the topology, if it is one.
func (h hello) withTopology(kind byte, addition []byte) hello {
	switch {
	case kind == additionSummary && len(addition) == summarySize:
		h.summary = summary{
			told: true, watches: addition[0]&1 != 0, version: binary.BigEndian.Uint64(addition[1:]), digest: binary.BigEndian.Uint64(addition[9:]),
		}
	case kind == additionBuckets && len(addition) == bucketsSize && h.summary.told:
		h.summary.buckets = &[buckets]uint32{}
		for i := range h.summary.buckets {
			h.summary.buckets[i] = binary.BigEndian.Uint32(addition[4*i:])
		}
	case kind == additionReverse && len(addition)%idSize == 0 && len(h.reverse) < maxReverse:
		h.reverse = append(h.reverse, readIDs(addition)...)
		h.reverse = h.reverse[:min(len(h.reverse), maxReverse)]
	case kind == additionLinks:
		for len(addition) >= linkSize && len(h.links) < maxLinks {
			l := link{to: longID(addition), state: linkState(addition[longSize])}
			addition = addition[linkSize:]
			if l.hasEvidence() {
				if len(addition) < linkEvidence {
					break
				}
				l.incarnation, l.seq = binary.BigEndian.Uint32(addition), binary.BigEndian.Uint32(addition[4:])
				addition = addition[linkEvidence:]
			}
			if l.state <= linkRefuted {
				h.links = append(h.links, l)
			}
		}
	}
	return h
}

// recordVersion tells which of two records of a node is newer. Incarnations are random: they break ties, so
// that all agree which one to keep until the node has heard of the other and outbid it.
type recordVersion struct {
	version     uint64
	incarnation uint32 // its first 4 bytes
}

func versionOf(h hello) recordVersion { return recordVersion{h.seq, uint32(h.incarnation >> 32)} }

func (s recordVersion) compare(o recordVersion) int {
	return cmp.Or(cmp.Compare(s.version, o.version), cmp.Compare(s.incarnation, o.incarnation))
}

// digest is the part of a record in the digest of all.
func (s recordVersion) digest(id longID) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write(id[:]) // never fails
	_, _ = sum.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, s.version), s.incarnation))
	return sum.Sum64()
}

// index says which records a node has of those in a bucket.
type index struct {
	bucket int
	has    map[longID]recordVersion
}

func (x index) encode() []byte {
	b := []byte{byte(x.bucket)}
	for id, s := range x.has {
		b = append(b, id[:]...)
		b = binary.BigEndian.AppendUint64(b, s.version)
		b = binary.BigEndian.AppendUint32(b, s.incarnation)
	}
	return b
}

func decodeIndex(b []byte) (index, bool) {
	if len(b) == 0 || int(b[0]) >= buckets || (len(b)-1)%indexEntry != 0 {
		return index{}, false
	}
	x := index{bucket: int(b[0]), has: map[longID]recordVersion{}}
	for entry := range slices.Chunk(b[1:], indexEntry) {
		x.has[longID(entry)] = recordVersion{binary.BigEndian.Uint64(entry[longSize:]), binary.BigEndian.Uint32(entry[longSize+8:])}
	}
	return x, true
}

// gossip is a datagram of version 2.
type gossip struct {
	node             string
	incarnation, seq uint64
	records          []sealedRecord
	indexes          []index
}

// sealedRecord is a record of which not more was read than which one it is: of most of those that
// come, that is all that has to be known, as they come from several nodes.
type sealedRecord struct {
	node        []byte // in body
	incarnation uint64
	recordVersion
	body []byte
}

// peek reads so much of a record.
func peek(body []byte) (sealedRecord, bool) {
	if len(body) < headerSize {
		return sealedRecord{}, false
	}
	name := int(body[40])
	if name == 0 || name > maxName || name > len(body)-headerSize {
		return sealedRecord{}, false
	}
	r := sealedRecord{node: body[headerSize:][:name], incarnation: binary.BigEndian.Uint64(body[8:]), body: body}
	r.recordVersion = recordVersion{version: binary.BigEndian.Uint64(body[16:]), incarnation: uint32(r.incarnation >> 32)}
	return r, true
}

// isGossip tells it from a hello.
func isGossip(datagram []byte) bool {
	return len(datagram) > len(magic) && string(datagram[:len(magic)]) == magic && datagram[len(magic)] == versionGossip
}

// gossipTo begins a datagram, to which items are appended.
func gossipTo(node string, incarnation, seq uint64) []byte {
	b := append([]byte(magic), versionGossip, 0)
	b = binary.BigEndian.AppendUint64(b, incarnation)
	b = binary.BigEndian.AppendUint64(b, seq)
	b = append(b, byte(len(node)))
	return append(b, node...)
}

func appendItem(b []byte, kind byte, item []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(item)))
	return append(b, item...)
}

// openGossip is what open is for hellos.
func openGossip(datagram []byte, keys keyring) (gossip, Reason) {
	if len(datagram) < gossipHead+1+macSize {
		return gossip{}, ReasonMagic
	}
	body, reason := keys.authentic(datagram)
	if reason != "" {
		return gossip{}, reason
	}
	g, ok := decodeGossip(body)
	if !ok {
		return gossip{}, ReasonMalformed
	}
	return g, ""
}

// decodeGossip reads a datagram without its MAC.
func decodeGossip(body []byte) (gossip, bool) {
	if len(body) < gossipHead {
		return gossip{}, false
	}
	g := gossip{incarnation: binary.BigEndian.Uint64(body[6:]), seq: binary.BigEndian.Uint64(body[14:])}
	name, rest := int(body[22]), body[gossipHead:]
	if name == 0 || name > maxName || name > len(rest) {
		return gossip{}, false
	}
	g.node, rest = string(rest[:name]), rest[name:]
	for len(rest) >= itemHead {
		kind, length := rest[0], int(binary.BigEndian.Uint16(rest[1:]))
		if rest = rest[itemHead:]; length > len(rest) {
			return gossip{}, false
		}
		item := rest[:length]
		rest = rest[length:]
		switch kind {
		case itemRecord:
			record, ok := peek(item)
			if !ok {
				return gossip{}, false
			}
			g.records = append(g.records, record)
		case itemIndex:
			x, ok := decodeIndex(item)
			if !ok {
				return gossip{}, false
			}
			g.indexes = append(g.indexes, x)
		}
	}
	return g, true
}

// gossipOut collects items into datagrams that fit.
type gossipOut struct {
	room  int // for items
	packs [][]byte
}

func (o *gossipOut) add(kind byte, item []byte) {
	last := len(o.packs) - 1
	if last < 0 || len(o.packs[last])+itemHead+len(item) > o.room {
		o.packs, last = append(o.packs, nil), last+1
	}
	o.packs[last] = appendItem(o.packs[last], kind, item)
}

// addresses of peers, in order.
func addressesOf(peers []*peer) []netip.Addr {
	all := make([]netip.Addr, 0, 2*len(peers))
	for _, p := range peers {
		all = append(all, p.addrs...)
	}
	return all
}
