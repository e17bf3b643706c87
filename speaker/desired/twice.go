package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonEndpointOnTwoNodes is of a Service with an endpoint that is ready on two nodes by its EndpointSlices, as when two
// controllers write them.
const ReasonEndpointOnTwoNodes = "EndpointOnTwoNodes"

// onTwoNodes tells a Service of such endpoints, and which of the two nodes counts.
func onTwoNodes(s *view.Service, twice map[netip.Addr][]string) problem.Problem {
	var texts []string
	for _, a := range slices.SortedFunc(maps.Keys(twice), netip.Addr.Compare) {
		nodes := slices.Compact(slices.Sorted(slices.Values(twice[a])))
		texts = append(texts, fmt.Sprintf("%v on %s", a, problem.List(nodes, " and ")))
	}
	return problem.Advice(s.Object(), ReasonEndpointOnTwoNodes, "by its EndpointSlices it has ready endpoints with one address on two nodes, and all nodes go by the first one: %s; "+
		"have one controller write each endpoint (label endpointslice.kubernetes.io/managed-by), or correct nodeName", problem.List(texts, ", "))
}
