package bgp

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
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

	// LocalAddress is that of the last session, with the interface as its zone if it is link-local; invalid before the first.
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

// reason returns in words why the connection with the router ended, or why GoBGP ended it: since the guard
// refuses what GoBGP would refuse, it does that only when the hold time has passed, or a write has failed.
func (r *relay) reason() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	router := r.id.PeerAddress
	switch {
	case r.refused != nil && r.refused.sentence:
		return r.refused.words
	case r.refused != nil:
		return fmt.Sprintf("what %v sent was refused: %v", router, r.refused)
	case r.overdue:
		return fmt.Sprintf("%v has not taken what it was sent for %v, though it may send itself: its BGP daemon hangs, or something between drops what is larger (send hold timer, RFC 9687)",
			router, r.sendHold)
	case r.notified != nil && r.guard.up:
		return fmt.Sprintf("%v ended the session: %s", router, notificationWords(r.notified))
	case r.notified != nil:
		return refusedWords(r.id, r.notified)
	case r.closed && !r.guard.opened && r.parting != "": // FRR does so while the neighbor is shut down, or has sent too many prefixes
		return r.parting + "; since then it closes each connection"
	case r.closed && !r.guard.opened && !r.id.Passive:
		return fmt.Sprintf("%v closed the connection and opened no session: it may have no neighbor %v, or one that is shut down or activated for no address family",
			router, r.local.Addr().WithZone(""))
	case r.closed:
		return fmt.Sprintf("%v closed the connection without giving a reason", router)
	case r.holdTimePassed():
		return fmt.Sprintf("the hold time passed without a message from %v", router)
	}
	return fmt.Sprintf("sending to %v failed", router)
}

// isNotified returns whether the router ended the session by a NOTIFICATION.
func (r *relay) isNotified() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notified != nil
}

// refusedWords tell why a router refused to open the session, by the body of its NOTIFICATION, and what to look
// at unless it ceases, which finds no fault with what we sent.
func refusedWords(id desired.Identity, body []byte) string {
	words := fmt.Sprintf("%v refused to open the session: %s", id.PeerAddress, notificationWords(body))
	if body[0] == packet.BGP_ERROR_CEASE {
		return words
	}
	theirs := "any other"
	if id.PeerASN != 0 {
		theirs = strconv.FormatUint(uint64(id.PeerASN), 10)
	}
	return fmt.Sprintf("%s: compare the AS numbers (ours %d, theirs %s), the router ID (%v) and the neighbor's configuration there",
		words, id.MyASN, theirs, id.RouterID)
}

// notificationWords are the codes of a NOTIFICATION and what the router's administrator says in it (RFC 9003).
func notificationWords(body []byte) string {
	code, subcode, data := body[0], body[1], body[2:]
	words := errorWords(code, subcode)
	if code == packet.BGP_ERROR_CEASE && (subcode == packet.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN || subcode == packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET) {
		if text, _, _ := cut(data, 1); len(text) > 0 {
			words += fmt.Sprintf(" (%q)", text)
		}
	}
	return words
}

// gobgpError is how GoBGP writes the codes of an error.
var gobgpError = regexp.MustCompile(`^code [0-9]+\((.+)\) subcode [0-9]+\((.+)\)$`)

// errorWords are the codes of a NOTIFICATION (RFC 4271, 4.5) by name, such as "cease (administrative
// shutdown)"; a number stands for what has no name.
func errorWords(code, subcode uint8) string {
	const nameless = "undefined"
	named := gobgpError.FindStringSubmatch(packet.NewNotificationErrorCode(code, subcode).String())
	switch {
	case named == nil || named[1] == nameless:
		return fmt.Sprintf("error code %d, subcode %d", code, subcode)
	case named[2] != nameless:
		return fmt.Sprintf("%s (%s)", named[1], named[2])
	case subcode != 0:
		return fmt.Sprintf("%s (subcode %d)", named[1], subcode)
	default:
		return named[1]
	}
}
