// Package election decides which node answers for an address. It is a pure
// rendezvous hash with bounded load: every node computes the same order of
// candidates (Rank) from the same names, and the same node that comes first
// (Spread) from the same addresses and names. No message is exchanged.
package election

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
)

// Rank orders the nodes by their weight for the address, the least first. The result
// does not depend on the order of nodes, which is left as it was.
func Rank(address netip.Addr, nodes []string) []string { return new(ranker).rank(address, nodes) }

// ranker ranks. There may be thousands of nodes for each of thousands of addresses: what is sorted is
// small, is used again for the next address, and is put in about as many buckets as there are nodes by
// its first bits, which are as good as random.
type ranker struct {
	all, sorted []weighed
	ends        []int // of the buckets
}

// weighed is a node with the first bytes of its weight, which decide but for one pair in 2^64.
type weighed struct {
	head uint64
	at   int // among the nodes
}

func (r *ranker) rank(address netip.Addr, nodes []string) []string {
	size := bits.Len(uint(len(nodes)))
	shift := 64 - size
	r.all, r.sorted = resized(r.all, len(nodes)), resized(r.sorted, len(nodes))
	r.ends = resized(r.ends, 1<<size)
	clear(r.ends)
	of := newWeigher(address)
	for i, node := range nodes {
		w := of.weigh(node)
		r.all[i] = weighed{binary.BigEndian.Uint64(w[:]), i}
		r.ends[r.all[i].head>>shift]++
	}
	begin := 0
	for i, many := range r.ends {
		r.ends[i], begin = begin, begin+many
	}
	for _, w := range r.all {
		bucket := w.head >> shift
		r.sorted[r.ends[bucket]] = w
		r.ends[bucket]++
	}
	begin = 0
	for _, end := range r.ends {
		slices.SortFunc(r.sorted[begin:end], func(a, b weighed) int {
			if a.head != b.head {
				return cmp.Compare(a.head, b.head)
			}
			w, other := of.weigh(nodes[a.at]), of.weigh(nodes[b.at])
			return w.compare(&other)
		})
		begin = end
	}
	ranked := make([]string, len(nodes))
	for i, w := range r.sorted {
		ranked[i] = nodes[w.at]
	}
	return ranked
}

// resized is a list of so many, whatever they are, in the place of another one if that has room.
func resized[T any](all []T, size int) []T {
	if size > cap(all) {
		return make([]T, size)
	}
	return all[:size]
}

// Owner is the first candidate that is able; false when none is.
func Owner(candidates []string, able func(node string) bool) (string, bool) {
	for _, node := range candidates {
		if able(node) {
			return node, true
		}
	}
	return "", false
}

// weight is that of a node for an address, the less the better. No two are equal, since no
// name of a node has a '#'.
type weight [sha256.Size]byte

func (w *weight) compare(o *weight) int { return bytes.Compare(w[:], o[:]) }

// weigher weighs nodes for one address.
type weigher struct {
	suffix []byte
	buffer []byte
}

func newWeigher(address netip.Addr) weigher {
	return weigher{suffix: address.AppendTo([]byte("#"))}
}

// weigh hashes node and address. It is what MetalLB's speakers compare, so that an address
// keeps its node, and its connections, when a cluster moves from one to the other. Every
// release must give the same weights: two versions of the speaker run side by side during
// an upgrade.
func (w *weigher) weigh(node string) weight {
	w.buffer = append(append(w.buffer[:0], node...), w.suffix...)
	return sha256.Sum256(w.buffer)
}
