package bgp

import (
	"net/netip"
	"testing"
	"time"

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

// TestWhyASessionEnded: of all that is known the cause is told, not what followed from it.
func TestWhyASessionEnded(t *testing.T) {
	t.Parallel()
	id := desired.Identity{PeerAddress: netip.MustParseAddr("192.0.2.1"), PeerASN: 64999}
	const hold = 9 * time.Second
	up := guard{opened: true, up: true, negotiated: Negotiated{HoldTime: hold}}
	long, just := time.Now().Add(-hold), time.Now()
	ceased := []byte("\x06\x02\x05rack7")
	for want, r := range map[string]*relay{
		"the hold time passed without a message from 192.0.2.1":   {guard: up, heard: long},
		"192.0.2.1 closed the connection without giving a reason": {guard: up, heard: just, closed: true},
		"192.0.2.1 closed the connection and opened no session: it may have no neighbor 192.0.2.11, or one that is shut down or activated for no address family": {heard: just, closed: true},
		"192.0.2.1 ended the session: cease; since then it closes each connection":                                                                               {heard: just, closed: true, parting: "192.0.2.1 ended the session: cease"},
		"sending to 192.0.2.1 failed":                                                                              {guard: up, heard: just},
		`192.0.2.1 ended the session: cease (administrative shutdown) ("rack7")`:                                   {guard: up, heard: just, notified: ceased, closed: true},
		`192.0.2.1 refused to open the session: cease (administrative shutdown) ("rack7")`:                         {heard: just, notified: ceased, closed: true},
		"what 192.0.2.1 sent was refused: header (bad message type): it was 9":                                     {guard: up, heard: long, closed: true, refused: malformedHeader(3, nil, "it was 9")},
		"192.0.2.1 opens the session with AS number 7 in place of 64999: correct peerASN, or the AS of the router": {heard: just, closed: true, refused: &refusal{code: 2, subcode: 2, words: wrongASN(id, 7), sentence: true}},
	} {
		r.id, r.local = id, netip.MustParseAddrPort("192.0.2.11:50000")
		if got := r.reason(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestWhyARouterRefusesIsTold: what its NOTIFICATION says, and what to look at where it finds fault with what we say.
func TestWhyARouterRefusesIsTold(t *testing.T) {
	t.Parallel()
	id := desired.Identity{PeerAddress: netip.MustParseAddr("192.0.2.1"), MyASN: 64512, PeerASN: 64999, RouterID: netip.MustParseAddr("192.0.2.2")}
	const hint = ": compare the AS numbers (ours 64512, theirs 64999), the router ID (192.0.2.2) and the neighbor's configuration there"
	for body, want := range map[string]string{
		"\x02\x02\xfd\xe9":        "open (bad peer as)" + hint,
		"\x02\x03":                "open (bad bgp identifier)" + hint,
		"\x06\x05":                "cease (connection rejected)",
		"\x06\x02\x05rack7":       `cease (administrative shutdown) ("rack7")`,
		"\x06\x04\x09too short":   `cease (administrative reset) ("too short")`,
		"\x06\x02\x80half of it?": "cease (administrative shutdown)",
		"\x06\x02":                "cease (administrative shutdown)",
	} {
		if got := refusedWords(id, []byte(body)); got != "192.0.2.1 refused to open the session: "+want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
}

// TestWhatIsNegotiated: of the shorter hold time, the families that both sides carry, and what else the router's
// OPEN offers.
func TestWhatIsNegotiated(t *testing.T) {
	t.Parallel()
	four, six := []byte{0, 1, 0, 1}, []byte{0, 2, 0, 1}
	id := desired.Identity{PeerAddress: netip.MustParseAddr("192.0.2.1"), HoldTime: 60 * time.Second, KeepaliveTime: 7 * time.Second, GracefulRestart: true}
	alone, unnumbered := id, id
	alone.OneFamily, alone.GracefulRestart = true, false
	unnumbered.Interface = "eth1"
	all := capabilities{families: [][]byte{six, four}, asn: []byte{0, 0, 0, 7}, restart: []byte{0, 0}}
	extended := all
	extended.nextHop6 = true
	for name, c := range map[string]struct {
		id   desired.Identity
		hold time.Duration
		has  capabilities
		want Negotiated
	}{
		"ours is shorter":   {id, 90 * time.Second, all, Negotiated{7, 60 * time.Second, 7 * time.Second, true, true, true, true, false}},
		"theirs is shorter": {id, 10 * time.Second, all, Negotiated{7, 10 * time.Second, 3 * time.Second, true, true, true, true, false}},
		"no capability":     {id, 60 * time.Second, capabilities{}, Negotiated{7, 60 * time.Second, 7 * time.Second, false, false, true, false, false}},
		"IPv6 alone there":  {id, 60 * time.Second, capabilities{families: [][]byte{six}}, Negotiated{7, 60 * time.Second, 7 * time.Second, false, false, false, true, false}},
		"another family":    {id, 60 * time.Second, capabilities{families: [][]byte{{0, 25, 0, 70}}, foreign: true}, Negotiated{7, 60 * time.Second, 7 * time.Second, false, false, false, false, false}},
		"IPv4 alone here":   {alone, 60 * time.Second, all, Negotiated{7, 60 * time.Second, 7 * time.Second, false, true, true, false, false}},
		"no RFC 8950":       {unnumbered, 60 * time.Second, all, Negotiated{7, 60 * time.Second, 7 * time.Second, true, true, false, true, true}},
		"RFC 8950":          {unnumbered, 60 * time.Second, extended, Negotiated{7, 60 * time.Second, 7 * time.Second, true, true, true, true, false}},
	} {
		if got := negotiate(c.id, 7, c.hold, c.has); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
