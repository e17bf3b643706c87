package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

const zoneLabel = "topology.kubernetes.io/zone"

// endpointSets are the endpoints of one Service port that one node may use.
type endpointSets struct {
	cluster, local, serving, listed []netip.AddrPort // sorted
	anywhere                        bool
}

// vantage is the node for which endpoints are chosen.
type vantage struct {
	node, zone string
	fallen     map[string]struct{} // nodes that are believed to be dead, see view.RollCall
}

// choose picks the endpoints of one Service port for a node in a zone.
//
// The cluster set holds the ready endpoints that topology hints allow, and, when
// there are none, those that are terminating but still serve (KEP-1669). The local
// set is the same over this node's endpoints, without topology. Each falls back
// by itself. The serving set holds all that are ready or serve, the listed
// set all there are: connections outlive conditions.
//
// Endpoints on nodes that are believed to be dead are left out, unless there are
// no others: missing hellos are no reason to refuse a client. The listed set has
// them, since such a node may be alive.
func choose(all []view.Offer, from vantage) endpointSets {
	able := all
	if alive := from.alive(all); slices.ContainsFunc(alive, view.Offer.Usable) {
		able = alive
	}
	sets := from.choose(able)
	sets.listed = targets(all, nil)
	if slices.Equal(sets.listed, sets.serving) {
		sets.listed = sets.serving
	}
	return sets
}

// alive are the endpoints on nodes that are not believed to be dead.
func (s vantage) alive(all []view.Offer) []view.Offer {
	if len(s.fallen) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(o view.Offer) bool { _, fell := s.fallen[o.Node]; return fell })
}

func (s vantage) choose(all []view.Offer) endpointSets {
	var ready, terminating, readyHere, terminatingHere, serving []view.Offer
	for _, c := range all {
		if c.Ready || c.Serving {
			serving = append(serving, c)
		}
		here := c.Node == s.node && s.node != ""
		switch {
		case c.Ready:
			ready = append(ready, c)
			if here {
				readyHere = append(readyHere, c)
			}
		case c.Usable():
			terminating = append(terminating, c)
			if here {
				terminatingHere = append(terminatingHere, c)
			}
		}
	}
	sets := endpointSets{anywhere: len(ready)+len(terminating) > 0}
	sets.cluster = targets(near(ready, s.node, s.zone), terminating)
	sets.local = targets(readyHere, terminatingHere)
	sets.serving = targets(serving, nil)
	// Most Services have the same endpoints in all sets, which are never written to.
	if slices.Equal(sets.local, sets.cluster) {
		sets.local = sets.cluster
	}
	if slices.Equal(sets.serving, sets.cluster) {
		sets.serving = sets.cluster
	}
	return sets
}

// near keeps the endpoints that the topology hints mean for this node: those for
// the node when every endpoint has node hints and one names it, else those for its
// zone by the same rule, else all (KEP-3015, KEP-4444).
func near(ready []view.Offer, node, zone string) []view.Offer {
	forNode := func(h *view.Hints) []string { return h.ForNodes }
	forZone := func(h *view.Hints) []string { return h.ForZones }
	if hinted := hintedFor(ready, node, forNode); len(hinted) > 0 {
		return hinted
	}
	if hinted := hintedFor(ready, zone, forZone); len(hinted) > 0 {
		return hinted
	}
	return ready
}

func hintedFor(ready []view.Offer, place string, names func(*view.Hints) []string) []view.Offer {
	if place == "" {
		return nil
	}
	var hinted []view.Offer
	for _, c := range ready {
		if c.Hints == nil || len(names(c.Hints)) == 0 {
			return nil // one endpoint without a hint: the hints are not complete
		}
		if slices.Contains(names(c.Hints), place) {
			hinted = append(hinted, c)
		}
	}
	return hinted
}

// targets sorts the addresses of the first set, or of the second if that is empty.
func targets(first, otherwise []view.Offer) []netip.AddrPort {
	if len(first) == 0 {
		first = otherwise
	}
	if len(first) == 0 {
		return nil
	}
	to := make([]netip.AddrPort, 0, len(first))
	for _, c := range first {
		to = append(to, c.To)
	}
	slices.SortFunc(to, netip.AddrPort.Compare)
	return to
}

// Reasons of a Service whose EndpointSlices contradict each other, as when two controllers write them.
const (
	ReasonEndpointOnTwoNodes  = "EndpointOnTwoNodes"  // an endpoint is ready on two nodes
	ReasonEndpointReadyAndNot = "EndpointReadyAndNot" // an endpoint is ready and not ready
)

// ofContradictions tells a Service of endpoints that its EndpointSlices contradict each other about, and which of two claims counts.
func ofContradictions(s *view.Service, nodes map[netip.Addr][]string) (told []problem.Problem) {
	var onTwo, andNot []string
	for _, a := range slices.SortedFunc(maps.Keys(nodes), netip.Addr.Compare) {
		on := slices.Compact(slices.Sorted(slices.Values(nodes[a])))
		on = slices.DeleteFunc(on, func(node string) bool { return node == "" })
		if len(on) > 1 {
			onTwo = append(onTwo, fmt.Sprintf("%v on %s", a, problem.List(on, " and ")))
		} else {
			andNot = append(andNot, a.String())
		}
	}
	if len(onTwo) > 0 {
		told = append(told, problem.Advice(s.Object(), ReasonEndpointOnTwoNodes, "by its EndpointSlices it has ready endpoints with one address on two nodes, and all nodes go by the first one: %s; "+
			"have one controller write each endpoint (label endpointslice.kubernetes.io/managed-by), or correct nodeName", problem.List(onTwo, ", ")))
	}
	if len(andNot) > 0 {
		told = append(told, problem.Advice(s.Object(), ReasonEndpointReadyAndNot, "one of its EndpointSlices has as ready what another has as not ready, and it gets flows: %s; "+
			"have one controller write each endpoint (label endpointslice.kubernetes.io/managed-by)", problem.List(andNot, ", ")))
	}
	return told
}
