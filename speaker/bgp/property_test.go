package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestAnyStateToAnyState applies one random wanted state after the other, and
// asks the routers whether they have exactly that.
func TestAnyStateToAnyState(t *testing.T) { anyStateToAnyState(t, defaultBurst) }

// TestAnyStateToAnyStateByAndBy does so with states that are too much at once.
func TestAnyStateToAnyStateByAndBy(t *testing.T) { anyStateToAnyState(t, 1) }

func anyStateToAnyState(t *testing.T, burst int) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	s.burst = burst
	peers := map[string]*peer{}
	for i, name := range []string{"a", "b", "c"} {
		peers[name] = startPeer(t, fmt.Sprintf("127.0.0.%d:0", 21+i), nil)
	}
	pool := []string{
		"192.0.2.0/24", vip, vip2, "198.51.100.0/25", "203.0.113.9/32",
		"2001:db8:a::/64", vip6, "2001:db8:b::/48",
	}
	attrs := rapid.Custom(func(t *rapid.T) desired.RouteAttrs {
		attrs := desired.RouteAttrs{
			Communities: rapid.SliceOfN(rapid.Uint32Range(1, 3), 0, 2).Draw(t, "communities"),
			Prepend:     rapid.IntRange(0, 2).Draw(t, "prepend"),
			Bandwidth:   rapid.Uint32Range(0, 2).Draw(t, "bandwidth"),
		}
		if med := rapid.Uint32Range(0, 2).Draw(t, "MED"); med > 0 {
			attrs.MED = &med
		}
		if n := rapid.Uint32Range(0, 2).Draw(t, "large community"); n > 0 {
			attrs.LargeCommunities = []view.LargeCommunity{{Global: 1, Local1: 2, Local2: n}}
		}
		return attrs
	})
	// Sessions and identities change seldom: each change costs a new session.
	seldom := rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 149).Draw(t, "of 150") == 57 })
	want := map[string]desired.Session{}
	for name, p := range peers {
		want[name] = desired.Session{Identity: p.identity()}
	}
	rapid.Check(t, func(rt *rapid.T) {
		next := map[string]desired.Session{}
		for name, p := range peers {
			id := want[name].Identity
			if _, ok := want[name]; !ok {
				id = p.identity()
			}
			switch {
			case seldom.Draw(rt, "remove "+name):
				continue
			case seldom.Draw(rt, "hold time of "+name):
				id.HoldTime += time.Second
			case seldom.Draw(rt, "graceful restart of "+name):
				id.GracefulRestart = !id.GracefulRestart
			}
			id.NextHop6 = rapid.SampledFrom([]netip.Addr{netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::3")}).Draw(rt, "next hop")
			session := desired.Session{Identity: id, Routes: map[netip.Prefix]desired.RouteAttrs{}}
			for _, prefix := range rapid.SliceOfDistinct(rapid.SampledFrom(pool), rapid.ID[string]).Draw(rt, "prefixes") {
				session.Routes[netip.MustParsePrefix(prefix)] = attrs.Draw(rt, prefix)
			}
			next[name] = since(want[name], session)
		}
		want = next
		mustApply(t, s, want)
		if rapid.Bool().Draw(rt, "twice") {
			mustApply(t, s, want)
		}
		for name, p := range peers {
			waitFor(t, fmt.Sprintf("%s has %v", name, want[name].Routes), func() bool { return p.hasExactly(want[name]) })
		}
	})
}

// since numbers a session and says what is another than before, as the agent does.
func since(before, session desired.Session) desired.Session {
	session.Revision, session.Since, session.Changed = before.Revision+1, before.Revision, map[netip.Prefix]struct{}{}
	for _, routes := range []map[netip.Prefix]desired.RouteAttrs{before.Routes, session.Routes} {
		for prefix := range routes {
			one, had := before.Routes[prefix]
			if other, has := session.Routes[prefix]; had != has || !one.Equal(other) {
				session.Changed[prefix] = struct{}{}
			}
		}
	}
	return session
}

// hasExactly compares the router's table with what a session wants.
func (p *peer) hasExactly(want desired.Session) bool {
	have := p.routes()
	if _, up := p.sessions(); up != want.Identity.PeerAddress.IsValid() || len(have) != len(want.Routes) {
		return false
	}
	for prefix, attrs := range want.Routes {
		nextHop := netip.MustParseAddr("127.0.0.1")
		if prefix.Addr().Is6() {
			nextHop = want.Identity.NextHop6
		}
		got, ok := have[prefix]
		if !ok || got.nextHop != nextHop || got.bandwidth != float32(attrs.Bandwidth)*125_000 || !slices.Equal(got.communities, attrs.Communities) || len(got.asPath) != 1+attrs.Prepend ||
			(got.med == -1) != (attrs.MED == nil) || attrs.MED != nil && got.med != int(*attrs.MED) || len(got.large) != len(attrs.LargeCommunities) {
			return false
		}
		for i, large := range attrs.LargeCommunities {
			if got.large[i] != fmt.Sprintf("%d:%d:%d", large.Global, large.Local1, large.Local2) {
				return false
			}
		}
	}
	return true
}
