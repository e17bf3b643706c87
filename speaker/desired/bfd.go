package desired

import "slices"

// defaultMinTTL is that of FRR: packets are sent with 255, and one hop more than a
// neighbour's may be between.
const defaultMinTTL = 254

// bfd are the BFD sessions beside the BGP sessions of this node. A profile that is
// not there makes none: the controller tells of it, and BGP does without. Those of
// one peer and one source address are one session on the wire, so that the profile of
// the first by name counts.
func (a *announcing) bfd(sessions map[string]Session) map[string]BFD {
	wanted := map[string]BFD{}
	for name, session := range sessions {
		peer := a.cluster.BGPPeers[name]
		profile := a.cluster.BFDProfiles[peer.BFDProfile]
		if profile == nil || !session.Identity.PeerAddress.IsValid() {
			continue
		}
		b := BFD{
			Peer: session.Identity.PeerAddress, Local: session.Identity.SourceAddress,
			Transmit: profile.Transmit, Receive: profile.Receive, Multiplier: profile.Multiplier, Passive: profile.Passive,
		}
		// A router of iBGP is taken for a neighbour, as FRR takes one that is on a
		// network of its own, unless the profile speaks of hops.
		ibgp := peer.MyASN == peer.PeerASN
		if b.MultiHop = peer.EBGPMultiHop || ibgp && profile.MinTTL != 0 && peer.Interface == ""; b.MultiHop {
			if b.MinTTL = profile.MinTTL; b.MinTTL == 0 {
				b.MinTTL = defaultMinTTL
			}
		}
		wanted[name] = b
	}
	return wanted
}

// unnumbered are the interfaces at whose other ends this node needs to know the routers.
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
