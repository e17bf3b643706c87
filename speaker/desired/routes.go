package desired

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/view"
)

// routes are the prefixes that a node announces to a peer.
type routes struct {
	attrs      map[netip.Prefix]RouteAttrs
	aggregates map[netip.Prefix][]netip.Addr
}

// routes decides what this node announces to the peer. A prefix for several addresses
// is announced as long as this node is to serve one of them, or nobody can serve one that
// is to be announced all the same.
func (a *announcing) routes(peer *view.BGPPeer, node *view.Node) routes {
	r := routes{attrs: map[netip.Prefix]RouteAttrs{}, aggregates: map[netip.Prefix][]netip.Addr{}}
	ads := a.toPeer(peer, node)
	within := map[netip.Prefix][]netip.Addr{}
	for address, entry := range a.addresses {
		for prefix := range prefixesOf(address, entry.pool, ads) {
			within[prefix] = append(within[prefix], address)
		}
	}
	for prefix, some := range within {
		a.route(r, prefix, some, ads)
	}
	return r
}

// prefixesOf are those by which advertisements may announce an address of the pool.
func prefixesOf(address netip.Addr, pool *view.Pool, ads []*view.BGPAdvertisement) map[netip.Prefix]struct{} {
	prefixes := make(map[netip.Prefix]struct{}, len(ads))
	for _, ad := range ads {
		prefixes[ad.Aggregate(address, pool)] = struct{}{}
	}
	return prefixes
}

// reroute decides anew about the routes of one session that an address has to do with, and notes them.
func (a *announcing) reroute(name string, s Session, address netip.Addr, pool *view.Pool, rerouted map[netip.Prefix]struct{}) {
	ads := a.toPeer(a.cluster.BGPPeers[name], a.cluster.Nodes[a.options.Node])
	for prefix := range prefixesOf(address, pool, ads) {
		within := slices.Clone(s.Aggregates[prefix])
		if !slices.Contains(within, address) {
			within = append(within, address)
		}
		a.route(routes{s.Routes, s.Aggregates}, prefix, within, ads)
		rerouted[prefix] = struct{}{}
	}
}

// route decides about one prefix, by which advertisements may announce these addresses.
func (a *announcing) route(r routes, prefix netip.Prefix, within []netip.Addr, ads []*view.BGPAdvertisement) {
	var attrs RouteAttrs
	within = slices.DeleteFunc(within, func(address netip.Addr) bool {
		entry := a.addresses[address]
		if entry == nil {
			return true
		}
		covers, serves, nobody := false, entry.serves(a.options.Node), len(entry.can) == 0
		for _, ad := range ads {
			if (serves || nobody && ad.WithoutEndpoints) && ad.Aggregate(address, entry.pool) == prefix && ad.Pools.Matches(entry.pool) && matchesAll(ad.ServiceSelectors, entry.services) {
				attrs, covers = attrs.with(ad, entry.endpoints()), true
			}
		}
		return !covers
	})
	delete(r.attrs, prefix)
	delete(r.aggregates, prefix)
	if len(within) == 0 {
		return
	}
	slices.Sort(attrs.Communities)
	slices.SortFunc(attrs.LargeCommunities, view.LargeCommunity.Compare)
	r.attrs[prefix] = attrs
	if !prefix.IsSingleIP() {
		slices.SortFunc(within, netip.Addr.Compare)
		r.aggregates[prefix] = within
	}
}

// toPeer are the advertisements by which the node announces to the peer: none if it is to
// announce nothing.
func (a *announcing) toPeer(peer *view.BGPPeer, node *view.Node) []*view.BGPAdvertisement {
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

// with adds what one more advertisement says of a route to so many endpoints. Of what several say, that holds
// which routers like best, so that the order of advertisements does not matter; one that
// leaves something out does not count for it. Communities add up.
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

// united are all values of both lists.
func united[T comparable](some, more []T) []T {
	for _, value := range more {
		if !slices.Contains(some, value) {
			some = append(some, value)
		}
	}
	return some
}
