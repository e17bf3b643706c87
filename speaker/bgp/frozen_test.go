package bgp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// bulkyRoutes are more than the kernels of both sides take in.
func bulkyRoutes() map[netip.Prefix]desired.RouteAttrs {
	var attrs desired.RouteAttrs
	for i := range uint32(200) {
		attrs.LargeCommunities = append(attrs.LargeCommunities, view.LargeCommunity{Global: 64512, Local1: i})
	}
	routes, address := map[netip.Prefix]desired.RouteAttrs{}, netip.MustParseAddr("2001:db8:a::").As16()
	for i := range uint32(5000) {
		binary.BigEndian.PutUint32(address[12:], i)
		routes[netip.PrefixFrom(netip.AddrFrom16(address), 128)] = attrs
	}
	return routes
}

// told is the state of a session, which nobody has to wait for.
func (s *Speaker) told(t *testing.T, name string) State {
	t.Helper()
	states := make(chan map[string]State, 1)
	go func() { states <- s.States() }()
	select {
	case all := <-states:
		return all[name]
	case <-time.After(patience):
		t.Fatalf("after %v it is still not told how the sessions are", patience)
		return State{}
	}
}

// TestARouterThatFreezesHoldsUpNobody has a router neither read nor say anything from some time on, as one that
// hangs, while there is more to be told than both kernels take in.
func TestARouterThatFreezesHoldsUpNobody(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	good := startPeer(t, "127.0.0.31:0", nil)
	bad := startPeer(t, "127.0.0.11:0", func(p *peer) { p.frozen = true })
	id := bad.identity()
	id.HoldTime, id.KeepaliveTime = 3*time.Second, time.Second
	want := map[string]desired.Session{
		"good": {Identity: good.identity(), Routes: prefixes(vip)},
		"bad":  {Identity: id, Routes: bulkyRoutes()},
	}
	mustApply(t, s, want)
	good.waitFor(t, vip)
	waitFor(t, "the session ends with the hold time", func() bool {
		state := s.told(t, "bad")
		return strings.Contains(state.LastError+state.Overcome, "hold time passed")
	})
	unharmed(t, s, want, good)
	waitFor(t, "a second attempt", func() bool { n, _ := bad.sessions(); return n >= 2 })
}

// TestNothingIsLeftOfASessionThatIsCut has BFD end a session while a message to the router is half written.
func TestNothingIsLeftOfASessionThatIsCut(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	bad := startPeer(t, "127.0.0.11:0", func(p *peer) { p.frozen = true })
	mustApply(t, s, map[string]desired.Session{"bad": {Identity: bad.identity(), Routes: bulkyRoutes()}})
	waitFor(t, "a session", func() bool { return s.told(t, "bad").Phase == Established })
	was := uint64(0)
	waitFor(t, "no more is taken", func() bool {
		now := s.told(t, "bad").Messages.Sent.Update
		stuck := now > 0 && now == was
		was = now
		return stuck
	})
	s.mu.Lock()
	session := s.sessions["bad"]
	s.mu.Unlock()
	session.mu.Lock()
	cut := session.relay
	session.mu.Unlock()
	s.Cut("bad", "BFD is down")
	select {
	case <-cut.done:
	case <-time.After(patience):
		t.Errorf("the connection is still there %v after the session was cut", patience)
	}
}

// TestARouterThatTakesLittleIsLeft has a router take an octet now and then: its kernel tells ours that all is
// well, and no message ever arrives.
func TestARouterThatTakesLittleIsLeft(t *testing.T) {
	t.Parallel()
	ours, theirs := connected(t)
	r := newRelay(ours, desired.Identity{}, &traffic{}, false, time.Second)
	go func() {
		octet := make([]byte, 1)
		for _, err := theirs.Read(octet); err == nil; _, err = theirs.Read(octet) {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for r.send(message(2, make([]byte, 4000)...)) {
		}
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatalf("after %v it is still waited for", patience)
	}
	if said := r.reason(); !strings.Contains(said, "has not taken what it was sent for 1s") {
		t.Errorf("the reason is %q", said)
	}
}

// connected are both ends of a connection.
func connected(t *testing.T) (one, other *net.TCPConn) {
	t.Helper()
	socket, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	dialed, err := net.Dial("tcp4", socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	taken, err := socket.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), taken.Close() })
	return dialed.(*net.TCPConn), taken.(*net.TCPConn)
}
