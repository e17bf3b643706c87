package bgp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

// conn is the connection of the session that is up.
func (p *peer) conn() net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// brisk is the identity of a session with little time between keepalives.
func brisk(p *peer) desired.Identity {
	id := p.identity()
	id.HoldTime, id.KeepaliveTime = 9*time.Second, 3*time.Second
	return id
}

// beside runs a router that behaves beside one that does not, and holds that its session
// stays, and that a new route still reaches it, while the other does its worst.
func beside(t *testing.T, bad *peer, worst func(s *Speaker)) {
	t.Helper()
	s := newSpeaker(t)
	good := startPeer(t, "127.0.0.31:0", nil)
	want := map[string]desired.Session{
		"good": {Identity: good.identity(), Routes: prefixes(vip)},
		"bad":  {Identity: brisk(bad), Routes: prefixes(vip)},
	}
	mustApply(t, s, want)
	good.waitFor(t, vip)
	waitFor(t, "the other session is up", func() bool { n, _ := bad.sessions(); return n > 0 })
	worst(s)
	unharmed(t, s, want, good)
}

// unharmed fails the test unless the session "good" has never been down and still takes routes.
func unharmed(t *testing.T, s *Speaker, want map[string]desired.Session, good *peer) {
	t.Helper()
	want["good"].Routes[netip.MustParsePrefix(vip2)] = desired.RouteAttrs{}
	mustApply(t, s, want)
	good.waitFor(t, vip, vip2)
	if established, up := good.sessions(); established != 1 || !up {
		t.Errorf("the good session came up %d times, up %v", established, up)
	}
}

// TestAFullTableIsNotTakenOver has a router send 100,000 routes. None is taken over, and
// what is kept of them is bounded. It is let go with the session.
func TestAFullTableIsNotTakenOver(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	const routes, inOne = 100_000, 200
	bad := startPeer(t, "127.0.0.32:0", nil)
	heap := func() int64 { // what earlier tests left may go meanwhile
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	beside(t, bad, func(s *Speaker) {
		conn := bad.conn()
		for first := 0; first < routes; first += inOne {
			var nlri []*packet.IPAddrPrefix
			for i := first; i < first+inOne; i++ {
				nlri = append(nlri, packet.NewIPAddrPrefix(24, fmt.Sprintf("%d.%d.%d.0", 20+i>>16, i>>8&0xff, i&0xff)))
			}
			send(conn, packet.NewBGPUpdateMessage(nil, []packet.PathAttributeInterface{
				packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP),
				packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{routerASN, uint32(first + 1)})}),
				packet.NewPathAttributeNextHop("127.0.0.32"),
			}, nlri))
		}
		waitFor(t, "all are received", func() bool { return s.States()["bad"].Messages.Received.Update >= routes/inOne })
		if state := s.States()["bad"]; state.Phase != Established {
			t.Errorf("the session ended: %+v", state)
		}
		kept := heap() - before
		t.Logf("%d routes of one router keep %d KiB", routes, kept>>10)
		if most := int64(128 << 20); kept > most {
			t.Errorf("%d bytes are kept of %d routes, want at most %d", kept, routes, most)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for prefix := range s.sessions["bad"].inPlace().Announced {
			if prefix != netip.MustParsePrefix(vip) {
				t.Errorf("%s is announced", prefix)
			}
		}
	})
	if _, got := bad.routes()[netip.MustParsePrefix("20.0.0.0/24")]; got {
		t.Error("a route of the router came back to it")
	}
}

func TestARouterThatFlaps(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	bad := startPeer(t, "127.0.0.32:0", nil)
	beside(t, bad, func(s *Speaker) {
		waitFor(t, "the session is up here", func() bool { return s.States()["bad"].Phase == Established })
		before := s.States()["bad"].Established
		for range 3 { // each as soon as the session is up for the router
			was, _ := bad.sessions()
			bad.drop()
			waitFor(t, "the session comes back", func() bool { n, up := bad.sessions(); return n > was && up })
		}
		waitFor(t, "the session is up again", func() bool {
			state := s.States()["bad"]
			return state.Phase == Established && state.Established > before
		})
	})
}

// TestMalformedMessages sends what is no BGP, or not in this place, on a session that is
// up. It ends with words and comes back, or goes on where RFC 7606 says so.
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	message := func(kind byte, body ...byte) []byte {
		m := make([]byte, 19, 19+len(body))
		for i := range 16 {
			m[i] = 0xff
		}
		binary.BigEndian.PutUint16(m[16:], uint16(19+len(body)))
		m[18] = kind
		return append(m, body...)
	}
	for name, raw := range map[string][]byte{
		"no marker":                  append(make([]byte, 16), 0, 19, 4),
		"shorter than its header":    append(message(4)[:16], 0, 5, 4),
		"longer than allowed":        append(message(4)[:16], 0xff, 0xff, 4),
		"keepalive with a body":      message(4, 1, 2, 3),
		"update cut short":           message(2, 0, 9),
		"attributes beyond the end":  message(2, 0, 0, 0xff, 0xff),
		"a prefix of 99 bits":        message(2, 0, 0, 0, 0, 99, 1, 2, 3),
		"an open on an open session": message(1, 4, 0xfd, 0xe7, 0, 90, 192, 0, 2, 255, 0),
		"noise":                      []byte(strings.Repeat("noise", 100)),
	} {
		t.Run(name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			bad := startPeer(t, "127.0.0.32:0", nil)
			beside(t, bad, func(s *Speaker) {
				was, _ := bad.sessions()
				if _, err := bad.conn().Write(raw); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "the session goes on or comes back", func() bool {
					n, up := bad.sessions()
					bad.mu.Lock()
					refused := bad.notification != nil
					bad.mu.Unlock()
					return up && (n > was || !refused && s.States()["bad"].Messages.Received.Total >= 4)
				})
				bad.waitFor(t, vip)
			})
		})
	}
}

// TestAHalfOpenConnection has a router that was switched off without a word: its side of
// the connection is gone, ours finds out by the hold time.
func TestAHalfOpenConnection(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	bad := startPeer(t, "127.0.0.32:0", func(p *peer) { p.mute = true })
	s := newSpeaker(t)
	id := bad.identity()
	id.HoldTime, id.KeepaliveTime = 3*time.Second, time.Second
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	bad.waitFor(t, vip)
	waitFor(t, "the hold time passes", func() bool {
		state := s.States()["tor"] // the session comes back soon, and remembers
		return strings.Contains(state.LastError+state.Overcome, "hold timer expired")
	})
	waitFor(t, "a second session", func() bool { n, _ := bad.sessions(); return n > 1 })
}
