package owner

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// asymmetric are the nodes that do not hear this one though it hears them, and that hear others,
// so that it is no fault of their ears. Each of them takes this node for dead and
// answers for what comes to it by that. There is no talking them out of it, so this node
// leaves it to them: one answers, and the others, which hear both, know of no change.
type asymmetric []string

func asymmetricOf(self string, v hello.View) asymmetric {
	var h asymmetric
	for _, node := range slices.Sorted(maps.Keys(v.Alive)) {
		if node != self && v.Alive[node].Deaf {
			h = append(h, node)
		}
	}
	return h
}

// of is the node that answers for an address by what it hears itself. A node that this one does not hear it
// may hear, and leave the address to.
func (h asymmetric) of(claim desired.Candidacy, a netip.Addr, v hello.View, able func(node string) bool) (heir string, is bool) {
	for _, heir := range h {
		owner, ok := near(claim, a, v, func(node string) bool {
			return !v.Alive[heir].Silent[node] && (able(node) || slices.Contains(v.Silent, node))
		})
		if ok && owner == heir {
			return heir, true
		}
	}
	return "", false
}
