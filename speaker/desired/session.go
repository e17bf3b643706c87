package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/peering"
	"fairlead.dev/fairlead/internal/view"
)

// Session is one BGP session of this node and what it announces.
type Session struct {
	Identity Identity
	Routes   map[netip.Prefix]RouteAttrs
	// Aggregates are the Routes that may be for more than one address, each with the
	// addresses in it that this node serves: at least one, sorted.
	Aggregates map[netip.Prefix][]netip.Addr
	// Leaving are routes that are about to go, none of Routes: routers that have them are asked to
	// prefer others. The agent has it; what is decided here has none.
	Leaving             map[netip.Prefix]RouteAttrs
	Delta[netip.Prefix] // of Routes, as the agent announces them; what is decided here has none
}

// Addresses returns the addresses for which one of Routes is announced.
func (s Session) Addresses(route netip.Prefix) []netip.Addr {
	if within, ok := s.Aggregates[route]; ok {
		return within
	}
	return []netip.Addr{route.Addr()}
}

// Identity is what makes a session what it is: if any of it changes, the session is
// restarted. It is comparable.
type Identity struct {
	MyASN   uint32
	PeerASN uint32 // 0: any but MyASN
	// DynamicASN: the BGPPeer gives no number for the router, but says whether it is ours.
	DynamicASN bool
	// PeerAddress is the router's. With Interface, it and SourceAddress are link-local with
	// Interface as their zone, or invalid while NoRouter says why they are not known.
	PeerAddress     netip.Addr
	Interface       string // of an unnumbered session
	Passive         bool   // the router opens the connection
	NoRouter        string
	PeerPort        uint16
	SourceAddress   netip.Addr // invalid: the kernel chooses
	RouterID        netip.Addr // IPv4, always valid
	HoldTime        time.Duration
	KeepaliveTime   time.Duration
	ConnectTime     time.Duration
	EBGPMultiHop    bool
	TTLSecurity     bool // RFC 5082: drop packets from beyond the node's networks
	OneFamily       bool // carry only the family of PeerAddress, or IPv6 over Interface
	GracefulRestart bool
	Password        view.Secret
	// NextHops for families other than the session's own: this node's first
	// address of each family, invalid where it has none.
	NextHop4, NextHop6 netip.Addr
}

// Neighbour is the end of the session as the router sees it.
func (id Identity) Neighbour() peering.Neighbour {
	return peering.Neighbour{
		Router: peering.Router{Address: id.PeerAddress, Interface: id.Interface}, Port: id.PeerPort, Source: id.SourceAddress, Passive: id.Passive,
	}
}

// BFD is one BFD session of this node with a router (RFC 5880). It is comparable.
type BFD struct {
	Peer  netip.Addr
	Local netip.Addr // invalid: the kernel chooses
	// MultiHop is RFC 5883 in place of RFC 5881. HopsByNetwork leaves that to pulse, which knows
	// whether the router is on a network of the node. MinTTL is the least TTL or hop limit that
	// packets may come with over several hops; over one it is always 255.
	MultiHop          bool
	HopsByNetwork     bool
	MinTTL            uint8
	Transmit, Receive time.Duration // as the session is Up, of whole microseconds
	Multiplier        uint8         // so many packets in a row may be lost
	Passive           bool          // the router begins
}

// RouteAttrs are the attributes of one announced prefix; a change of them means
// announcing it anew.
type RouteAttrs struct {
	LocalPref        uint32  // 0: not set; for iBGP
	MED              *uint32 // nil: not set
	Prepend          int     // how often our ASN stands in the path beyond once; for eBGP
	Bandwidth        uint32  // of the link, in Mbit/s; 0: not told
	Communities      []uint32
	LargeCommunities []view.LargeCommunity
}

// Equal compares two attribute sets by value.
func (a RouteAttrs) Equal(o RouteAttrs) bool {
	return a.LocalPref == o.LocalPref && a.Prepend == o.Prepend && a.Bandwidth == o.Bandwidth &&
		(a.MED == nil) == (o.MED == nil) && (a.MED == nil || *a.MED == *o.MED) &&
		slices.Equal(a.Communities, o.Communities) && slices.Equal(a.LargeCommunities, o.LargeCommunities)
}

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
