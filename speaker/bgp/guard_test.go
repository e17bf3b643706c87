package bgp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

// guarded is the identity of the node that the guard of these tests is for. It takes any AS but its own.
var guarded = desired.Identity{MyASN: nodeASN, RouterID: netip.MustParseAddr("192.0.2.1"), HoldTime: longHold, KeepaliveTime: longHold / 3}

// passed is all that the guard makes of what a router sends, and why it ends that, if it does.
func passed(sent []byte) (seen [][]byte, refused *refusal) {
	g := guard{id: guarded}
	from, buffer := bytes.NewReader(sent), make([]byte, longest)
	for {
		whole, err := readMessage(from, buffer)
		if refused, ok := errors.AsType[*refusal](err); ok || err != nil {
			return seen, refused
		}
		some, refused := g.take(whole)
		if refused != nil {
			return seen, refused
		}
		if some != nil {
			seen = append(seen, some)
		}
	}
}

// openWith is an OPEN with these optional parameters.
func openWith(parameters ...byte) []byte {
	body := []byte{4, 0xfd, 0xe7, 0, 90, 192, 0, 2, 255, byte(len(parameters))}
	return message(packet.BGP_MSG_OPEN, append(body, parameters...)...)
}

var (
	keepalive = message(packet.BGP_MSG_KEEPALIVE)
	started   = slices.Concat(openWith(), keepalive)
)

func TestWhatIsRefused(t *testing.T) {
	header := func(length uint16, kind byte) []byte {
		return append([]byte(marker), byte(length>>8), byte(length), kind)
	}
	for name, c := range map[string]struct {
		sent          []byte
		code, subcode uint8
		data          []byte
	}{
		"no marker":                       {append(make([]byte, 16), 0, 19, 4), 1, 1, nil},
		"one bit of the marker":           {append(append(bytes.Repeat([]byte{0xff}, 15), 0xfe), 0, 19, 4), 1, 1, nil},
		"shorter than a header":           {header(18, 4), 1, 2, []byte{0, 18}},
		"an OPEN that is too short":       {header(28, 1), 1, 2, []byte{0, 28}},
		"an UPDATE that is too short":     {header(22, 2), 1, 2, []byte{0, 22}},
		"a NOTIFICATION too short":        {header(20, 3), 1, 2, []byte{0, 20}},
		"a KEEPALIVE with a body":         {header(20, 4), 1, 2, []byte{0, 20}},
		"a ROUTE-REFRESH that is short":   {header(22, 5), 1, 2, []byte{0, 22}},
		"longer than 4096":                {header(4097, 2), 1, 2, []byte{0x10, 1}},
		"the unknown type 0":              {header(19, 0), 1, 3, []byte{0}},
		"the unknown type 6":              {header(19, 6), 1, 3, []byte{6}},
		"the unknown type 77":             {header(4096, 77), 1, 3, []byte{77}},
		"KEEPALIVE before OPEN":           {keepalive, 5, 1, []byte{4}},
		"UPDATE before OPEN":              {message(2, 0, 0, 0, 0), 5, 1, []byte{2}},
		"UPDATE before KEEPALIVE":         {append(openWith(), message(2, 0, 0, 0, 0)...), 5, 2, []byte{2}},
		"OPEN twice":                      {append(openWith(), openWith()...), 5, 2, []byte{1}},
		"OPEN in a session":               {append(slices.Clone(started), openWith()...), 5, 3, []byte{1}},
		"withdrawn beyond the end":        {append(slices.Clone(started), message(2, 0, 9, 0, 0)...), 3, 1, nil},
		"attributes beyond the end":       {append(slices.Clone(started), message(2, 0, 0, 0, 1)...), 3, 1, nil},
		"parameters beyond the end":       {message(1, 4, 0, 1, 0, 90, 1, 2, 3, 4, 5, 2, 0), 2, 0, nil},
		"something after the parameters":  {message(1, 4, 0, 1, 0, 90, 1, 2, 3, 4, 0, 2, 0), 2, 0, nil},
		"half a parameter":                {openWith(2), 2, 0, nil},
		"a parameter beyond the end":      {openWith(2, 3, 1, 4), 2, 0, nil},
		"the parameter of old passwords":  {openWith(1, 1, 0), 2, 4, nil},
		"half a capability":               {openWith(2, 1, 65), 2, 0, nil},
		"a capability beyond the end":     {openWith(2, 3, 65, 254, 0), 2, 0, nil},
		"an AS number of three octets":    {openWith(2, 5, 65, 3, 1, 2, 3), 2, 0, nil},
		"a family of five":                {openWith(2, 7, 1, 5, 0, 1, 0, 1, 0), 2, 0, nil},
		"a restart time of one":           {openWith(2, 3, 64, 1, 0), 2, 0, nil},
		"next hops that are cut short":    {openWith(2, 7, 5, 5, 0, 1, 0, 1, 0), 2, 0, nil},
		"extended parameters that end":    {message(1, 4, 0, 1, 0, 90, 1, 2, 3, 4, 255, 255, 0, 9, 2, 0, 2, 2, 0), 2, 0, nil},
		"no hold time":                    {message(1, 4, 0, 1, 0, 0, 1, 2, 3, 4, 0), 2, 6, nil},
		"a hold time that is too short":   {message(1, 4, 0, 1, 0, 2, 1, 2, 3, 4, 0), 2, 6, nil},
		"another version":                 {message(1, 3, 0, 1, 0, 90, 1, 2, 3, 4, 9, 9), 2, 1, []byte{0, 4}},
		"no identifier":                   {message(1, 4, 0, 1, 0, 90, 0, 0, 0, 0, 0), 2, 3, nil},
		"our identifier, and our AS":      {message(1, 4, 0xfc, 0, 0, 90, 192, 0, 2, 1, 0), 2, 3, nil},
		"our AS, and we want another":     {message(1, 4, 0xfc, 0, 0, 90, 1, 2, 3, 4, 0), 2, 2, nil},
		"our AS, by the capability":       {openWith(2, 6, 65, 4, 0, 0, 0xfc, 0), 2, 2, nil},
		"an extended parameter cut short": {message(1, 4, 0, 1, 0, 90, 1, 2, 3, 4, 255, 255, 0, 2, 2, 0), 2, 0, nil},
	} {
		_, refused := passed(c.sent)
		if refused == nil {
			t.Errorf("%s is not refused", name)
			continue
		}
		if refused.code != c.code || refused.subcode != c.subcode || !bytes.Equal(refused.data, c.data) {
			t.Errorf("%s: %v, data %v; want %d/%d, %v", name, refused, refused.data, c.code, c.subcode, c.data)
		}
		if told, err := packet.ParseBGPMessage(refused.notification()); err != nil || told.Body.(*packet.BGPNotification).ErrorSubcode != c.subcode {
			t.Errorf("%s: the NOTIFICATION is %+v, %v", name, told, err)
		}
	}
}

