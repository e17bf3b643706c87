// Package verify finds mistakes that only show when advertisements, peers, pools and
// Services are seen together: names of objects that do not exist, two peers for one router,
// Services that share an address but no node that could serve them all, or that no node announces,
// and pools with addresses that the cluster itself uses. It is pure.
package verify

import (
	"time"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons of the problems that Check finds.
const (
	// ReasonPoolNotFound: an advertisement names a pool that does not exist.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonNoPoolSelected: an advertisement chooses pools by labels that none has.
	ReasonNoPoolSelected = "NoPoolSelected"
	// ReasonNoServiceSelected: an advertisement chooses Services by labels that none has now.
	ReasonNoServiceSelected = "NoServiceSelected"
	// ReasonNoNodeSelected: an advertisement chooses nodes by labels that none has.
	ReasonNoNodeSelected = "NoNodeSelected"
	// ReasonNoSession: no node that an advertisement chooses has one of its peers.
	ReasonNoSession = "NoSession"
	// ReasonPeerNotFound: an advertisement names a peer that does not exist.
	ReasonPeerNotFound = "PeerNotFound"
	// ReasonAggregateBeyondPool: a pool holds a part of an aggregate only, which is
	// then announced address by address.
	ReasonAggregateBeyondPool = "AggregateBeyondPool"
	// ReasonCommunityNotFound: an advertisement names a community that no Community has. It
	// is not in use meanwhile.
	ReasonCommunityNotFound = "CommunityNotFound"
	// ReasonCommunityDuplicate: an older Community has a name for another value.
	ReasonCommunityDuplicate = "CommunityDuplicate"
)

// Check returns such problems of all objects of the snapshot, sorted. The correct names in an
// advertisement stay in use beside the wrong ones. used are the addresses of pools that the
// cluster itself uses, and what for. A session that is down is told after a while: see NextOutage.
func (k *Checker) Check(c *view.Cluster, used view.Occupied, now time.Time) []problem.Problem {
	k.follow(c)
	r := newReach(c)
	r.down = downFor(c, now)
	r.sharing, r.guests = k.sharers(c)
	for _, ad := range c.L2Advertisements {
		object := ad.Object()
		pools(r, object, ad.Pools)
		vain(r, object, r.vainLayer2(ad))
		services(r, object, ad.ServiceSelectors)
	}
	for _, ad := range c.BGPAdvertisements {
		advertisement(r, ad)
	}
	peers(r)
	spare(r)
	together(r)
	ambiguous(r)
	crowded(r)
	k.apart(r)
	visitors(r)
	k.nowhere(r)
	occupied(r, used)
	problem.Sort(r.problems)
	return r.problems
}

// advertisement finds what is wrong with a BGPAdvertisement among the other objects.
func advertisement(r *reach, ad *view.BGPAdvertisement) {
	object := ad.Object()
	pools(r, object, ad.Pools)
	services(r, object, ad.ServiceSelectors)
	beyond(r, object, ad)
	idle(r, object, ad)
	strays(r, object, ad)
	nameless(r, object, r.unknown[ad.Name])
	missing := false
	for _, name := range ad.Peers {
		if r.cluster.BGPPeers[name] == nil {
			missing = true
			r.add(object, ReasonPeerNotFound, "spec.peers: there is no BGPPeer %q: create it or take it out", name)
		}
	}
	if !missing { // those that are say enough of its peers
		vain(r, object, r.vainBGP(ad))
	}
}

// vain finds an advertisement that no node goes by, for a reason that is given. Of a
// cluster without nodes there is nothing to say.
func vain(r *reach, object problem.Object, why string) {
	reason := ReasonNoSession
	switch {
	case why == "" || len(r.nodes) == 0:
		return
	case why == noNode:
		reason = ReasonNoNodeSelected
	}
	r.add(object, reason, "nothing is announced by it: the advertisement %s", why)
}

// pools finds names and labels by which an advertisement chooses no pool.
func pools(r *reach, object problem.Object, match view.PoolMatch) {
	for _, name := range match.Names {
		if r.cluster.Pools[name] == nil {
			r.add(object, ReasonPoolNotFound, "spec.ipAddressPools: there is no IPAddressPool %q: create it or take it out", name)
		}
	}
	if len(match.Selectors) == 0 || len(match.Names) > 0 {
		return
	}
	for _, p := range r.cluster.Pools {
		if match.Matches(p) {
			return
		}
	}
	r.add(object, ReasonNoPoolSelected,
		"spec.ipAddressPoolSelectors: no IPAddressPool has such labels, so nothing is announced: label a pool, or change the selectors")
}

// services finds an advertisement that chooses Services of which there are none now.
func services(r *reach, object problem.Object, selectors []view.Selector) {
	if len(selectors) == 0 {
		return
	}
	for _, s := range r.cluster.Services {
		if s.Type == view.LoadBalancer && view.MatchesAny(selectors, s.Labels) {
			return
		}
	}
	r.advise(object, ReasonNoServiceSelected,
		"spec.serviceSelectors: no Service of type LoadBalancer has such labels, so nothing is announced by it now")
}
