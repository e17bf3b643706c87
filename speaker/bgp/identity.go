package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

const (
	// defaultPort is the TCP port of BGP.
	defaultPort = 179
	// restartTime is how long peers are asked to keep our routes after the connection closed without a
	// NOTIFICATION (RFC 4724). It covers the upgrade of a node's speaker with the pull of an image.
	restartTime = 120 * time.Second
	// maxPassword is TCP_MD5SIG_MAXKEYLEN, in bytes.
	maxPassword = 80
)

// sessionIdentity returns what a session must be restarted for: next hops are attributes of routes, which can
// change during a session, and connectTime is for when there is none.
func sessionIdentity(id desired.Identity) desired.Identity {
	id.NextHop4, id.NextHop6, id.ConnectTime = netip.Addr{}, netip.Addr{}, 0
	return id
}

// sameNeighbour returns whether the peer takes a session with identity b for the restarted speaker of a: then it
// keeps the routes when a closes silently.
func sameNeighbour(a, b desired.Identity) bool {
	return a.GracefulRestart && b.GracefulRestart && a.NoRouter == "" && b.NoRouter == "" &&
		a.MyASN == b.MyASN && a.PeerASN == b.PeerASN && a.RouterID == b.RouterID &&
		a.Neighbour().Is(b.Neighbour())
}

// validate returns an error that names the setting with which there can be no session.
func validate(id desired.Identity) error {
	switch {
	case id.MyASN == 0:
		return errors.New("AS number 0 is reserved (RFC 7607): set myASN")
	case id.NoRouter != "":
		return nil // there is nothing to dial
	case !id.PeerAddress.IsValid() || id.PeerAddress.IsUnspecified() || id.PeerAddress.Zone() != id.Interface:
		return fmt.Errorf("peer address %v: give the router's IP address, without a zone", id.PeerAddress)
	case id.Passive && id.Interface != "":
		return fmt.Errorf("an unnumbered session over %s cannot be passive", id.Interface)
	case !id.RouterID.Is4() || id.RouterID.IsUnspecified():
		return fmt.Errorf("router ID %v: it must be an IPv4 address other than 0.0.0.0", id.RouterID)
	case id.SourceAddress.IsValid() && id.SourceAddress.Is4() != id.PeerAddress.Is4():
		return fmt.Errorf("source address %v is not of the family of the peer address %v", id.SourceAddress, id.PeerAddress)
	case len(id.Password) > maxPassword:
		return fmt.Errorf("the password has %d bytes, TCP MD5 (RFC 2385) takes at most %d here", len(id.Password), maxPassword)
	case id.PeerPort == 0 && !id.Passive:
		return errors.New("peer port 0: give that to which the router listens, as a rule 179")
	case id.HoldTime < 3*time.Second:
		return fmt.Errorf("hold time %v: RFC 4271 asks for 3s or more", id.HoldTime)
	case id.KeepaliveTime > id.HoldTime:
		return fmt.Errorf("keepalive time %v is longer than the hold time %v", id.KeepaliveTime, id.HoldTime)
	}
	return nil
}

// internal returns whether the router is in our own AS (iBGP).
func internal(id desired.Identity) bool { return id.PeerASN == id.MyASN }

// carries returns whether the session is to carry a family at all.
func carries(id desired.Identity, family addr.Family) bool {
	return !id.OneFamily || addr.FamilyOf(id.PeerAddress) == family
}

// leastSendHold is what RFC 9687 suggests.
const leastSendHold = 8 * time.Minute

// sendHold returns how long a router may take no data before the session ends (SendHoldTimer, RFC 9687): at
// least so long, and no shorter than twice the hold time.
func sendHold(id desired.Identity, least time.Duration) time.Duration {
	return max(least, 2*id.HoldTime)
}

// nextHops are the next hops of prefixes on one session, by family. Unspecified stands for the session's own
// local address; invalid means that there is none.
type nextHops struct{ v4, v6 netip.Addr }

func nextHopsOf(id desired.Identity) nextHops {
	if id.Interface != "" { // the link-local address, for IPv4 by RFC 8950
		return nextHops{v4: netip.IPv4Unspecified(), v6: netip.IPv6Unspecified()}
	}
	if id.PeerAddress.Is4() {
		return nextHops{v4: netip.IPv4Unspecified(), v6: id.NextHop6}
	}
	return nextHops{v4: id.NextHop4, v6: netip.IPv6Unspecified()}
}

func (h nextHops) of(prefix netip.Prefix) netip.Addr {
	if prefix.Addr().Is4() {
		return h.v4
	}
	return h.v6
}