func TestWhatIsLetThrough(t *testing.T) {
	refresh := func(body ...byte) []byte { return append(slices.Clone(started), message(5, body...)...) }
	bare := [][]byte{openWith(), keepalive}
	end := message(3, 6, 2, 3, 'b', 'y', 'e')
	for name, c := range map[string]struct {
		sent []byte
		want [][]byte
	}{
		"the least":                 {started, bare},
		"a farewell":                {end, [][]byte{end}},
		"a farewell in a session":   {append(slices.Clone(started), end...), append(slices.Clone(bare), end)},
		"a route":                   {append(slices.Clone(started), message(2, 0, 0, 0, 0, 24, 20, 0, 0)...), append(slices.Clone(bare), keepalive)},
		"a NEXT_HOP of no octets":   {append(slices.Clone(started), message(2, 0, 0, 0, 3, 0x40, 3, 0)...), append(slices.Clone(bare), keepalive)}, // GO-2026-4736
		"a NEXT_HOP of 255 octets":  {append(slices.Clone(started), message(2, append([]byte{0, 0, 1, 2, 0x40, 3, 255}, make([]byte, 255)...)...)...), append(slices.Clone(bare), keepalive)},
		"routes wanted again":       {refresh(0, 1, 0, 1), append(slices.Clone(bare), message(5, 0, 1, 0, 1))},
		"those of IPv6":             {refresh(0, 2, 0, 1), append(slices.Clone(bare), message(5, 0, 2, 0, 1))},
		"those of another family":   {refresh(0, 25, 0, 70), bare},
		"the begin of a refresh":    {refresh(0, 1, 1, 1), bare},
		"a filter for routes":       {refresh(0, 1, 0, 1, 1, 64, 0, 0), bare},
		"capabilities unknown here": {openWith(2, 4, 70, 0, 99, 0, 2, 2, 69, 0), [][]byte{openWith()}},
		"each that matters": {
			openWith(
				2, 12, 1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 9, 1, // the octet between is reserved
				2, 14, 65, 4, 0, 0, 0xfd, 0xe7, 64, 6, 0x80, 120, 0, 1, 1, 0x80,
				2, 16, 5, 12, 0, 1, 0, 128, 0, 2, 0, 1, 0, 1, 0, 2, 2, 0,
			),
			[][]byte{openWith(2, 32, 1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1, 65, 4, 0, 0, 0xfd, 0xe7, 2, 0, 5, 6, 0, 1, 0, 1, 0, 2, 64, 2, 0x80, 120)},
		},
		"families of others, which are not none": {
			openWith(2, 18, 1, 4, 0, 25, 0, 70, 1, 4, 0, 1, 0, 128, 1, 4, 0, 25, 0, 70),
			[][]byte{openWith(2, 6, 1, 4, 0, 25, 0, 70)},
		},
		"parameters of two octets' length": {
			message(1, 4, 0xfd, 0xe7, 0, 90, 192, 0, 2, 255, 255, 255, 0, 9, 2, 0, 6, 1, 4, 0, 1, 0, 1),
			[][]byte{openWith(2, 6, 1, 4, 0, 1, 0, 1)},
		},
	} {
		seen, refused := passed(c.sent)
		if refused != nil || !slices.EqualFunc(seen, c.want, bytes.Equal) {
			t.Errorf("%s: %v, %v; want %v", name, seen, refused, c.want)
		}
	}
}

