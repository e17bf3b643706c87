package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"sync"

	gobgplog "github.com/osrg/gobgp/v3/pkg/log"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

// tap is the logger of one GoBGP server. GoBGP tells why a session is down only
// to its logger, so this one also listens. It passes everything on at debug
// level, errors as such, and lets nothing end the process.
//
// GoBGP calls it with locks held: it must not call the server.
type tap struct {
	log *slog.Logger
	id  desired.Identity

	mu     sync.Mutex
	detail string // what was said since the last change of state
	last   string // why the session is down
	deaf   bool   // the server takes no connections any more
}

func newTap(log *slog.Logger, id desired.Identity) *tap {
	return &tap{log: log, id: id}
}

// reason is why the session is down, in words.
func (t *tap) reason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Panic logs an error: GoBGP's own logger would panic.
func (t *tap) Panic(msg string, fields gobgplog.Fields) { t.pass(slog.LevelError, msg, fields) }

// Fatal logs an error: GoBGP's own logger would exit.
func (t *tap) Fatal(msg string, fields gobgplog.Fields) { t.pass(slog.LevelError, msg, fields) }

// Error logs an error.
func (t *tap) Error(msg string, fields gobgplog.Fields) { t.pass(slog.LevelError, msg, fields) }

// Warn listens, and logs at debug level: sessions log their own changes.
func (t *tap) Warn(msg string, fields gobgplog.Fields) {
	switch msg {
	case "hold timer expired":
		t.note(t.silentWords())
	case "sent notification":
		t.note(t.sentWords(fields))
	case "received notification":
		t.note(fmt.Sprintf("%v ended the session: %s", t.id.PeerAddress, notificationWords(fields)))
	case "Failed to AcceptTCP":
		t.lostHearing()
	}
	t.pass(slog.LevelDebug, msg, fields)
}

// Info logs at debug level.
func (t *tap) Info(msg string, fields gobgplog.Fields) { t.pass(slog.LevelDebug, msg, fields) }

// Debug listens, and logs at debug level.
func (t *tap) Debug(msg string, fields gobgplog.Fields) {
	if msg == "state changed" {
		t.stateChanged(fields)
	}
	t.pass(slog.LevelDebug, msg, fields)
}

// SetLevel does nothing: the level is that of the slog handler.
func (t *tap) SetLevel(gobgplog.LogLevel) {}

// GetLevel is debug, since changes of state are told at no other level.
func (t *tap) GetLevel() gobgplog.LogLevel { return gobgplog.DebugLevel }

func (t *tap) pass(level slog.Level, msg string, fields gobgplog.Fields) {
	if !t.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(fields))
	for key, value := range fields {
		attrs = append(attrs, slog.String(key, fmt.Sprint(value)))
	}
	t.log.LogAttrs(context.Background(), level, "GoBGP says", append(attrs, slog.String("message", msg))...)
}

// lostHearing notes that the server's listener has ended, as it does, for good, at the first connection that it cannot
// take, such as while the process has all the files that it may have.
func (t *tap) lostHearing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deaf = true
}

func (t *tap) isDeaf() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deaf
}

func (t *tap) note(detail string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.detail = detail
}

// stateChanged settles the reason when the session falls back to Idle: what was
// said on the way, or else what the state machine gives.
func (t *tap) stateChanged(fields gobgplog.Fields) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fields["new"] == packet.BGP_FSM_IDLE.String() && fields["old"] != packet.BGP_FSM_IDLE.String() {
		t.last = t.detail
		if t.last == "" {
			t.last = t.reasonWords(fmt.Sprint(fields["reason"]))
		}
	}
	t.detail = ""
}

func (t *tap) reasonWords(reason string) string {
	switch reason {
	case "read-failed", "graceful-restart":
		return fmt.Sprintf("%v closed the connection without giving a reason", t.id.PeerAddress)
	case "write-failed":
		return fmt.Sprintf("sending to %v failed", t.id.PeerAddress)
	case "invalid-msg":
		return fmt.Sprintf("%v refused to open the session: %s", t.id.PeerAddress, t.hint())
	default:
		return reason
	}
}

