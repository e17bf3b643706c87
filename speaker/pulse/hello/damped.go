package hello

import (
	"bytes"
	"slices"
)

// maxDamped is how many nodes one says of that they are damped.
const maxDamped = 16

// dampedIDs returns the nodes that are told, in order, each once.
func dampedIDs(nodes []string) []ID {
	var ids []ID
	for _, node := range nodes[:min(len(nodes), maxDamped)] {
		ids = append(ids, IDOf(node))
	}
	slices.SortFunc(ids, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// markDamped tells in a view which nodes are damped: those of which any node that is alive says so.
func (m *machine) markDamped(v View) {
	is := map[ID]bool{}
	for _, id := range m.said.Damped {
		is[id] = true
	}
	for _, p := range m.peers {
		if p.alive {
			for _, id := range p.said.Damped {
				is[id] = true
			}
		}
	}
	if len(is) == 0 {
		return
	}
	for node, member := range v.Alive {
		if is[IDOf(node)] {
			member.Damped = true
			v.Alive[node] = member
		}
	}
}
