package bgp

import (
	"fmt"
	"regexp"
	"strconv"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

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
	case r.closed:
		return fmt.Sprintf("%v closed the connection without giving a reason", router)
	case r.holdTimePassed():
		return fmt.Sprintf("the hold time passed without a message from %v", router)
	}
	return fmt.Sprintf("sending to %v failed", router)
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
