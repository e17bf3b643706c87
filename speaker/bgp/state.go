package bgp

import (
	"net/netip"
	"time"

	"fairlead.dev/fairlead/internal/addr"
)

// Phase is the state of a session as RFC 4271 section 8.2.2 names it. Connect
// is told as Active, as the two differ only in who dials.
type Phase string

// The phases, from down to up.
const (
	Idle        Phase = "Idle"
	Active      Phase = "Active"
	OpenSent    Phase = "OpenSent"
	OpenConfirm Phase = "OpenConfirm"
	Established Phase = "Established"
)

// State is what there is to tell about one session.
type State struct {
	Phase Phase
	// Since is when the session last came up, went down, or was configured.
	Since time.Time
	// LastError says in words why the session is not up; empty while it is. Overcome
	// is what it was before the session came up; empty if there was nothing.
	LastError, Overcome string
	// Advertised is the number of prefixes that the peer has been told of; 0
	// while the session is not up.
	Advertised int
	// Pending is the number of prefixes that the peer is to be told of and has not been,
	// since the session is not up, cannot carry them, or is about to tell it.
	Pending int
	// Prefixes are those, sorted, as long as there are no more than a hundred: more are
	// nothing to read, and sorting them would cost each change what all routes cost.
	// Callers must not modify it.
	Prefixes []netip.Prefix
	// Unannounced are the families that the session cannot carry, at most one
	// entry each; empty while it is not up. Nothing that is tried again would
	// help, so that Apply does not fail for it. Callers must not modify it.
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

// carries returns whether the family was negotiated.
func (n *Negotiated) carries(family addr.Family) bool {
	if family == addr.IPv4 {
		return n.IPv4
	}
	return n.IPv6
}
