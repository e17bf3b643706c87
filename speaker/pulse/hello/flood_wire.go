package hello

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"github.com/fxamacker/cbor/v2"
)

const (
	// gossipOverhead is what gossip has beside the name of its sender and its items, in bytes, at most.
	gossipOverhead = 1 + 3 + 10 + 4 + 4
	indexHead      = 8
	indexEntry     = 9 + 2 + 6 + 6 // with a version of 32 bits
	maxLinks       = 2 * rings * maxWalk
	maxReverse     = 16
	buckets        = 32
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
	Watches bool             `cbor:"22,keyasint,omitempty"` // the sender watches the receivers, but for the reverse neighbours
	Version uint64           `cbor:"23,keyasint,omitempty"` // of its record
	Digest  uint64           `cbor:"24,keyasint,omitempty"` // of all records that it has
	Buckets *[buckets]uint32 `cbor:"25,keyasint,omitempty"` // of those in each bucket, while a neighbour has another digest
}

// linkState is what a node knows of one that it watches.
type linkState byte

const (
	linkPending linkState = iota // nothing yet
	linkHeard
	linkSilent  // heard once, and silent for a detection time
	linkRefuted // heard, and later than a watcher that calls it silent
)

// link is what a node says of one that it watches. Incarnation and Seq are the last 4 bytes of those of the newest hello that it
// heard, of one that it calls silent, or of which it refutes that.
type link struct {
	_                struct{} `cbor:",toarray"`
	To               longID
	State            linkState
	Incarnation, Seq uint32
}

// recordVersion tells which of two records of a node is newer. Incarnations are random: they break ties, so
// that all agree which one to keep until the node has heard of the other and outbid it.
type recordVersion struct {
	Version     uint64 `cbor:"1,keyasint"`
	Incarnation uint32 `cbor:"2,keyasint"` // its first 4 bytes
}

func versionOf(record hello) recordVersion {
	return recordVersion{record.Seq, uint32(record.Incarnation >> 32)}
}

// recordVersion is that of the record that the sender of a hello has of itself.
func (h hello) recordVersion() recordVersion {
	return recordVersion{h.Version, uint32(h.Incarnation >> 32)}
}

func (s recordVersion) compare(o recordVersion) int {
	return cmp.Or(cmp.Compare(s.Version, o.Version), cmp.Compare(s.Incarnation, o.Incarnation))
}

// digest is the part of a record in the digest of all.
func (s recordVersion) digest(id longID) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write(id[:]) // never fails
	_, _ = sum.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, s.Version), s.Incarnation))
	return sum.Sum64()
}

// index says which records a node has of those in a bucket.
type index struct {
	Bucket int                      `cbor:"1,keyasint"`
	Has    map[longID]recordVersion `cbor:"2,keyasint"`
}

// gossip is a datagram of version 2, which nodes send each other beside their hellos, with sequences of the same numbers.
type gossip struct {
	Node        string            `cbor:"10,keyasint"`
	Incarnation uint64            `cbor:"11,keyasint"`
	Records     []cbor.RawMessage `cbor:"13,keyasint,omitempty"`
	Indexes     []index           `cbor:"14,keyasint,omitempty"`
}

// recordHead is so much of a record as tells which one it is. Of most of those that come, that is all that has to be known, as they
// come from several nodes.
type recordHead struct {
	Node        string `cbor:"10,keyasint"`
	Incarnation uint64 `cbor:"11,keyasint"`
	Seq         uint64 `cbor:"12,keyasint"`
}

// isGossip tells it from a hello.
func isGossip(datagram []byte) bool {
	return len(datagram) > len(magic) && datagram[len(magic)] == versionGossip
}

// decodeGossip reads gossip.
func decodeGossip(body []byte) (g gossip, ok bool) {
	if cbor.Unmarshal(body, &g) != nil || g.Node == "" {
		return gossip{}, false
	}
	for _, x := range g.Indexes {
		if x.Bucket < 0 || x.Bucket >= buckets {
			return gossip{}, false
		}
	}
	return g, true
}

// outbox collects records and indexes into gossip that fits into datagrams.
type outbox struct {
	room, left int
	all        []gossip
}

// with is the gossip that has room for an item of so many bytes.
func (o *outbox) with(size int) *gossip {
	if o.left -= size; o.left < 0 || len(o.all) == 0 {
		o.all, o.left = append(o.all, gossip{}), o.room-size
	}
	return &o.all[len(o.all)-1]
}

// addresses of peers, in order.
func addressesOf(peers []*peer) []netip.Addr {
	all := make([]netip.Addr, 0, 2*len(peers))
	for _, p := range peers {
		all = append(all, p.addrs...)
	}
	return all
}
