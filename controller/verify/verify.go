// Package verify looks for what is wrong among advertisements, peers, pools and
// Services that only shows when they are seen together: names that nothing has, peers
// that stand for one router twice, Services that share an address and no node, and
// pools with addresses that the cluster itself uses. It is pure.
package verify

import (
	"net/netip"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons of the problems that Check finds.
const (
	// ReasonPoolNotFound: an advertisement names a pool that does not exist.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonNoPoolSelected: an advertisement chooses pools by labels that none has.
	ReasonNoPoolSelected = "NoPoolSelected"
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

// Check finds such problems of all objects of the snapshot, sorted. What an advertisement
// names correctly stays in use beside what it names in vain. used are the addresses of pools
// that the cluster itself uses, and what for.
func Check(c *view.Cluster, used map[netip.Addr]view.Use) []problem.Problem {
	var problems []problem.Problem
	for _, ad := range c.L2Advertisements {
		problems = append(problems, pools(c, problem.Object{Kind: "L2Advertisement", Name: ad.Name}, ad.Pools)...)
	}
	for _, ad := range c.BGPAdvertisements {
		object := problem.Object{Kind: "BGPAdvertisement", Name: ad.Name}
		problems = append(problems, pools(c, object, ad.Pools)...)
		problems = append(problems, beyond(c, object, ad)...)
		if _, unknown := c.Resolved(ad); len(unknown) > 0 {
			problems = append(problems, nameless(object, unknown)...)
		}
		for _, name := range ad.Peers {
			if c.BGPPeers[name] == nil {
				problems = append(problems, problem.New(object, ReasonPeerNotFound,
					"spec.peers: there is no BGPPeer %q: create it or take it out", name))
			}
		}
	}
	for _, p := range c.BGPPeers {
		problems = append(problems, profile(c, p)...)
	}
	problems = append(problems, duplicates(c)...)
	problems = append(problems, ambiguous(c)...)
	problems = append(problems, apart(c)...)
	problems = append(problems, occupied(c, used)...)
	problem.Sort(problems)
	return problems
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
