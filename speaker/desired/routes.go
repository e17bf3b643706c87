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
// is announced as long as this node is to serve one of them.
func (a *announcing) routes(peer *view.BGPPeer, node *view.Node) routes {
	r := routes{attrs: map[netip.Prefix]RouteAttrs{}, aggregates: map[netip.Prefix][]netip.Addr{}}
	if !slices.Contains(a.nodes, node.Name) {
		return r
	}
	ads := a.toPeer(peer, node)
	for address, entry := range a.addresses {
		if !entry.serves(node.Name) {
			continue
		}
		for _, ad := range ads {
			if ad.Pools.Matches(entry.pool) && matchesAll(ad.ServiceSelectors, entry.services) {
				r.add(ad.Aggregate(address, entry.pool), address, ad)
			}
		}
	}
	for _, within := range r.aggregates {
		slices.SortFunc(within, netip.Addr.Compare)
	}
	for _, attrs := range r.attrs {
		slices.Sort(attrs.Communities)
		slices.SortFunc(attrs.LargeCommunities, view.LargeCommunity.Compare)
	}
	return r
}

// toPeer are the advertisements by which the node announces to the peer.
func (a *announcing) toPeer(peer *view.BGPPeer, node *view.Node) []*view.BGPAdvertisement {
	var ads []*view.BGPAdvertisement
	for _, ad := range a.routing {
		if view.MatchesAny(ad.NodeSelectors, node.Labels) && (len(ad.Peers) == 0 || slices.Contains(ad.Peers, peer.Name)) {
			ads = append(ads, ad)
		}
	}
	return ads
}

// add notes that an advertisement covers an address by the prefix.
func (r routes) add(prefix netip.Prefix, address netip.Addr, ad *view.BGPAdvertisement) {
	// Of one address all advertisements come in a row.
	if within := r.aggregates[prefix]; !prefix.IsSingleIP() && (len(within) == 0 || within[len(within)-1] != address) {
		r.aggregates[prefix] = append(within, address)
	}
	r.attrs[prefix] = r.attrs[prefix].with(ad)
}

// with adds what one more advertisement says of a route. Of what several say, that holds
// which routers like best, so that the order of advertisements does not matter; one that
// leaves something out does not count for it. Communities add up.
func (a RouteAttrs) with(ad *view.BGPAdvertisement) RouteAttrs {
	a.LocalPref = max(a.LocalPref, ad.LocalPref)
	if ad.MED != nil && (a.MED == nil || *ad.MED < *a.MED) {
		a.MED = ad.MED
	}
	if ad.Prepend != 0 && (a.Prepend == 0 || ad.Prepend < a.Prepend) {
		a.Prepend = ad.Prepend
	}
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
