package bgp

import (
	"log/slog"
	"net/netip"
	"testing"

	gobgplog "github.com/osrg/gobgp/v3/pkg/log"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestErrorsAreToldInWords: what a NOTIFICATION says is told by name where it has one, and
// by number where it has none.
func TestErrorsAreToldInWords(t *testing.T) {
	t.Parallel()
	for codes, want := range map[[2]uint8]string{
		{packet.BGP_ERROR_CEASE, packet.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN}: "cease (administrative shutdown)",
		{packet.BGP_ERROR_CEASE, 0}:                                             "cease",
		{packet.BGP_ERROR_CEASE, 200}:                                           "cease (subcode 200)",
		{packet.BGP_ERROR_HOLD_TIMER_EXPIRED, 0}:                                "hold timer expired",
		{packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_BAD_PEER_AS}: "open (bad peer as)",
		{99, 3}: "error code 99, subcode 3",
	} {
		if got := errorWords(codes[0], codes[1]); got != want {
			t.Errorf("%v: %q, want %q", codes, got, want)
		}
	}
}

// TestASilentRouterIsToldAsSuch: GoBGP says that the hold time has passed and, where both
// sides do graceful restart, that it has sent a NOTIFICATION; both mean the same.
func TestASilentRouterIsToldAsSuch(t *testing.T) {
	t.Parallel()
	router := desired.Identity{PeerAddress: netip.MustParseAddr("192.0.2.1")}
	const want = "the hold time passed without a message from 192.0.2.1"
	for name, fields := range map[string]gobgplog.Fields{
		"an established session": {"Code": uint8(packet.BGP_ERROR_HOLD_TIMER_EXPIRED), "Subcode": uint8(0), "Data": []byte{}},
		"a session that opens":   {"Data": packet.NewMessageError(packet.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil, "hold timer expired")},
	} {
		heard := newTap(slog.New(slog.DiscardHandler), router)
		heard.Warn("hold timer expired", gobgplog.Fields{})
		heard.Warn("sent notification", fields)
		heard.Debug("state changed", gobgplog.Fields{"old": packet.BGP_FSM_ESTABLISHED.String(), "new": packet.BGP_FSM_IDLE.String()})
		if got := heard.reason(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestWhyARouterRefusesIsTold: what its NOTIFICATION says, and what to look at where it finds fault with what we say.
func TestWhyARouterRefusesIsTold(t *testing.T) {
	t.Parallel()
	id := desired.Identity{PeerAddress: netip.MustParseAddr("192.0.2.1"), MyASN: 64512, PeerASN: 64999, RouterID: netip.MustParseAddr("192.0.2.2")}
	const hint = ": compare the AS numbers (ours 64512, theirs 64999), the router ID (192.0.2.2) and the neighbor's configuration there"
	refused := newTap(slog.New(slog.DiscardHandler), id)
	for body, want := range map[string]string{
		"\x02\x02\xfd\xe9":        "open (bad peer as)" + hint,
		"\x02\x03":                "open (bad bgp identifier)" + hint,
		"\x06\x05":                "cease (connection rejected)",
		"\x06\x02\x05rack7":       `cease (administrative shutdown) ("rack7")`,
		"\x06\x04\x09too short":   `cease (administrative reset) ("too short")`,
		"\x06\x02\x80half of it?": "cease (administrative shutdown)",
		"\x06\x02":                "cease (administrative shutdown)",
	} {
		if got := refused.refusedWords([]byte(body)); got != "192.0.2.1 refused to open the session: "+want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
}