// FuzzGuard holds that GoBGP reads all that the guard lets through, and that this is no more
// than what came.
func FuzzGuard(f *testing.F) {
	p := &peer{asn: routerASN, families: []packet.RouteFamily{packet.RF_IPv4_UC, packet.RF_IPv6_UC}, restart: true}
	open, err := p.open().Serialize()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Concat(open, keepalive, message(2, 0, 0, 0, 0), message(5, 0, 1, 0, 1), message(3, 6, 2)))
	f.Add(message(77))
	f.Add(openWith(2, 255, 64, 254, 0))
	f.Add(message(1, 4, 0xfd, 0xe7, 0, 90, 192, 0, 2, 255, 255, 255, 0, 9, 2, 0, 6, 1, 4, 0, 1, 0, 1))
	f.Fuzz(func(t *testing.T, sent []byte) {
		seen, refused := passed(sent)
		if most := len(sent) / headerLength; len(seen) > most {
			t.Errorf("%d messages of %d octets", len(seen), len(sent))
		}
		for i, whole := range seen {
			got, err := packet.ParseBGPMessage(whole)
			if err != nil {
				t.Fatalf("%v: %v", whole, err)
			}
			switch body := got.Body.(type) {
			case *packet.BGPOpen:
				if again, err := got.Serialize(); i != 0 || err != nil || !bytes.Equal(again, whole) {
					t.Errorf("message %d, %v: GoBGP renders %v, %v", i, whole, again, err)
				}
				if _, err := packet.ValidateOpenMsg(body, 0, nodeASN, []byte{192, 0, 2, 1}); err != nil {
					t.Errorf("GoBGP refuses the OPEN %v, which is let through: %v", whole, err)
				}
			case *packet.BGPKeepAlive, *packet.BGPNotification, *packet.BGPRouteRefresh:
			default:
				t.Errorf("%v is let through", whole)
			}
		}
		if refused != nil {
			if _, err := readMessage(bytes.NewReader(refused.notification()), make([]byte, longest)); err != nil || refused.Error() == "" {
				t.Errorf("%v: %v", refused, err)
			}
		}
	})
}

