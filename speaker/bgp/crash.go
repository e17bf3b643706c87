package bgp

import (
	"fmt"
	"net/netip"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/lastwords"
)

// CrashLabel is the key of the label of all goroutines of a session. GoBGP reads what routers
// send in goroutines of its own, and a message of a type that it does not know ends the
// whole process there. Nobody can keep it from that; the next process can leave that
// router alone for a while, so that the sessions with all others stay up.
const CrashLabel = "BGP peer"

// crashLabel tells sessions apart: a BGPPeer may get another router.
func crashLabel(name string, id desired.Identity) string {
	id = sessionIdentity(id)
	return fmt.Sprintf("%s at %v", name, netip.AddrPortFrom(id.PeerAddress, id.PeerPort))
}

// LeaveAlone says which routers have ended earlier processes. It is for before the first Apply.
func (s *Speaker) LeaveAlone(crashes lastwords.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashes = crashes
}

// leftAlone tells whether it is too early to try a router again that ended the process. The
// caller holds s.mu.
func (s *session) leftAlone(now time.Time) bool {
	if s.crash.Times == 0 || !now.Before(s.crash.Until()) {
		return false
	}
	s.fail(fmt.Sprintf("%v sent a message that ended the whole speaker (so far %d, last at %s): it is left alone until %s; have the router send no message types beyond RFC 4271 and RFC 2918",
		s.identity.PeerAddress, s.crash.Times, s.crash.Last.UTC().Format(time.RFC3339), s.crash.Until().UTC().Format(time.RFC3339)))
	return true
}
