// Package election decides which node answers for an address. It is a pure
// rendezvous hash: every node computes the same order of candidates from the
// same names, no message is exchanged, and when a node leaves only the
// addresses it had move, evenly to all others.
package election

import (
	"cmp"
	"net/netip"
	"slices"
)

// Rank orders the nodes by their weight for the address, best first. The result
// does not depend on the order of nodes, which is left as it was.
func Rank(address netip.Addr, nodes []string) []string {
	ranked := slices.Clone(nodes)
	slices.SortFunc(ranked, func(a, b string) int {
		return cmp.Or(
			cmp.Compare(weight(address, b), weight(address, a)),
			cmp.Compare(a, b),
		)
	})
	return ranked
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

// weight hashes address and node: FNV-1a over both, then the finalizer of
// MurmurHash3, since FNV alone leaves the high bits of near-equal names alike.
// Every release must give the same weights: two versions of the speaker run
// side by side during an upgrade.
func weight(address netip.Addr, node string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, b := range address.As16() {
		h = (h ^ uint64(b)) * prime
	}
	for i := range len(node) {
		h = (h ^ uint64(node[i])) * prime
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
