package verify

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/view"
)

// ReasonTooManyCommunities is on the BGPAdvertisements of a route whose communities, which add up, take more than
// a message of BGP has room for, so that the route is not announced.
const ReasonTooManyCommunities = "TooManyCommunities"

// crowded finds routes with more communities than may be announced. One an advertisement is told, that of the
// lowest prefix.
func crowded(r *reach) {
	if octetsOf(r.inUse) <= view.MostCommunityOctets {
		return // whatever is announced by them
	}
	told := map[string]bool{}
	routes := r.routes()
	for _, prefix := range slices.SortedFunc(maps.Keys(routes), netip.Prefix.Compare) {
		together, octets := r.tooMany(routes[prefix])
		for _, ad := range together {
			if told[ad.Name] {
				continue
			}
			told[ad.Name] = true
			r.advise(ad.Object(), ReasonTooManyCommunities,
				"%s is not announced: the communities of all BGPAdvertisements that announce it take %d octets, and a message of BGP has room for %d, "+
					"4 for each and 12 for a large one; remove some from spec.communities, or announce it by fewer BGPAdvertisements",
				prefix, octets, view.MostCommunityOctets)
		}
	}
}

// routes are the prefixes that advertisements may announce, each with those that do, for Services without endpoints as
// well: the controller does not know those of all.
func (r *reach) routes() map[netip.Prefix][]*view.BGPAdvertisement {
	holders := map[netip.Addr][]*view.Service{}
	for _, s := range r.cluster.Services {
		if s.Type != view.LoadBalancer {
			continue
		}
		for _, vip := range s.VIPs {
			if !slices.Contains(r.guests[vip], s) {
				holders[vip] = append(holders[vip], s)
			}
		}
	}
	pools, routes := r.cluster.PoolsByAge(), map[netip.Prefix][]*view.BGPAdvertisement{}
	for vip, services := range holders {
		pool := view.PoolOf(pools, vip)
		if pool == nil {
			continue
		}
		for _, ad := range r.inUse {
			skips := func(s *view.Service) bool { return !view.MatchesAny(ad.ServiceSelectors, s.Labels) }
			prefix := ad.Aggregate(vip, pool)
			if ad.Pools.Matches(pool) && !slices.ContainsFunc(services, skips) && !slices.Contains(routes[prefix], ad) {
				routes[prefix] = append(routes[prefix], ad)
			}
		}
	}
	return routes
}

// tooMany are those of the advertisements of a route by which some node announces it to one peer with too many
// communities, and how many octets these take; none if there is no such node.
func (r *reach) tooMany(ads []*view.BGPAdvertisement) (together []*view.BGPAdvertisement, octets int) {
	if octetsOf(ads) <= view.MostCommunityOctets {
		return nil, 0
	}
	for i, p := range r.peers {
		for at, node := range r.nodes {
			if !r.at[i][at] || !node.MayAnnounce() {
				continue
			}
			together = slices.DeleteFunc(slices.Clone(ads), func(ad *view.BGPAdvertisement) bool {
				return !ad.IsFor(p.Name) || !view.MatchesAny(ad.NodeSelectors, node.Labels)
			})
			if octets = octetsOf(together); octets > view.MostCommunityOctets {
				return together, octets
			}
		}
	}
	return nil, 0
}

// octetsOf is how many octets the communities of a route by all of these advertisements take.
func octetsOf(ads []*view.BGPAdvertisement) int {
	standard, large := map[uint32]struct{}{}, map[view.LargeCommunity]struct{}{}
	for _, ad := range ads {
		for _, c := range ad.Communities {
			standard[c] = struct{}{}
		}
		for _, c := range ad.LargeCommunities {
			large[c] = struct{}{}
		}
	}
	return view.CommunityOctets(len(standard), len(large))
}
