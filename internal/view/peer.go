package view

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/problem"
)

// ReasonPeerDuplicate is on a BGPPeer that has no session with a node since an older one has
// one with the same router.
const ReasonPeerDuplicate = "PeerDuplicate"

// BGPPeer is one fairlead.dev BGPPeer.
type BGPPeer struct {
	Name            string
	UID             string
	Created         time.Time
	MyASN           uint32     // as the router sees it
	PeerASN         uint32     // 0: any but MyASN
	DynamicASN      bool       // PeerASN was not given, but follows from dynamicASN
	PeerAddress     netip.Addr // invalid where there is an Interface
	Interface       string     // at whose other end the router is; "": it has a PeerAddress
	PeerPort        uint16
	Passive         bool       // the router opens the connection
	SourceAddress   netip.Addr // invalid: the kernel chooses
	RouterID        netip.Addr // IPv4; invalid: derived from the node
	HoldTime        time.Duration
	KeepaliveTime   time.Duration
	ConnectTime     time.Duration
	EBGPMultiHop    bool
	TTLSecurity     bool // RFC 5082: refuse packets of whoever is not on our network
	OneFamily       bool // the session carries that of PeerAddress alone, or IPv6
	GracefulRestart bool
	BFDProfile      string // "": no BFD
	NodeSelectors   []Selector
	// Password is the TCP-MD5 key (RFC 2385). Unusable says why there may be
	// no session at all: a Secret that is named but missing or empty.
	Password Secret
	Unusable *problem.Problem
}

// Object is the peer as problems name it.
func (p *BGPPeer) Object() problem.Object {
	return problem.Object{Kind: "BGPPeer", Name: p.Name}
}

// PeersByAge are all BGPPeers, the oldest first, those of one age by name. Of several that one
// node cannot have at once the oldest counts.
func (c *Cluster) PeersByAge() []*BGPPeer {
	return slices.SortedFunc(maps.Values(c.BGPPeers), func(a, b *BGPPeer) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// PeersOf are those of the peers, which are in the order of PeersByAge, that the node has a
// session with. refused says why it has none with others that choose it; those that are Unusable
// say so themselves, and are in nobody's way.
func PeersOf(node *Node, peers []*BGPPeer) (held []*BGPPeer, refused []problem.Problem) {
	for _, p := range peers {
		if p.Unusable != nil || !MatchesAny(p.NodeSelectors, node.Labels) {
			continue
		}
		if why := p.refusal(held, node.Name); why != "" {
			refused = append(refused, problem.New(p.Object(), ReasonPeerDuplicate, "%s", why))
			continue
		}
		held = append(held, p)
	}
	return held, refused
}

// refusal says why a node that has sessions with these older peers can have none with this one;
// "" if it can.
func (p *BGPPeer) refusal(held []*BGPPeer, node string) string {
	for _, older := range held {
		if why := p.clash(older, node); why != "" {
			return why
		}
	}
	return ""
}

// Path is between what packets of BFD with a router go. BGPPeers of a node that have one path
// share one session, by the BFDProfile of the oldest.
type Path struct {
	router, source netip.Addr
	over           string
	far            bool
}

// Path is that of BFD with the router.
func (p *BGPPeer) Path() Path {
	return Path{p.PeerAddress, p.SourceAddress, p.Interface, p.EBGPMultiHop}
}

// ManyHops tells whether BFD with the router is over several hops (RFC 5883). A router of iBGP is
// taken for a neighbour, as FRR takes one that is on a network of its own, unless the profile
// speaks of hops and the peer does not exclude them.
func (p *BGPPeer) ManyHops(profile *BFDProfile) bool {
	return p.EBGPMultiHop || profile.MinTTL != 0 && p.MyASN == p.PeerASN && p.Interface == "" && !p.TTLSecurity
}

// IsOn tells whether what is at the peer's address is the node itself, as another BGP daemon of it. There
// is no BFD then: nothing is between both, and one process at a time speaks BFD on a node.
func (p *BGPPeer) IsOn(node *Node) bool {
	return p.PeerAddress.IsLoopback() || slices.Contains(node.Addresses, p.PeerAddress)
}

// neighbour is one end of a session as the router sees it, which has one session with each.
type neighbour struct {
	router netip.AddrPort
	over   string
	source netip.Addr
}

func (p *BGPPeer) neighbour() neighbour {
	return neighbour{netip.AddrPortFrom(p.PeerAddress, p.PeerPort), p.Interface, p.SourceAddress}
}

func (n neighbour) String() string {
	if n.over != "" {
		return "at the other end of " + n.over
	}
	return n.router.String()
}

// clash says why a node cannot have a session with both. Two with one router end each other for
// ever. And of those that wait for the router to connect, a connection tells by its two addresses
// alone for which it is, and the kernel knows one password of a router: so what they say must
// agree, or a connection might be taken for the one without a password.
func (p *BGPPeer) clash(older *BGPPeer, node string) string {
	if p.neighbour() == older.neighbour() {
		return fmt.Sprintf("BGPPeer %q is the same router %s on node %s: delete one of the two, or keep them apart by nodeSelectors",
			older.Name, p.neighbour(), node)
	}
	if !p.Passive || !older.Passive || p.PeerAddress != older.PeerAddress {
		return ""
	}
	one, other := p.SourceAddress, older.SourceAddress
	switch {
	case one == other || !one.IsValid() || !other.IsValid():
		return fmt.Sprintf("BGPPeer %q waits for connections of %v on node %s as well, and nothing tells for which of both one is: "+
			"delete one of the two, keep them apart by nodeSelectors, or give each a sourceAddress of its own", older.Name, p.PeerAddress, node)
	case p.Password != older.Password:
		return fmt.Sprintf("BGPPeer %q waits for connections of %v on node %s with another password, and the kernel knows one of each router: "+
			"give both the same", older.Name, p.PeerAddress, node)
	}
	return ""
}
