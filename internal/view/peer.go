package view

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/problem"
)

// BGPPeer is one fairlead.dev BGPPeer.
type BGPPeer struct {
	Name            string
	UID             string
	Created         time.Time
	MyASN           uint32     // as the router sees it
	PeerASN         uint32     // 0: any but MyASN
	DynamicASN      bool       // PeerASN was not given, but follows from dynamicASN
	PeerAddress     netip.Addr // invalid where there is an Interface
	Interface       string     // to the router; "": it has a PeerAddress
	PeerPort        uint16
	Passive         bool       // the router opens the connection
	SourceAddress   netip.Addr // invalid: the kernel chooses
	RouterID        netip.Addr // IPv4; invalid: derived from the node
	HoldTime        time.Duration
	KeepaliveTime   time.Duration
	ConnectTime     time.Duration
	EBGPMultiHop    bool
	TTLSecurity     bool // RFC 5082: refuse packets from beyond the node's networks
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

// HopsByNetwork reports whether the networks of a node decide over how many hops BFD with
// the router is, as iBGP may be over any number: over several (RFC 5883) if the router is on none of
// them, as in FRR. With all others it is over one, or over several with EBGPMultiHop.
func (p *BGPPeer) HopsByNetwork() bool {
	return p.MyASN == p.PeerASN && p.Interface == "" && !p.TTLSecurity && !p.EBGPMultiHop
}

// IsOn reports whether the peer's address is one of the node itself, as of another BGP daemon on it. There
// is no BFD then: one process at a time speaks BFD on a node.
func (p *BGPPeer) IsOn(node *Node) bool {
	return p.PeerAddress.IsLoopback() || slices.Contains(node.Addresses, p.PeerAddress)
}

// BFDProfile is one fairlead.dev BFDProfile.
type BFDProfile struct {
	Name              string
	Transmit, Receive time.Duration
	Multiplier        uint8
	Passive           bool
	MinTTL            uint8 // over several hops; 0: not set
	// EchoInterval is given, and has no effect.
	EchoInterval bool
}

// Equal reports whether sessions by either are the same.
func (p *BFDProfile) Equal(o *BFDProfile) bool {
	one, other := *p, *o
	one.Name, one.EchoInterval = other.Name, other.EchoInterval
	return one == other
}

// Object is the profile as problems name it.
func (p *BFDProfile) Object() problem.Object {
	return problem.Object{Kind: "BFDProfile", Name: p.Name}
}

// BGPSession is the state of a node's session with a peer, as its speaker reports it.
type BGPSession struct {
	Node, Peer  string
	Established bool
	Changed     time.Time // when it last came up, went down or was configured; zero while its node has not said so
	LastError   string    // why it is not; of one that is, nothing
}
