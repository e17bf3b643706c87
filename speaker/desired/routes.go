package desired

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/view"
)

// routes returns a session with the routes that this node announces to the peer. A prefix for several
// addresses is announced as long as this node is to serve one of them, or no node can serve one that
// is to be announced all the same.
func (a *announcer) routes(peer *view.BGPPeer, node *view.Node) Session {
	s := Session{Routes: map[netip.Prefix]RouteAttrs{}, Aggregates: map[netip.Prefix][]netip.Addr{}}
	ads := a.toPeer(peer, node)
	within := map[netip.Prefix][]netip.Addr{}
	for address, entry := range a.addresses {
		for prefix := range prefixesOf(address, entry.pool, ads) {
			within[prefix] = append(within[prefix], address)
		}
	}
	for prefix, some := range within {
		a.route(s, prefix, some, ads)
	}
	return s
}

// prefixesOf are those by which advertisements may announce an address of the pool.
func prefixesOf(address netip.Addr, pool *view.Pool, ads []*view.BGPAdvertisement) map[netip.Prefix]struct{} {
	prefixes := make(map[netip.Prefix]struct{}, len(ads))
	for _, ad := range ads {
		prefixes[ad.Aggregate(address, pool)] = struct{}{}
	}
	return prefixes
}

// reroute decides the routes of one session that may be for an address, and notes them.
func (a *announcer) reroute(name string, s Session, address netip.Addr, pool *view.Pool, rerouted map[netip.Prefix]struct{}) {
	ads := a.toPeer(a.cluster.BGPPeers[name], a.cluster.Nodes[a.options.Node])
	for prefix := range prefixesOf(address, pool, ads) {
		within := slices.Clone(s.Aggregates[prefix])
		if !slices.Contains(within, address) {
			within = append(within, address)
		}
		a.route(s, prefix, within, ads)
		rerouted[prefix] = struct{}{}
	}
}

// route decides the route to one prefix, by which advertisements may announce these addresses.
func (a *announcer) route(s Session, prefix netip.Prefix, within []netip.Addr, ads []*view.BGPAdvertisement) {
	var attrs RouteAttrs
	within = slices.DeleteFunc(within, func(address netip.Addr) bool {
		entry := a.addresses[address]
		if entry == nil {
			return true
		}
		covers, serves, unserved := false, entry.serves(a.options.Node), len(entry.can) == 0
		for _, ad := range ads {
			if (serves || unserved && ad.WithoutEndpoints) && ad.Aggregate(address, entry.pool) == prefix && ad.Pools.Matches(entry.pool) && matchesAll(ad.ServiceSelectors, entry.services) {
				attrs, covers = attrs.with(ad, entry.endpoints()), true
			}
		}
		return !covers
	})
	delete(s.Routes, prefix)
	delete(s.Aggregates, prefix)
	if len(within) == 0 {
		return
	}
	slices.Sort(attrs.Communities)
	slices.SortFunc(attrs.LargeCommunities, view.LargeCommunity.Compare)
	s.Routes[prefix] = attrs
	if !prefix.IsSingleIP() {
		slices.SortFunc(within, netip.Addr.Compare)
		s.Aggregates[prefix] = within
	}
}

// toPeer are the advertisements by which the node announces to the peer; none where the node may
// not announce.
func (a *announcer) toPeer(peer *view.BGPPeer, node *view.Node) []*view.BGPAdvertisement {
	var ads []*view.BGPAdvertisement
	if !slices.Contains(a.nodes, node.Name) {
		return nil
	}
	for _, ad := range a.routing {
		if view.MatchesAny(ad.NodeSelectors, node.Labels) && ad.IsFor(peer.Name) {
			ads = append(ads, ad)
		}
	}
	return ads
}

// with adds the attributes that one more advertisement gives a route to so many endpoints. Of several
// values the one that routers prefer holds, so that the order of advertisements does not matter; a value
// that is left out does not count. Communities add up.
func (a RouteAttrs) with(ad *view.BGPAdvertisement, endpoints int) RouteAttrs {
	a.LocalPref = max(a.LocalPref, ad.LocalPref)
	if ad.MED != nil && (a.MED == nil || *ad.MED < *a.MED) {
		a.MED = ad.MED
	}
	if ad.Prepend != 0 && (a.Prepend == 0 || ad.Prepend < a.Prepend) {
		a.Prepend = ad.Prepend
	}
	a.Bandwidth = max(a.Bandwidth, ad.EndpointBandwidth*uint32(endpoints))
	a.Communities = united(a.Communities, ad.Communities)
	a.LargeCommunities = united(a.LargeCommunities, ad.LargeCommunities)
	return a
}

func united[T comparable](some, more []T) []T {
	for _, value := range more {
		if !slices.Contains(some, value) {
			some = append(some, value)
		}
	}
	return some
}
