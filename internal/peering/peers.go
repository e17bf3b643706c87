// Package peering decides which BGPPeers a node has sessions with, and which of them are one
// router.
package peering

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonDuplicate is the reason on a BGPPeer without a session on a node where an older BGPPeer has one with the
// same router.
const ReasonDuplicate = "PeerDuplicate"

// ByAge returns all BGPPeers, the oldest first, those of one age by name. Of several that one node cannot have
// at once the oldest counts.
func ByAge(c *view.Cluster) []*view.BGPPeer {
	return slices.SortedFunc(maps.Values(c.BGPPeers), func(a, b *view.BGPPeer) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// Held returns those of the peers, which are in the order of ByAge, that the node has a session with. refused says
// why it has none with others that select it; those that are Unusable have a problem of their own.
func Held(node *view.Node, peers []*view.BGPPeer) (held []*view.BGPPeer, refused []problem.Problem) {
	for _, p := range peers {
		if p.Unusable != nil || !view.MatchesAny(p.NodeSelectors, node.Labels) {
			continue
		}
		if why := refusal(p, held, node.Name); why != "" {
			refused = append(refused, problem.New(p.Object(), ReasonDuplicate, "%s", why))
			continue
		}
		held = append(held, p)
	}
	return held, refused
}

// refusal returns why a node that has sessions with these older peers can have none with this one; "" if it can.
func refusal(p *view.BGPPeer, held []*view.BGPPeer, node string) string {
	for _, older := range held {
		if why := clash(p, older, node); why != "" {
			return why
		}
	}
	return ""
}

// clash returns why a node cannot have a session with both; "" if it can. Two sessions with one router end each other
// for ever. A connection to a passive session tells only by its two addresses which session it is for, and the
// kernel knows one TCP MD5 key of a router: passwords must agree, or a connection might be taken for the one
// without.
func clash(p, older *view.BGPPeer, node string) string {
	this, other := Of(p), Of(older)
	switch {
	case this.Is(other):
		return fmt.Sprintf("BGPPeer %q is the same router %s on node %s: delete one of the two, or keep them apart by nodeSelectors",
			older.Name, this, node)
	case !this.Passive || !other.Passive || this.Router != other.Router:
		return ""
	case this.MayBe(other):
		return fmt.Sprintf("BGPPeer %q waits for connections of %v on node %s as well, and nothing tells for which of both one is: "+
			"delete one of the two, keep them apart by nodeSelectors, or give each a sourceAddress of its own", older.Name, p.PeerAddress, node)
	case p.Password != older.Password:
		return fmt.Sprintf("BGPPeer %q waits for connections of %v on node %s with another password, and the kernel knows one of each router: "+
			"give both the same", older.Name, p.PeerAddress, node)
	}
	return ""
}

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
