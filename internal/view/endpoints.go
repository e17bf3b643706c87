package view

import (
	"slices"

	"fairlead.dev/fairlead/internal/addr"
)

// UsableNodes are the nodes with ready endpoints of the family; only when no endpoint
// is ready anywhere those whose endpoints are terminating but still answer. Sorted; ""
// stands for endpoints that name no node.
func UsableNodes(endpoints []Endpoint, family addr.Family) []string {
	var ready, terminating []string
	for i := range endpoints {
		e := &endpoints[i]
		if addr.FamilyOf(e.Addr) != family || len(e.Ports) == 0 {
			continue
		}
		switch {
		case e.Ready:
			ready = append(ready, e.Node)
		case e.Serving && e.Terminating:
			terminating = append(terminating, e.Node)
		}
	}
	if len(ready) == 0 {
		ready = terminating
	}
	slices.Sort(ready)
	return slices.Compact(ready)
}
