package verify

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons of the problems of a Service whose addresses no node announces, though their pools
// are covered.
const (
	// ReasonServiceNotSelected: every advertisement of the pool chooses other Services.
	ReasonServiceNotSelected = "ServiceNotSelected"
	// ReasonNoServingNode: no node that the advertisements choose may announce, or under policy Local none that has endpoints.
	ReasonNoServingNode = "NoServingNode"
	// ReasonAddressTaken: no node answers for an address on the local network, since another machine has it.
	ReasonAddressTaken = "AddressTaken"
)

// way is an advertisement, and from where what it is for can be announced.
type way struct {
	object   problem.Object
	pools    view.PoolMatch
	services []view.Selector
	nodes    []string // sorted
	unable   []bool   // the chosen nodes, where none of them may announce
	down     silence  // of the chosen nodes
	routes   bool     // over BGP
	whatever bool     // also what no endpoint serves
}

// ways are the advertisements that choose some node, which may announce or not, sorted by kind and name.
func (r *reach) ways() []way {
	var all []way
	add := func(w way, chosen []bool) {
		if slices.Contains(chosen, true) {
			w.nodes = slices.DeleteFunc(r.able(chosen), func(node string) bool { return w.down[node] != nil })
			if len(w.nodes) == 0 {
				w.unable = chosen
			}
			all = append(all, w)
		}
	}
	for _, ad := range r.cluster.L2Advertisements {
		add(way{object: ad.Object(), pools: ad.Pools, services: ad.ServiceSelectors}, r.chosen(ad.NodeSelectors))
	}
	for _, ad := range r.inUse {
		chosen, down := r.from(ad)
		add(way{object: ad.Object(), pools: ad.Pools, services: ad.ServiceSelectors, routes: true, whatever: ad.WithoutEndpoints, down: down}, chosen)
	}
	slices.SortFunc(all, func(a, b way) int { return strings.Compare(a.object.String(), b.object.String()) })
	return all
}

// nowhere finds Services whose addresses no node announces, while others of the same pools may be:
// what is wrong with a pool is the pool's problem. The first address of a Service is reported.
func (k *Checker) nowhere(r *reach) {
	pools, covering, choosy, ways := r.cluster.PoolsByAge(), map[*view.Pool][]way{}, false, r.ways()
	for _, w := range ways {
		choosy = choosy || len(w.services) > 0
		for _, pool := range pools {
			if w.pools.Matches(pool) {
				covering[pool] = append(covering[pool], w)
			}
		}
	}
	look := func(s *view.Service, judge func(vip netip.Addr, covering []way) (told bool)) {
		for _, vip := range s.VIPs {
			if !slices.Contains(r.guests[vip], s) && judge(vip, covering[view.PoolOf(pools, vip)]) {
				return
			}
		}
	}
	for ref, s := range k.rejudge(r.cluster, scenery{ways, pools, r.cluster.Nodes, r.cluster.Speakers, r.sharing, r.cluster.Withheld}) {
		before := len(r.problems)
		if choosy {
			look(s, func(vip netip.Addr, covering []way) bool { return unchosen(r, s, r.sharing[vip], vip, covering) })
		}
		if endpoints := r.cluster.Endpoints.Of(ref); !s.ExternalLocal || len(endpoints) > 0 {
			look(s, func(vip netip.Addr, covering []way) bool {
				chosen := choosing(covering, s)
				return unannounced(r, s, vip, chosen) || withheld(r, s, vip, chosen) ||
					s.ExternalLocal && (unserved(r, s, vip, endpoints, chosen) || unservedTogether(r, s, r.sharing[vip], vip, covering))
			})
		}
		if found := r.problems[before:]; len(found) > 0 {
			k.verdicts[ref] = slices.Clone(found)
		}
		r.problems = r.problems[:before]
	}
	for _, found := range k.verdicts {
		r.problems = append(r.problems, found...)
	}
}

// choosing are those of the ways that all of the Services may go.
func choosing(ways []way, services ...*view.Service) []way {
	return slices.DeleteFunc(slices.Clone(ways), func(w way) bool {
		return slices.ContainsFunc(services, func(s *view.Service) bool { return !view.MatchesAny(w.services, s.Labels) })
	})
}

// unchosen tells of an address, if of the advertisements of its pool none chooses the Service, or
// each of several that share it is chosen by some, and all of them by none.
func unchosen(r *reach, s *view.Service, sharers []*view.Service, vip netip.Addr, covering []way) (told bool) {
	alone := len(choosing(covering, s)) > 0
	if len(covering) == 0 || alone && len(choosing(covering, sharers...)) > 0 {
		return false
	}
	names := func(chosen ...*view.Service) string {
		var names []string
		for _, w := range covering {
			if slices.ContainsFunc(chosen, func(s *view.Service) bool { return !alone || view.MatchesAny(w.services, s.Labels) }) {
				names = append(names, w.object.Kind+" "+w.object.Name)
			}
		}
		return problem.List(names, ", ")
	}
	if alone {
		r.add(s.Object(), ReasonServiceNotSelected,
			"%s is announced by nobody: of the advertisements that cover its IPAddressPool none chooses all the Services that share it by spec.serviceSelectors: "+
				"some are chosen by %s; label the Services, or correct the selectors", vip, names(sharers...))
		return true
	}
	r.add(s.Object(), ReasonServiceNotSelected,
		"%s is announced by nobody: of the advertisements that cover its IPAddressPool none chooses the Service by spec.serviceSelectors: %s; "+
			"label the Service, or correct the selectors", vip, names(s))
	return true
}

