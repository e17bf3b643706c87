package bgp

import (
	"net/netip"
	"slices"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
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

	// What was negotiated; zero before the first session.
	PeerASN         uint32
	LocalAddress    netip.Addr
	HoldTime        time.Duration
	KeepaliveTime   time.Duration
	GracefulRestart bool // the peer keeps our routes while the speaker restarts
	FourOctetASN    bool // AS numbers have 32 bits (RFC 6793)
	IPv4, IPv6      bool // families that both sides speak; false while down
	unextended      bool // IPv4 is not among them for want of IPv6 next hops (RFC 8950)

	Messages Messages
}

// carries tells whether the family was negotiated.
func (s *State) carries(family addr.Family) bool {
	if family == addr.IPv4 {
		return s.IPv4
	}
	return s.IPv6
}

// negotiated takes over what both sides agreed on.
func (s *State) negotiated(peer *api.Peer, id desired.Identity, local netip.Addr) {
	s.LocalAddress, s.PeerASN = local, peer.GetState().GetPeerAsn()
	timers := peer.GetTimers().GetState()
	s.HoldTime = time.Duration(timers.GetNegotiatedHoldTime()) * time.Second
	s.KeepaliveTime = time.Duration(timers.GetKeepaliveInterval()) * time.Second
	s.GracefulRestart, s.FourOctetASN, s.IPv4, s.IPv6 = false, false, false, false
	capabilities, err := apiutil.UnmarshalCapabilities(peer.GetState().GetRemoteCap())
	if err != nil {
		return // never: GoBGP itself marshalled them
	}
	multiprotocol, extended := false, false
	for _, capability := range capabilities {
		switch c := capability.(type) {
		case *packet.CapMultiProtocol:
			multiprotocol = true
			s.IPv4 = s.IPv4 || c.CapValue == packet.RF_IPv4_UC
			s.IPv6 = s.IPv6 || c.CapValue == packet.RF_IPv6_UC
		case *packet.CapExtendedNexthop:
			extended = slices.ContainsFunc(c.Tuples, func(t *packet.CapExtendedNexthopTuple) bool {
				return t.NLRIAFI == packet.AFI_IP && t.NLRISAFI == packet.SAFI_UNICAST && t.NexthopAFI == packet.AFI_IP6
			})
		case *packet.CapGracefulRestart:
			s.GracefulRestart = peer.GetGracefulRestart().GetEnabled()
		case *packet.CapFourOctetASNumber:
			s.FourOctetASN = true // GoBGP always offers it
		}
	}
	if !multiprotocol {
		s.IPv4 = true // RFC 4760: a speaker without the capability means IPv4 unicast
	}
	s.IPv4, s.IPv6 = s.IPv4 && carries(id, addr.IPv4), s.IPv6 && carries(id, addr.IPv6)
	s.unextended = id.Interface != "" && s.IPv4 && !extended
	s.IPv4 = s.IPv4 && !s.unextended
}
