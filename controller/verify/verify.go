// Package verify finds mistakes that only show when advertisements, peers, pools and
// Services are seen together: names of objects that do not exist, two peers for one router,
// Services that share an address but no node that could serve them all, or that no node announces,
// and pools with addresses that the cluster itself uses. It is pure.
package verify

import (
	"net/netip"
	"slices"

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
// cluster itself uses, and what for.
func Check(c *view.Cluster, used map[netip.Addr]view.Use) []problem.Problem {
	reach := newReach(c)
	var problems []problem.Problem
	for _, ad := range c.L2Advertisements {
		object := ad.Object()
		problems = append(problems, slices.Concat(
			pools(c, object, ad.Pools), vain(c, object, reach.vainLayer2(ad)), services(c, object, ad.ServiceSelectors))...)
	}
	for _, ad := range c.BGPAdvertisements {
		problems = append(problems, advertisement(reach, ad)...)
	}
	problems = slices.Concat(problems, peers(reach), spare(c), together(reach), ambiguous(c),
		crowded(reach), apart(c), nowhere(reach), occupied(c, used))
	problem.Sort(problems)
	return problems
}

// advertisement finds what is wrong with a BGPAdvertisement among the other objects.
func advertisement(r *reach, ad *view.BGPAdvertisement) []problem.Problem {
	c, object := r.cluster, ad.Object()
	problems := slices.Concat(pools(c, object, ad.Pools), services(c, object, ad.ServiceSelectors), beyond(c, object, ad), idle(r, object, ad), strays(r, object, ad))
	if unknown := r.unknown[ad.Name]; len(unknown) > 0 {
		problems = append(problems, nameless(object, unknown)...)
	}
	missing := false
	for _, name := range ad.Peers {
		if c.BGPPeers[name] == nil {
			missing = true
			problems = append(problems, problem.New(object, ReasonPeerNotFound,
				"spec.peers: there is no BGPPeer %q: create it or take it out", name))
		}
	}
	if missing {
		return problems // which says enough of its peers
	}
	return append(problems, vain(c, object, r.vainBGP(ad))...)
}

// vain returns a problem of an advertisement that no node goes by, for a reason that is given. Of a
// cluster without nodes there is nothing to say.
func vain(c *view.Cluster, object problem.Object, why string) []problem.Problem {
	reason := ReasonNoSession
	switch {
	case why == "" || len(c.Nodes) == 0:
		return nil
	case why == noNode:
		reason = ReasonNoNodeSelected
	}
	return []problem.Problem{problem.New(object, reason, "nothing is announced by it: the advertisement %s", why)}
}

func pools(c *view.Cluster, object problem.Object, match view.PoolMatch) []problem.Problem {
	var problems []problem.Problem
	for _, name := range match.Names {
		if c.Pools[name] == nil {
			problems = append(problems, problem.New(object, ReasonPoolNotFound,
				"spec.ipAddressPools: there is no IPAddressPool %q: create it or take it out", name))
		}
	}
	if len(match.Selectors) == 0 || len(match.Names) > 0 {
		return problems
	}
	for _, p := range c.Pools {
		if match.Matches(p) {
			return problems
		}
	}
	return append(problems, problem.New(object, ReasonNoPoolSelected,
		"spec.ipAddressPoolSelectors: no IPAddressPool has such labels, so nothing is announced: label a pool, or change the selectors"))
}

// services returns a problem of an advertisement that chooses Services of which there are none now.
func services(c *view.Cluster, object problem.Object, selectors []view.Selector) []problem.Problem {
	if len(selectors) == 0 {
		return nil
	}
	for _, s := range c.Services {
		if s.Type == view.LoadBalancer && view.MatchesAny(selectors, s.Labels) {
			return nil
		}
	}
	return []problem.Problem{problem.Advice(object, ReasonNoServiceSelected,
		"spec.serviceSelectors: no Service of type LoadBalancer has such labels, so nothing is announced by it now")}
}
