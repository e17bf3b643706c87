package bgp

import (
	"net"
	"net/netip"
	"testing"
	"time"

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
