package view

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
)

// Offer is an endpoint of one port of a Service, and where flows to that port go to.
type Offer struct {
	*Endpoint
	To netip.AddrPort
}

// Usable reports whether new flows may go there, if only for want of others: it is ready, or
// it terminates and still serves (KEP-1669).
func (o Offer) Usable() bool { return o.Ready || o.Serving && o.Terminating }

// PortName tells the ports of a Service apart.
type PortName struct {
	Name     string
	Protocol Protocol
}

// PortNames are the names of the Service's ports, in their order.
func (s *Service) PortNames() []PortName {
	names := make([]PortName, len(s.Ports))
	for i, p := range s.Ports {
		names[i] = PortName{p.Name, p.Protocol}
	}
	return names
}

// OffersByPort are the endpoints that have ports of these names and protocols in this family, each
// address and port once. Where two endpoints claim one, as when a pod's address is used
// again, the same one counts on every node: one that is not terminating. contradictory are the nodes of those that are claimed
// to be ready on two, of which the first by name counts, or ready and not ready on one, where ready counts; some nodes are there
// again. It costs what it returns: each port of thousands is not looked for in each endpoint.
func OffersByPort(endpoints []Endpoint, family addr.Family, ports []PortName) (found map[PortName][]Offer, contradictory map[netip.Addr][]string) {
	found = make(map[PortName][]Offer, len(ports))
	for _, p := range ports {
		found[p] = nil
	}
	seen := make(map[PortName]map[netip.AddrPort]int, len(ports))
	var wanted, of []EndpointPort // of a slice
	for i := range endpoints {
		e := &endpoints[i]
		if addr.FamilyOf(e.Addr) != family {
			continue
		}
		if len(e.Ports) != len(of) || len(of) > 0 && &e.Ports[0] != &of[0] {
			of, wanted = e.Ports, nil
			for _, p := range of {
				if _, is := found[PortName{p.Name, p.Protocol}]; is {
					wanted = append(wanted, p)
				}
			}
		}
		for _, p := range wanted {
			key, o := PortName{p.Name, p.Protocol}, Offer{Endpoint: e, To: netip.AddrPortFrom(e.Addr, p.Port)}
			if seen[key] == nil {
				seen[key] = map[netip.AddrPort]int{}
			}
			at, known := seen[key][o.To]
			if !known {
				seen[key][o.To] = len(found[key])
				found[key] = append(found[key], o)
				continue
			}
			other := found[key][at].Endpoint
			contradictory = e.note(other, contradictory)
			if e.supersedes(other) {
				found[key][at] = o
			}
		}
	}
	return found, contradictory
}

// note adds the nodes of two endpoints with one address if they contradict each other.
func (e *Endpoint) note(other *Endpoint, contradictory map[netip.Addr][]string) map[netip.Addr][]string {
	if !e.contradicts(other) {
		return contradictory
	}
	if contradictory == nil {
		contradictory = map[netip.Addr][]string{}
	}
	contradictory[e.Addr] = append(contradictory[e.Addr], e.Node, other.Node)
	return contradictory
}

// contradicts reports whether one of two endpoints with one address cannot be as it is said to be.
func (e *Endpoint) contradicts(other *Endpoint) bool {
	switch {
	case e.Terminating || other.Terminating: // its address is used again, or one slice is late
		return false
	case e.Node == other.Node || e.Node == "" || other.Node == "":
		return e.Ready != other.Ready
	}
	return e.Ready && other.Ready && e.Serving == other.Serving
}

// supersedes reports which of two endpoints counts that claim an address and port, in whatever order they are listed.
func (e *Endpoint) supersedes(other *Endpoint) bool {
	switch {
	case e.Terminating != other.Terminating:
		return other.Terminating
	case e.Ready != other.Ready:
		return e.Ready
	case e.Serving != other.Serving:
		return e.Serving
	case e.Node == "" || other.Node == "": // one that names its node says more
		return e.Node != ""
	}
	return e.Node < other.Node
}

// Usable are the endpoints of a Service that flows may go to, by its ports.
type Usable [][]Offer

// UsableOf lists those of one family, of the part that all nodes forward.
func UsableOf(s *Service, endpoints []Endpoint, family addr.Family) Usable {
	s, endpoints, _ = Bounded(s, endpoints, "")
	names := s.PortNames()
	by, _ := OffersByPort(endpoints, family, names)
	usable := make(Usable, 0, len(names))
	for _, name := range names {
		offers := by[name]
		usable = append(usable, slices.DeleteFunc(offers, func(o Offer) bool { return !o.Usable() }))
	}
	return usable
}

// Nodes are the nodes with endpoints that flows to the Service may go to
// on that node: ready ones, and on a node that has none such as terminate and still serve, also
// while others are ready elsewhere: in a rolling update the flows that they have go on
// coming. Sorted; "" stands for endpoints that name no node.
//
// Routers and ARP know no ports. Where pods differ in the ports they have, these are the nodes
// with an endpoint for each port that has any; and if there is no such node, those with an
// endpoint for some port.
func (u Usable) Nodes() []string {
	var whole, some []string
	for _, offers := range u {
		if len(offers) == 0 {
			continue
		}
		var nodes []string
		for _, o := range offers {
			nodes = append(nodes, o.Node)
		}
		if len(some) == 0 {
			whole = nodes
		} else {
			whole = slices.DeleteFunc(whole, func(node string) bool { return !slices.Contains(nodes, node) })
		}
		some = append(some, nodes...)
	}
	if len(whole) == 0 {
		whole = some
	}
	slices.Sort(whole)
	return slices.Compact(whole)
}

// CountOn counts the endpoints on a node that flows to the Service may go to there, by their
// addresses.
func (u Usable) CountOn(node string) int {
	distinct := map[netip.Addr]struct{}{}
	for _, offers := range u {
		ready := slices.ContainsFunc(offers, func(o Offer) bool { return o.Node == node && o.Ready })
		for _, o := range offers {
			if o.Node == node && (o.Ready || !ready) {
				distinct[o.To.Addr()] = struct{}{}
			}
		}
	}
	return len(distinct)
}
