// Package election decides which node answers for an address. It is a pure
// rendezvous hash: every node computes the same order of candidates from the
// same names, no message is exchanged, and when a node leaves only the
// addresses it had move, evenly to all others.
package election

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"slices"
)

// Rank orders the nodes by their weight for the address, the least first. The result
// does not depend on the order of nodes, which is left as it was.
func Rank(address netip.Addr, nodes []string) []string {
	type weighed struct {
		node   string
		weight [sha256.Size]byte
	}
	all := make([]weighed, len(nodes))
	text := address.String()
	for i, node := range nodes {
		all[i] = weighed{node, weight(text, node)}
	}
	slices.SortFunc(all, func(a, b weighed) int { return bytes.Compare(a.weight[:], b.weight[:]) })
	ranked := make([]string, len(all))
	for i, w := range all {
		ranked[i] = w.node
	}
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

// weight hashes node and address. It is what MetalLB's speakers compare, so that an address
// keeps its node, and its connections, when a cluster moves from one to the other. Every
// release must give the same weights: two versions of the speaker run side by side during
// an upgrade.
func weight(address, node string) [sha256.Size]byte {
	return sha256.Sum256([]byte(node + "#" + address))
}
