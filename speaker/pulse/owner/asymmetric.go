package owner

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// heirs are the nodes that do not hear this one though it hears them, and that hear others,
// so that it is no fault of their ears. Each of them takes this node for dead and
// answers for what comes to it by that. There is no talking them out of it, so this node
// leaves it to them: one answers, and the others, who hear both, know of no change.
type heirs []string

func heirsOf(self string, v hello.View) heirs {
	var h heirs
	for _, node := range slices.Sorted(maps.Keys(v.Alive)) {
		if node != self && v.Alive[node].Deaf {
			h = append(h, node)
		}
	}
	return h
}

// of is the heir that answers for an address in its own eyes. A node that this one does not hear it
// may hear, and leave the address to.
func (h heirs) of(claim desired.Candidacy, a netip.Addr, v hello.View, able func(node string) bool) (heir string, is bool) {
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