// hint is what to look at where a router refuses the session.
func (t *tap) hint() string {
	return fmt.Sprintf("compare the AS numbers (ours %d, theirs %s), the router ID (%v) and the neighbor's configuration there",
		t.id.MyASN, theirs(t.id), t.id.RouterID)
}

// refusedWords tell why a router refused the session, by the body of its NOTIFICATION. One that ceases finds no fault
// with what we say.
func (t *tap) refusedWords(body []byte) string {
	code, subcode, data := body[0], body[1], body[2:]
	words := fmt.Sprintf("%v refused to open the session: %s", t.id.PeerAddress, errorWords(code, subcode))
	if code != packet.BGP_ERROR_CEASE {
		return words + ": " + t.hint()
	}
	if said := communicated(subcode, data); said != "" {
		words += fmt.Sprintf(" (%q)", said)
	}
	return words
}

// communicated is what the router's administrator says (RFC 9003), if anything.
func communicated(subcode uint8, data []byte) string {
	if subcode != packet.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN && subcode != packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET {
		return ""
	}
	said, _, _ := cut(data, 1)
	return string(said)
}

// theirs is the router's AS number as configured.
func theirs(id desired.Identity) string {
	if id.PeerASN == 0 {
		return "any other"
	}
	return strconv.FormatUint(uint64(id.PeerASN), 10)
}

// sentWords tell why this side ended a session or refused to open it.
func (t *tap) sentWords(fields gobgplog.Fields) string {
	e, ok := fields["Data"].(*packet.MessageError)
	code, _ := fields["Code"].(uint8)
	switch {
	case code == packet.BGP_ERROR_HOLD_TIMER_EXPIRED || ok && e.TypeCode == packet.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return t.silentWords()
	case ok && e.TypeCode == packet.BGP_ERROR_OPEN_MESSAGE_ERROR && e.SubTypeCode == packet.BGP_ERROR_SUB_BAD_PEER_AS:
		return t.wrongAS(e.Message)
	case ok:
		return fmt.Sprintf("what %v sent was refused: %s: %s", t.id.PeerAddress, errorWords(e.TypeCode, e.SubTypeCode), e.Message)
	default:
		return "the session was ended here: " + notificationWords(fields)
	}
}

func (t *tap) silentWords() string {
	return fmt.Sprintf("the hold time passed without a message from %v", t.id.PeerAddress)
}

// wrongAS says so by the field that the user wrote. Which number the router sent is in GoBGP's
// words; "another" stands for it if these change.
func (t *tap) wrongAS(words string) string {
	sent := "another"
	if found := gobgpWrongAS.FindStringSubmatch(words); found != nil {
		sent = found[1]
	}
	if t.id.DynamicASN {
		return fmt.Sprintf("%v opens the session with AS number %s in place of ours, %d, and dynamicASN is internal: set it to external, or correct the AS of the router", t.id.PeerAddress, sent, t.id.MyASN)
	}
	return fmt.Sprintf("%v opens the session with AS number %s in place of %d: correct peerASN, or the AS of the router", t.id.PeerAddress, sent, t.id.PeerASN)
}

// gobgpWrongAS is how GoBGP says that a router's AS number is another one.
var gobgpWrongAS = regexp.MustCompile(`^as number mismatch expected [0-9]+, received ([0-9]+)$`)

func notificationWords(fields gobgplog.Fields) string {
	code, _ := fields["Code"].(uint8)
	subcode, _ := fields["Subcode"].(uint8)
	words := errorWords(code, subcode)
	if said, _ := fields["Communicated-Reason"].(string); said != "" {
		words += fmt.Sprintf(" (%q)", said)
	}
	return words
}

// gobgpError is how GoBGP writes the codes of an error.
var gobgpError = regexp.MustCompile(`^code [0-9]+\((.+)\) subcode [0-9]+\((.+)\)$`)

// errorWords are the codes of a NOTIFICATION (RFC 4271, 4.5) as people know them, such as
// "cease (administrative shutdown)"; a number stands for what has no name.
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
