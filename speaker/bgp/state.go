package bgp

import (
	"net/netip"
	"time"

	"fairlead.dev/fairlead/internal/addr"
)

// Phase is the state of a session (RFC 4271, 8.2.2). Connect is reported as Active: only the side that dials differs.
type Phase string

// The phases, from down to up.
const (
	Idle        Phase = "Idle"
	Active      Phase = "Active"
	OpenSent    Phase = "OpenSent"
	OpenConfirm Phase = "OpenConfirm"
	Established Phase = "Established"
)

// State is the state of one session. Callers must not modify its slices.
type State struct {
	Phase Phase
	// Since is when the session last came up, went down, or was configured.
	Since time.Time
	// LastError says in words why the session is not up; empty while it is. Overcome is what it was before
	// the session came up; empty if there was nothing.
	LastError, Overcome string
	// Advertised is the number of prefixes that are announced to the peer; 0 while the session is not up.
	Advertised int
	// Pending is the number of prefixes that are wanted and not announced, since the session is not up, cannot
	// carry them, or is about to announce them.
	Pending int
	// Prefixes are the announced prefixes, sorted, up to a hundred; nil if there are more: sorting them
	// would cost each change what all routes cost.
	Prefixes []netip.Prefix
	// Unannounced are the families that the session cannot carry, at most one entry each; empty while it is
	// not up. Another attempt would not help, so that Apply does not fail for it.
	Unannounced []Unannounced
	// Established counts how often the session came up.
	Established int

	// LocalAddress is that of the last session; invalid before the first.
	LocalAddress netip.Addr
	Negotiated

	Messages Messages
}

// Negotiated is what the OPENs of both sides agree on; zero before the first session.
type Negotiated struct {
	PeerASN         uint32
	HoldTime        time.Duration
	KeepaliveTime   time.Duration
	GracefulRestart bool // the peer keeps our routes while the speaker restarts (RFC 4724)
	FourOctetASN    bool // AS numbers have 32 bits (RFC 6793)
	IPv4, IPv6      bool // families that both sides speak; false while down
	unextended      bool // IPv4 is not among them for want of IPv6 next hops (RFC 8950)
}

func (n *Negotiated) carries(family addr.Family) bool {
	if family == addr.IPv4 {
		return n.IPv4
	}
	return n.IPv6
}