// TestNoBytesOfARouterEndTheSpeaker has many routers send what ends a process that has GoBGP
// read it, and more that has no place, at each time of a session. Each is told why, and
// nobody else notices.
func TestNoBytesOfARouterEndTheSpeaker(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	good := startPeer(t, "127.0.0.31:0", nil)
	want := map[string]desired.Session{"good": {Identity: good.identity(), Routes: prefixes(vip)}}
	begins := map[string]func(*peer) []byte{
		"first":     func(*peer) []byte { return nil },
		"after its": func(p *peer) []byte { raw, _ := p.open().Serialize(); return raw },
		"up":        nil,
	}
	messages := map[string][]byte{
		"unknown":  message(77),
		"attached": message(6, make([]byte, 4000)...),
		"cut":      message(2, 0xff, 0xff, 0xff, 0xff),
		"again":    openWith(2, 253, 65, 251),
	}
	bad, n := map[string]*peer{}, 0
	for when, before := range begins {
		for name, raw := range messages {
			n++
			p := startPeer(t, fmt.Sprintf("127.0.1.%d:0", n), func(p *peer) {
				if before != nil {
					p.greeting = append(before(p), raw...)
				}
			})
			bad[when+" "+name] = p
			want[when+" "+name] = desired.Session{Identity: p.identity(), Routes: prefixes(vip)}
		}
	}
	mustApply(t, s, want)
	good.waitFor(t, vip)
	for name, p := range bad {
		if raw, up := strings.CutPrefix(name, "up "); up {
			p.waitFor(t, vip)
			if _, err := p.conn().Write(messages[raw]); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, name+" is told, here and there", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			state := s.States()[name]
			told := p.notification
			return told != nil && strings.Contains(state.LastError+state.Overcome, "was refused: "+errorWords(told.ErrorCode, told.ErrorSubcode)+": ")
		})
	}
	unharmed(t, s, want, good)
}

// TestARouterThatAlwaysWantsAllAgain asks for all routes far more often than is of use: what
// is sent for it is bounded, and each asking is still answered by what is sent after it.
func TestARouterThatAlwaysWantsAllAgain(t *testing.T) {
	if runsApart(t) {
		return
	}
	bad := startPeer(t, "127.0.0.32:0", nil)
	beside(t, bad, func(s *Speaker) {
		before := s.States()["bad"].Messages.Sent.Update
		raw := bytes.Repeat(message(5, 0, 1, 0, 1), 1000)
		if _, err := io.Copy(bad.conn(), bytes.NewReader(raw)); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "it is answered twice", func() bool { return s.States()["bad"].Messages.Sent.Update >= before+2 })
		if sent := s.States()["bad"].Messages.Sent.Update - before; sent > 100 {
			t.Errorf("%d messages for 1000 that came in a moment", sent)
		}
	})
}

// TestARouterThatWantsAllAgainIsHeard asks for all routes many times, and goes on saying that it is there: that is
// not overlooked meanwhile.
func TestARouterThatWantsAllAgainIsHeard(t *testing.T) {
	if runsApart(t) {
		return
	}
	s, p := newSpeaker(t), startPeer(t, "127.0.0.11:0", nil)
	id := p.identity()
	id.HoldTime, id.KeepaliveTime = 3*time.Second, time.Second
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	p.waitFor(t, vip)
	before := s.States()["tor"].Messages
	if _, err := p.conn().Write(bytes.Repeat(message(5, 0, 1, 0, 1), 10)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it is answered", func() bool { return s.States()["tor"].Messages.Sent.Update > before.Sent.Update })
	waitFor(t, "it has said for two hold times that it is there", func() bool {
		return s.States()["tor"].Messages.Received.Keepalive >= before.Received.Keepalive+6
	})
	if established, up := p.sessions(); established != 1 || !up {
		t.Errorf("the session came up %d times, up %v: %v", established, up, s.States()["tor"].Overcome)
	}
}

// TestARouterWithoutAHoldTimeIsToldSo: it is refused in words, and its session does not come up and end for ever.
func TestARouterWithoutAHoldTimeIsToldSo(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	p := startPeer(t, "127.0.0.11:0", func(p *peer) {
		p.greeting = message(packet.BGP_MSG_OPEN, 4, 0xfd, 0xe7, 0, 0, 192, 0, 2, 255, 0)
	})
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: p.identity(), Routes: prefixes(vip)}})
	waitFor(t, "both sides are told", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(s.States()["tor"].LastError, "set one of 3 seconds or more at the router") &&
			p.notification != nil && p.notification.ErrorSubcode == packet.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME
	})
	if state := s.States()["tor"]; state.Established != 0 {
		t.Errorf("a session without a hold time: %+v", state)
	}
}
