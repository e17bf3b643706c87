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
	"net/netip"
	"slices"
)

// Rank returns the nodes by their weight for the address, the least first. The result
// does not depend on the order of nodes, which is left as it was.
func Rank(address netip.Addr, nodes []string) []string { return new(ranker).rank(address, nodes) }

// ranker ranks, and uses its memory again for the next address.
type ranker struct{ all []weighed }

// weighed is a node with the first bytes of its weight, which decide but for one pair in 2^64.
type weighed struct {
	head uint64
	node string
}

func (r *ranker) rank(address netip.Addr, nodes []string) []string {
	r.all = r.all[:0]
	of := newWeigher(address)
	for _, node := range nodes {
		w := of.weigh(node)
		r.all = append(r.all, weighed{binary.BigEndian.Uint64(w[:]), node})
	}
	slices.SortFunc(r.all, func(a, b weighed) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		w, other := of.weigh(a.node), of.weigh(b.node)
		return w.compare(&other)
	})
	ranked := make([]string, len(nodes))
	for i, w := range r.all {
		ranked[i] = w.node
	}
	return ranked
}

// Owner returns the first candidate that is able; false when none is.
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
