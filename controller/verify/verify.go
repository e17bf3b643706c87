// Package verify looks for what is wrong among advertisements, peers, pools and
// Services that only shows when they are seen together: names that nothing has, peers
// that stand for one router twice, Services that share an address and no node, and
// pools with addresses that the cluster itself uses. It is pure.
package verify

import (
	"cmp"
	"maps"
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
	// ReasonPeerNotFound: an advertisement names a peer that does not exist.
	ReasonPeerNotFound = "PeerNotFound"
	// ReasonAggregateBeyondPool: a pool holds a part of an aggregate only, which is
	// then announced address by address.
	ReasonAggregateBeyondPool = "AggregateBeyondPool"
	// ReasonProfileNotFound: a peer names a BFDProfile that does not exist.
	ReasonProfileNotFound = "ProfileNotFound"
	// ReasonMinimumTTLUnused: the BFDProfile of a peer speaks of hops, and its session is over one.
	ReasonMinimumTTLUnused = "MinimumTTLUnused"
	// ReasonCommunityNotFound: an advertisement names a community that no Community has. It
	// is not in use meanwhile.
	ReasonCommunityNotFound = "CommunityNotFound"
	// ReasonCommunityDuplicate: an older Community has a name for another value.
	ReasonCommunityDuplicate = "CommunityDuplicate"
	// ReasonPeerDuplicate: two peers are the same router for one node.
	ReasonPeerDuplicate = "PeerDuplicate"
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

// profile finds what is wrong with the BFDProfile that a peer names.
func profile(c *view.Cluster, p *view.BGPPeer) []problem.Problem {
	if p.BFDProfile == "" {
		return nil
	}
	switch profile := c.BFDProfiles[p.BFDProfile]; {
	case profile == nil:
		return []problem.Problem{problem.New(p.Object(), ReasonProfileNotFound,
			"spec.bfdProfile: there is no BFDProfile %q, so the session is held without BFD: create it or take it out", p.BFDProfile)}
	case profile.MinTTL != 0 && !p.EBGPMultiHop && (p.Interface != "" || p.MyASN != p.PeerASN):
		return []problem.Problem{problem.Advice(p.Object(), ReasonMinimumTTLUnused,
			"spec.bfdProfile: BFDProfile %q has minimumTtl %d, which is for routers more than one hop away, and this one is not said to be: "+
				"its BFD packets must come with 255; set ebgpMultiHop if it is, or name a profile without minimumTtl", p.BFDProfile, profile.MinTTL)}
	}
	return nil
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

// router is what a session is told apart by: two sessions of one node to the
// same one would break each other.
type router struct {
	address netip.AddrPort
	over    string // the interface at whose other end it is, in place of the address
	source  netip.Addr
}

func (r router) String() string {
	if r.over != "" {
		return "at the other end of " + r.over
	}
	return r.address.String()
}

// duplicates finds peers that are one router for the same node. The first by
// name is taken for the right one.
func duplicates(c *view.Cluster) []problem.Problem {
	same := map[router][]*view.BGPPeer{}
	for _, name := range slices.Sorted(maps.Keys(c.BGPPeers)) {
		p := c.BGPPeers[name]
		if p.PeerAddress.IsValid() || p.Interface != "" {
			key := router{netip.AddrPortFrom(p.PeerAddress, p.PeerPort), p.Interface, p.SourceAddress}
			same[key] = append(same[key], p)
		}
	}
	var problems []problem.Problem
	for key, peers := range same {
		for i, p := range peers[1:] {
			for _, first := range peers[:i+1] {
				node, shared := sharedNode(c, first, p)
				if !shared {
					continue
				}
				problems = append(problems, problem.New(p.Object(), ReasonPeerDuplicate,
					"BGPPeer %q is the same router %s on node %s: delete one of the two, or keep them apart by nodeSelectors",
					first.Name, key, node))
				break
			}
		}
	}
	return problems
}

// sharedNode is the first node, by name, that both peers choose.
func sharedNode(c *view.Cluster, a, b *view.BGPPeer) (string, bool) {
	nodes := slices.SortedFunc(maps.Values(c.Nodes), func(x, y *view.Node) int { return cmp.Compare(x.Name, y.Name) })
	for _, n := range nodes {
		if view.MatchesAny(a.NodeSelectors, n.Labels) && view.MatchesAny(b.NodeSelectors, n.Labels) {
			return n.Name, true
		}
	}
	return "", false
}
