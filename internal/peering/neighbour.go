// Package peering decides which BGPPeers a node has sessions with, and which of them are one
// router.
package peering

import (
	"net/netip"

	"fairlead.dev/fairlead/internal/view"
)

// Router is whom a session is with.
type Router struct {
	Address   netip.Addr // over an Interface it is invalid as long as the router is not known
	Interface string     // at whose other end the router is; "": it has an Address
}

// Neighbour is one end of a session as the router sees it, which has one session with each.
type Neighbour struct {
	Router
	Port    uint16
	Source  netip.Addr // invalid: the kernel chooses
	Passive bool       // the router opens the connection
}

// Of is the end of a session with the peer.
func Of(p *view.BGPPeer) Neighbour {
	return Neighbour{Router{p.PeerAddress, p.Interface}, p.PeerPort, p.SourceAddress, p.Passive}
}

func (n Neighbour) String() string {
	if n.Interface != "" {
		return "at the other end of " + n.Interface
	}
	return netip.AddrPortFrom(n.Address, n.Port).String()
}

// Is tells whether the router takes both for one, whoever of them opens the connection.
func (n Neighbour) Is(o Neighbour) bool {
	n.Passive = o.Passive
	return n == o
}

// MayBe tells whether the router may take both for one. What the kernel chooses may be what the
// other one names, and of connections that the router opens nobody knows the port.
func (n Neighbour) MayBe(o Neighbour) bool {
	sources := n.Source == o.Source || !n.Source.IsValid() || !o.Source.IsValid()
	ports := n.Port == o.Port || n.Passive && o.Passive
	return n.Router == o.Router && sources && ports
}

// Path is between what packets of BFD with a router go. BGPPeers of a node that have one path
// share one session, by the BFDProfile of the oldest.
type Path struct {
	router Router
	source netip.Addr
	far    bool
}

// PathTo is that of BFD with the peer.
func PathTo(p *view.BGPPeer) Path {
	to := Of(p)
	return Path{to.Router, to.Source, p.EBGPMultiHop}
}