// unannounced tells of an address, if no node that the ways go from may announce.
func unannounced(r *reach, s *view.Service, vip netip.Addr, ways []way) (told bool) {
	if len(ways) == 0 || slices.ContainsFunc(ways, func(w way) bool { return w.unable == nil }) {
		return false
	}
	var whys []string // in the order of the nodes
	names := map[string][]string{}
	for i, node := range r.nodes {
		if !slices.ContainsFunc(ways, func(w way) bool { return w.unable[i] }) {
			continue
		}
		why := cmp.Or(whyUnable(r.cluster, node), silentTowards(ways, node.Name))
		if names[why] == nil {
			whys = append(whys, why)
		}
		names[why] = append(names[why], node.Name)
	}
	for i, why := range whys {
		whys[i] = problem.List(names[why], " ") + ": " + why
	}
	r.add(s.Object(), ReasonNoServingNode, "%s is announced by nobody: no node that its advertisements choose may announce: %s; "+
		"or have an advertisement choose other nodes", vip, strings.Join(whys, "; "))
	return true
}

// withheld tells of an address that another machine has, if nodes announce it on the local network alone.
func withheld(r *reach, s *view.Service, vip netip.Addr, ways []way) (told bool) {
	why := r.cluster.Withheld[vip]
	if why == "" || len(ways) == 0 || slices.ContainsFunc(ways, func(w way) bool { return w.routes && w.unable == nil }) {
		return false
	}
	r.add(s.Object(), ReasonAddressTaken, "%s is announced by nobody: %s", vip, why)
	return true
}

// unserved tells of an address under policy Local, if no node that announces by one
// of the ways has endpoints, and another one has.
func unserved(r *reach, s *view.Service, vip netip.Addr, endpoints []view.Endpoint, ways []way) (told bool) {
	serving := view.UsableOf(s, endpoints, addr.FamilyOf(vip)).Nodes()
	if len(serving) == 0 || len(ways) == 0 {
		return false
	}
	excluded := !slices.ContainsFunc(serving, func(node string) bool {
		return mayAnnounce(r.cluster, r.cluster.Nodes[node])
	})
	for _, w := range ways {
		if excluded && w.whatever && len(w.nodes) > 0 || slices.ContainsFunc(serving, func(node string) bool {
			_, announces := slices.BinarySearch(w.nodes, node)
			return announces
		}) {
			return false
		}
	}
	named := slices.DeleteFunc(slices.Clone(serving), func(node string) bool { return node == "" })
	silent := silentTowards(ways, named...)
	where := "are on " + problem.List(named, " ") + ", which no advertisement of the address chooses"
	switch {
	case len(named) == 0:
		where = "name no node"
	case excluded:
		where = "are on " + problem.List(named, " ") + ", which may announce nothing: excluded from load balancers, out of service, about to be deleted by an autoscaler, without network, or without a speaker (the chart's speaker.nodeSelector)"
	case silent != "":
		where = "are on " + problem.List(named, " ") + ", where " + silent
	}
	r.add(s.Object(), ReasonNoServingNode,
		"%s is announced by nobody: under externalTrafficPolicy Local only nodes with endpoints announce it, and its endpoints %s; "+
			"run its pods on nodes that announce, or set the policy Cluster", vip, where)
	return true
}

// unservedTogether tells of an address that several Services share, if nodes have
// endpoints of all that are of policy Local, and no advertisement chooses one of these. If there
// is no such node at all, that is another problem.
func unservedTogether(r *reach, s *view.Service, sharers []*view.Service, vip netip.Addr, covering []way) (told bool) {
	ways := choosing(covering, sharers...)
	if len(sharers) < 2 || len(ways) == 0 {
		return false
	}
	common := announcing(r.cluster, s, vip)
	for _, other := range sharers {
		if nodes := announcing(r.cluster, other, vip); other.ExternalLocal && len(nodes) > 0 {
			common = slices.DeleteFunc(common, func(node string) bool { return !slices.Contains(nodes, node) })
		}
	}
	if len(common) == 0 || slices.ContainsFunc(ways, func(w way) bool {
		return slices.ContainsFunc(common, func(node string) bool { return slices.Contains(w.nodes, node) })
	}) {
		return false
	}
	why := "which no advertisement of the address chooses"
	if silent := silentTowards(ways, common...); silent != "" {
		why = "where " + silent
	}
	r.add(s.Object(), ReasonNoServingNode,
		"%s is announced by nobody: under externalTrafficPolicy Local only nodes with endpoints of all Services that share it announce it, and these are on %s, "+
			"%s; run the pods on nodes that announce, or set the policy Cluster", vip, problem.List(common, " "), why)
	return true
}

// announcing are the nodes with usable endpoints of a Service that may announce at all.
func announcing(c *view.Cluster, s *view.Service, vip netip.Addr) []string {
	return slices.DeleteFunc(view.UsableOf(s, c.Endpoints.Of(s.Ref), addr.FamilyOf(vip)).Nodes(), func(name string) bool {
		return !mayAnnounce(c, c.Nodes[name])
	})
}
