package desired

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/view"
)

// zoneLabel is where Kubernetes keeps a node's zone.
const zoneLabel = "topology.kubernetes.io/zone"

// endpointSets are the endpoints of one Service port that one node may use.
type endpointSets struct {
	cluster, local, serving, listed []netip.AddrPort // sorted
	anywhere                        bool
}

// standpoint is from where endpoints are chosen.
type standpoint struct {
	node, zone string
	fallen     map[string]struct{} // nodes that are believed to be dead, see view.RollCall
}

// choose picks the endpoints of one Service port for a node in a zone.
//
// The cluster set holds the ready endpoints that topology hints allow, and, when
// there are none, those that are terminating but still serve (KEP-1669). The local
// set is the same over this node's endpoints, without topology. The two fall back
// apart from each other. The serving set holds whatever is ready or serves, the listed
// set whatever there is: connections outlive conditions.
//
// Endpoints on nodes that are believed to be dead are as good as gone, unless there are
// no others: what hellos tell of a node is not worth a refusal. To the listed set they
// belong, since such a node may live.
func choose(endpoints []view.Endpoint, key PortKey, from standpoint) endpointSets {
	all := view.OffersOf(endpoints, key.Family, key.Name, key.Protocol)
	able := all
	if standing := from.standing(all); slices.ContainsFunc(standing, view.Offer.Usable) {
		able = standing
	}
	sets := from.choose(able)
	sets.listed = targets(all, nil)
	if slices.Equal(sets.listed, sets.serving) {
		sets.listed = sets.serving
	}
	return sets
}

// standing are the endpoints on nodes that are not believed to be dead.
func (s standpoint) standing(all []view.Offer) []view.Offer {
	if len(s.fallen) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(o view.Offer) bool { _, fell := s.fallen[o.Node]; return fell })
}

func (s standpoint) choose(all []view.Offer) endpointSets {
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
	// Most Services have the same endpoints for all; nobody writes to them.
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
