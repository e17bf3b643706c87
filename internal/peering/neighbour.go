// Package peering decides which BGPPeers a node has sessions with, and which of them are one
// router.
package peering

import (
	"net/netip"

	"fairlead.dev/fairlead/internal/view"
)

// Router is the other end of a session.
type Router struct {
	Address   netip.Addr // over an Interface it is invalid as long as the router is not known
	Interface string     // the router is at the other end of its cable; "": it has an Address
}

// Neighbour is the node's end of a session as the router sees it. The router has one session with each.
type Neighbour struct {
	Router
	Port    uint16
	Source  netip.Addr // invalid: the kernel chooses
	Passive bool       // the router opens the connection
}

// Of returns the node's end of a session with the peer.
func Of(p *view.BGPPeer) Neighbour {
	return Neighbour{Router{p.PeerAddress, p.Interface}, p.PeerPort, p.SourceAddress, p.Passive}
}

func (n Neighbour) String() string {
	if n.Interface != "" {
		return "at the other end of " + n.Interface
	}
	return netip.AddrPortFrom(n.Address, n.Port).String()
}

// Is returns whether the router takes both for one, whichever side opens the connection.
func (n Neighbour) Is(o Neighbour) bool {
	n.Passive = o.Passive
	return n == o
}

// MayBe returns whether the router may take both for one: the kernel may choose the source address that the
// other one names, and the port of connections that the router opens is not known.
func (n Neighbour) MayBe(o Neighbour) bool {
	sources := n.Source == o.Source || !n.Source.IsValid() || !o.Source.IsValid()
	ports := n.Port == o.Port || n.Passive && o.Passive
	return n.Router == o.Router && sources && ports
}

// Path is the two ends of a BFD session (RFC 5881, RFC 5883). BGPPeers of a node with one path share one session,
// by the BFDProfile of the oldest.
type Path struct {
	router Router
	source netip.Addr
	far    bool
}

// PathTo returns the path of BFD with the peer.
func PathTo(p *view.BGPPeer) Path {
	to := Of(p)
	return Path{to.Router, to.Source, p.EBGPMultiHop}
}
