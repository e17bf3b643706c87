package desired

import (
	"cmp"
	"slices"

	"fairlead.dev/fairlead/internal/peering"
	"fairlead.dev/fairlead/internal/view"
)

// defaultMinTTL is that of FRR: packets are sent with 255, and one hop more than a
// neighbour's may be between.
const defaultMinTTL = 254

// bfd are the BFD sessions beside the BGP sessions of this node. A profile that is
// not there makes none: the controller tells of it, and BGP does without. Those of
// one path are one session on the wire, so that the profile of the oldest peer counts.
func (a *announcer) bfd(sessions map[string]Session) map[string]BFD {
	wanted, shared := map[string]BFD{}, map[peering.Path]BFD{}
	node := a.cluster.Nodes[a.options.Node]
	for _, peer := range peering.ByAge(a.cluster) {
		session, held := sessions[peer.Name]
		profile := a.cluster.BFDProfiles[peer.BFDProfile]
		if !held || profile == nil || !session.Identity.PeerAddress.IsValid() || peer.IsOn(node) {
			continue
		}
		path := peering.PathTo(peer)
		if _, had := shared[path]; !had {
			shared[path] = beside(session.Identity, peer, profile)
		}
		wanted[peer.Name] = shared[path]
	}
	return wanted
}

func beside(id Identity, peer *view.BGPPeer, profile *view.BFDProfile) BFD {
	b := BFD{
		Peer: id.PeerAddress, Local: id.SourceAddress,
		Transmit: profile.Transmit, Receive: profile.Receive, Multiplier: profile.Multiplier, Passive: profile.Passive,
	}
	b.MultiHop, b.HopsByNetwork = peer.EBGPMultiHop, peer.HopsByNetwork()
	if b.MultiHop || b.HopsByNetwork {
		b.MinTTL = cmp.Or(profile.MinTTL, defaultMinTTL)
	}
	return b
}

func unnumbered(sessions map[string]Session) []string {
	var names []string
	for _, session := range sessions {
		if session.Identity.Interface != "" {
			names = append(names, session.Identity.Interface)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
