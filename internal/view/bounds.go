package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
)

// ReasonTooLarge is of a Service of which nodes forward a part only, since all of it would hold up others.
const ReasonTooLarge = "TooLarge"

// The bounds of one Service. Most of what it costs a node is in proportion to them: rows of maps of nftables, rules and
// members of sets of iptables. Nodes program one port as a whole, and several of a large Service one after another.
const (
	mostDestinations = 10_000 // ports × addresses
	mostAddresses    = 256
	mostTargets      = 50_000 // destinations × endpoints, in each family
	mostOfOnePort    = 10_000 // addresses × endpoints, in each family
	mostSources      = 10_000 // ports × VIPs × loadBalancerSourceRanges
	// mostGiven is how many addresses a Service can have from the controller: none of them is left out, since nodes
	// announce them.
	mostGiven = 16
)

// Bounded returns the part of a Service, and of its endpoints, that a node forwards, and says what is left out. That
// is the first ports as they are listed, with the first of ClusterIPs, VIPs and ExternalIPs, endpoints and source ranges: of
// these, in an order that does not depend on how they are listed. The node's own endpoints come before those of other nodes,
// since policy Local has no others; "" stands for what all nodes forward alike.
func Bounded(s *Service, endpoints []Endpoint, node string) (*Service, []Endpoint, []problem.Problem) {
	var told []problem.Problem
	note := func(what, fix string, most int) {
		told = append(told, problem.New(s.Object(), ReasonTooLarge, "%s of one Service: nodes forward the first %d; %s, or have several Services", what, most, fix))
	}
	part := *s
	addresses := len(s.ClusterIPs) + len(s.VIPs) + len(s.ExternalIPs)
	switch n := len(s.Ports) * addresses; {
	case n > mostDestinations:
		note(fmt.Sprintf("%d destinations (%d ports × %d addresses)", n, len(s.Ports), addresses), "list fewer spec.ports or spec.externalIPs", mostDestinations)
		part.boundDestinations()
	case n > 0 && addresses > mostAddresses:
		note(fmt.Sprintf("%d addresses", addresses), "list fewer spec.externalIPs", mostAddresses)
		part.boundDestinations()
	}
	of := 1 // addresses of one family
	for _, family := range addr.Families() {
		n := 0
		for _, a := range slices.Concat(part.ClusterIPs, part.VIPs, part.ExternalIPs) {
			if addr.FamilyOf(a) == family {
				n++
			}
		}
		of = max(of, n)
	}
	destinations := of * max(len(part.Ports), 1)
	most := max(min(mostTargets/destinations, mostOfOnePort/of), 1)
	if first := firstEndpoints(endpoints, most, node); len(first) < len(endpoints) {
		note(fmt.Sprintf("%d destinations with more than %d endpoints each", destinations, most), "have fewer ports or endpoints", most)
		endpoints = first
	}
	guarded := len(part.Ports) * len(part.VIPs)
	if most := max(mostSources/max(guarded, 1), 1); len(s.SourceRanges) > most {
		note(fmt.Sprintf("%d destinations with %d spec.loadBalancerSourceRanges", guarded, len(s.SourceRanges)), "list fewer ranges", most)
		part.SourceRanges = slices.SortedFunc(slices.Values(s.SourceRanges), netip.Prefix.Compare)[:most]
	}
	if len(told) == 0 {
		return s, endpoints, nil
	}
	return &part, endpoints, told
}

func (s *Service) boundDestinations() {
	needed := len(s.ClusterIPs) + min(len(s.VIPs), mostGiven)
	s.Ports = s.Ports[:min(len(s.Ports), mostDestinations/max(needed, 1))]
	room := min(mostDestinations/len(s.Ports), mostAddresses) - len(s.ClusterIPs)
	first := func(addresses []netip.Addr) []netip.Addr {
		sorted := slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)
		sorted = sorted[:min(len(sorted), room)]
		room -= len(sorted)
		return sorted
	}
	s.VIPs = first(s.VIPs)
	s.ExternalIPs = first(s.ExternalIPs)
}

// firstEndpoints are the first so many of each family, those before others that new flows may go to, and of these those of a node.
func firstEndpoints(all []Endpoint, most int, node string) []Endpoint {
	count := map[addr.Family]int{}
	for i := range all {
		count[addr.FamilyOf(all[i].Addr)]++
	}
	if max(count[addr.IPv4], count[addr.IPv6]) <= most {
		return all
	}
	last := func(e Endpoint) int {
		switch usable := (Offer{Endpoint: &e}).Usable(); {
		case !usable:
			return 2
		case e.Node != node:
			return 1
		}
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b Endpoint) int {
		return cmp.Or(last(a)-last(b), a.Addr.Compare(b.Addr), cmp.Compare(a.Node, b.Node))
	})
	clear(count)
	return slices.DeleteFunc(sorted, func(e Endpoint) bool {
		family := addr.FamilyOf(e.Addr)
		count[family]++
		return count[family] > most
	})
}
