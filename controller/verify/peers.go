package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"fairlead.dev/fairlead/internal/peering"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons of the problems of BGPPeers. Others are ReasonFieldUnused, ReasonNoAdvertisement
// and peering.ReasonDuplicate.
const (
	// ReasonProfileNotFound: a peer names a BFDProfile that does not exist.
	ReasonProfileNotFound = "ProfileNotFound"
	// ReasonProfileShared: the BFD session of a peer is that of an older one, by whose BFDProfile it is.
	ReasonProfileShared = "ProfileShared"
	// ReasonMinimumTTLUnused: the BFDProfile of a peer speaks of hops, and its session is over one.
	ReasonMinimumTTLUnused = "MinimumTTLUnused"
	// ReasonRouterIDShared: several nodes have one router ID towards a router.
	ReasonRouterIDShared = "RouterIDShared"
)

// peers finds what is wrong with each BGPPeer among the other objects.
func peers(r *reach) {
	announced := map[*view.BGPPeer]bool{}
	for _, ad := range r.cluster.BGPAdvertisements {
		for _, p := range r.of(ad) {
			announced[p] = true
		}
	}
	for i, p := range r.peers {
		var nodes []*view.Node
		var names []string
		for at, node := range r.nodes {
			if r.at[i][at] {
				nodes, names = append(nodes, node), append(names, node.Name)
			}
		}
		profile(r, p, nodes)
		if p.RouterID.IsValid() && len(nodes) > 1 {
			r.advise(p.Object(), ReasonRouterIDShared,
				"spec.routerID: nodes %s have the router ID %v towards one router, which tells neighbors apart by it (RFC 6286): "+
					"choose one node by nodeSelectors, or leave it out", problem.List(names, " "), p.RouterID)
		}
		if len(nodes) > 0 && !announced[p] {
			r.advise(p.Object(), ReasonNoAdvertisement,
				"nothing is announced to it: no BGPAdvertisement is for this peer on the nodes that it chooses; create one, or correct spec.peers and the nodeSelectors of both")
		}
	}
}

// profile finds what is wrong with the BFDProfile that a peer of these nodes names.
func profile(r *reach, p *view.BGPPeer, nodes []*view.Node) {
	if p.BFDProfile == "" {
		return
	}
	profile := r.cluster.BFDProfiles[p.BFDProfile]
	if profile == nil {
		r.add(p.Object(), ReasonProfileNotFound,
			"spec.bfdProfile: there is no BFDProfile %q, so the session is held without BFD: create it or take it out", p.BFDProfile)
		return
	}
	if len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n *view.Node) bool { return !p.IsOn(n) }) {
		r.advise(p.Object(), ReasonFieldUnused,
			"spec.bfdProfile: %v is the node itself, so the session is held without BFD, which is between two machines: leave it out", p.PeerAddress)
		return
	}
	if profile.MinTTL == 0 || p.EBGPMultiHop || p.HopsByNetwork() {
		return // it counts, or only a node could tell
	}
	said := "this one is not said to be: its BFD packets must come with 255; set ebgpMultiHop if it is"
	if p.TTLSecurity {
		said = "ttlSecurity says that this one is not: its BFD packets must come with 255; leave that out if it is"
	}
	r.advise(p.Object(), ReasonMinimumTTLUnused,
		"spec.bfdProfile: BFDProfile %q has minimumTtl %d, which is for routers more than one hop away, and %s, or name a profile without minimumTtl",
		p.BFDProfile, profile.MinTTL, said)
}

// together finds peers of one router that a node cannot have as they are asked for: that it has
// no session with, or BFD by the profile of another. The oldest is told nothing; of the nodes the
// first by name is named.
func together(r *reach) {
	routers := map[peering.Router][]*view.BGPPeer{} // the peers of each, by age
	for _, p := range r.peers {
		if of := peering.Of(p).Router; of != (peering.Router{}) {
			routers[of] = append(routers[of], p)
		}
	}
	for _, peers := range routers {
		if len(peers) < 2 {
			continue
		}
		told := map[problem.Object]bool{}
		for _, node := range r.nodes {
			held, refused := peering.Held(node, peers)
			for _, p := range slices.Concat(refused, sharing(r.cluster, held, node)) {
				if !told[p.Object] {
					told[p.Object] = true
					r.problems = append(r.problems, p)
				}
			}
		}
	}
}

// sharing finds those of a node's peers of one router whose BFD session is that of an older one
// with another BFDProfile.
func sharing(c *view.Cluster, held []*view.BGPPeer, node *view.Node) []problem.Problem {
	var problems []problem.Problem
	first := map[peering.Path]*view.BGPPeer{}
	for _, p := range held {
		profile := c.BFDProfiles[p.BFDProfile]
		if profile == nil || p.IsOn(node) {
			continue
		}
		path := peering.PathTo(p)
		older := first[path]
		if older == nil {
			first[path] = p
		} else if !profile.Equal(c.BFDProfiles[older.BFDProfile]) {
			problems = append(problems, problem.Advice(p.Object(), ReasonProfileShared,
				"spec.bfdProfile: BGPPeer %q has BFD with the same router on node %s by BFDProfile %q, and both are one session, which is by that: "+
					"name one profile in both, or give each a sourceAddress of its own", older.Name, node.Name, older.BFDProfile))
		}
	}
	return problems
}

// Sessions are those of one BGPPeer.
type Sessions struct {
	// Nodes counts those that the peer chooses, and Established those of them whose
	// session is.
	Nodes, Established int
	// Lacking says of each of the others why it is not, in the order of their names.
	Lacking []string
}

type pair struct{ node, peer string }

// CountSessions counts the sessions of each BGPPeer. That of a node which Kubernetes does
// not call ready does not count: its speaker may have had no chance to say that it is gone.
func CountSessions(c *view.Cluster) map[string]Sessions {
	sessions := make(map[pair]*view.BGPSession, len(c.BGPSessions))
	for _, s := range c.BGPSessions {
		sessions[pair{s.Node, s.Peer}] = s
	}
	nodes := slices.Sorted(maps.Keys(c.Nodes))
	counts := make(map[string]Sessions, len(c.BGPPeers))
	for name, peer := range c.BGPPeers {
		var count Sessions
		for _, node := range nodes {
			if !view.MatchesAny(peer.NodeSelectors, c.Nodes[node].Labels) {
				continue
			}
			count.Nodes++
			if why := lacking(c.Nodes[node], sessions[pair{node, name}]); why != "" {
				count.Lacking = append(count.Lacking, fmt.Sprintf("node %s: %s", node, why))
			} else {
				count.Established++
			}
		}
		counts[name] = count
	}
	return counts
}

// lacking says why the session of a node is not established, "" if it is.
func lacking(node *view.Node, s *view.BGPSession) string {
	switch {
	case s == nil:
		return "no speaker there tells of one (is the node in the chart's speaker.nodeSelector?)"
	case !node.Ready:
		return "not ready, so that nothing is known of its session"
	case !s.Established:
		return cmp.Or(s.LastError, "the session is coming up")
	default:
		return ""
	}
}
