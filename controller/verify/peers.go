package verify

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons of the problems of BGPPeers. Another is view.ReasonPeerDuplicate.
const (
	// ReasonProfileNotFound: a peer names a BFDProfile that does not exist.
	ReasonProfileNotFound = "ProfileNotFound"
	// ReasonMinimumTTLUnused: the BFDProfile of a peer speaks of hops, and its session is over one.
	ReasonMinimumTTLUnused = "MinimumTTLUnused"
)

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

// router is whom a BGPPeer is about: its address, or at the other end of which interface it is.
type router struct {
	address netip.Addr
	over    string
}

// routers are the peers of each, oldest first.
func routers(c *view.Cluster) map[router][]*view.BGPPeer {
	found := map[router][]*view.BGPPeer{}
	for _, p := range c.PeersByAge() {
		if p.PeerAddress.IsValid() || p.Interface != "" {
			of := router{p.PeerAddress, p.Interface}
			found[of] = append(found[of], p)
		}
	}
	return found
}

// duplicates finds peers that some node has no session with, since it has one with an older peer
// of the same router. The first node by name is told.
func duplicates(c *view.Cluster) []problem.Problem {
	nodes := byName(c.Nodes)
	var problems []problem.Problem
	for _, peers := range routers(c) {
		if len(peers) < 2 {
			continue
		}
		told := map[problem.Object]bool{}
		for _, node := range nodes {
			_, refused := view.PeersOf(node, peers)
			for _, p := range refused {
				if !told[p.Object] {
					told[p.Object] = true
					problems = append(problems, p)
				}
			}
		}
	}
	return problems
}

func byName(nodes map[string]*view.Node) []*view.Node {
	return slices.SortedFunc(maps.Values(nodes), func(x, y *view.Node) int { return cmp.Compare(x.Name, y.Name) })
}
