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
