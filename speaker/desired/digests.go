package desired

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// Digests has a digest for each bucket of addresses: of the candidates for each address in it, and of what their
// order follows from. Nodes that decide by the same cluster have the same ones. Whether a node is a candidate
// itself, and what only one node is concerned with, such as its interfaces, stays out.
type Digests [32]uint32

// Bucket returns the index of the digest that an address, of either family, is part of.
func Bucket(address netip.Addr) int { return int(fold(address.AppendTo(nil)) % uint32(len(Digests{}))) }

// digests keeps the digest of each address, and those of the buckets.
type digests struct {
	of  map[netip.Addr]uint32
	sum Digests
}

// set takes over the candidates for an address; with none of them the address is out.
func (d *digests) set(address netip.Addr, c Candidacy) {
	bucket := &d.sum[Bucket(address)]
	*bucket ^= d.of[address]
	delete(d.of, address)
	if len(c.Candidates) > 0 {
		d.of[address] = c.digest(address)
		*bucket ^= d.of[address]
	}
}

func (c Candidacy) digest(address netip.Addr) uint32 {
	b := append(address.AppendTo(nil), '\n')
	b = append(binary.BigEndian.AppendUint64(b, c.Tiers.Digest()), c.First...)
	for _, node := range c.Named {
		b = append(append(b, '\n'), node...)
	}
	if c.NoPreempt {
		b = append(b, "\nkeep"...)
	}
	return fold(b)
}

func fold(b []byte) uint32 {
	h := fnv.New64a()
	h.Write(b)
	sum := h.Sum64()
	return uint32(sum>>32) ^ uint32(sum)
}
