package verify

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonAggregateOverLocal is on a BGPAdvertisement if the route to an aggregate comes also from
// nodes that drop what is sent to one of its addresses, since its Service has
// externalTrafficPolicy Local and no endpoints there.
const ReasonAggregateOverLocal = "AggregateOverLocal"

// aggregate is what is served below a route of an advertisement.
type aggregate struct {
	everywhere bool // by all nodes that announce: a Service of policy Cluster is among it
	locals     []serving
}

// serving is an address of a Service of policy Local, its pool, and the nodes that can serve it.
type serving struct {
	local
	vip  netip.Addr
	pool *view.Pool
}

// strays finds aggregates by which routers send nodes what they drop, since a Service of
// policy Local has its endpoints elsewhere. One an aggregate is told, that of the lowest
// address. An address that the same routers also learn alone is found by that route.
func strays(r *reach, object problem.Object, ad *view.BGPAdvertisement) {
	if len(ad.AggregationLength) == 0 {
		return
	}
	nodes, companions := r.able(r.chosen(ad.NodeSelectors)), r.companions(ad)
	for whole, a := range r.aggregated(ad, nodes) {
		from := a.from(nodes)
		slices.SortFunc(a.locals, func(a, b serving) int {
			return cmp.Or(a.vip.Compare(b.vip), cmp.Compare(a.service.String(), b.service.String()))
		})
		i := slices.IndexFunc(a.locals, func(s serving) bool { return len(s.nodes) < len(from) && !s.isAlone(companions) })
		if i < 0 {
			continue
		}
		s := a.locals[i]
		other := slices.IndexFunc(from, func(node string) bool { return !slices.Contains(s.nodes, node) })
		r.advise(object, ReasonAggregateOverLocal,
			"%s is announced also by %s, which drops what routers send there for %s: Service %s has externalTrafficPolicy Local and no "+
				"endpoints on it; announce its address alone by another BGPAdvertisement, or set the policy Cluster",
			whole, from[other], s.vip, s.service.Ref)
	}
}

// aggregated has what those nodes serve below each aggregate of an advertisement.
func (r *reach) aggregated(ad *view.BGPAdvertisement, nodes []string) map[netip.Prefix]*aggregate {
	pools, all := r.cluster.PoolsByAge(), map[netip.Prefix]*aggregate{}
	for s, endpoints := range served(r.cluster) {
		for _, vip := range s.VIPs {
			pool := view.PoolOf(pools, vip)
			if pool == nil || !ad.Pools.Matches(pool) {
				continue
			}
			whole, usable := ad.Aggregate(vip, pool), view.UsableOf(s, endpoints, addr.FamilyOf(vip)).Nodes()
			if whole.IsSingleIP() || len(usable) == 0 {
				continue
			}
			if all[whole] == nil {
				all[whole] = &aggregate{}
			}
			if !s.ExternalLocal {
				all[whole].everywhere = true
				continue
			}
			usable = slices.DeleteFunc(usable, func(node string) bool {
				_, announces := slices.BinarySearch(nodes, node)
				return !announces
			})
			if len(usable) > 0 {
				all[whole].locals = append(all[whole].locals, serving{local{s, usable}, vip, pool})
			}
		}
	}
	return all
}

// from are those of the nodes that announce the aggregate.
func (a *aggregate) from(nodes []string) []string {
	if a.everywhere {
		return nodes
	}
	var from []string
	for _, s := range a.locals {
		from = append(from, s.nodes...)
	}
	slices.Sort(from)
	return slices.Compact(from)
}

// companions are the advertisements by which all peers of this one are told, too.
func (r *reach) companions(ad *view.BGPAdvertisement) []*view.BGPAdvertisement {
	var all []*view.BGPAdvertisement
	peers := r.of(ad)
	for _, other := range r.cluster.BGPAdvertisements {
		told := r.of(other)
		if !slices.ContainsFunc(peers, func(p *view.BGPPeer) bool { return !slices.Contains(told, p) }) {
			all = append(all, other)
		}
	}
	return all
}

// isAlone reports whether one of the advertisements announces the address by a route of its own.
func (s serving) isAlone(ads []*view.BGPAdvertisement) bool {
	return slices.ContainsFunc(ads, func(ad *view.BGPAdvertisement) bool {
		return ad.Pools.Matches(s.pool) && ad.Aggregate(s.vip, s.pool).IsSingleIP() && view.MatchesAny(ad.ServiceSelectors, s.service.Labels)
	})
}
