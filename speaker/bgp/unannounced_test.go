package bgp

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// A family that a session cannot carry is told, and is no failure: the agent
// would try again for ever, and log each time.
func TestFamilyThatCannotBeAnnouncedIsToldOnce(t *testing.T) {
	if runsApart(t) {
		return
	}
	var log buffer
	s := newSpeaker(t, slog.NewTextHandler(&log, nil))
	old := startPeer(t, "127.0.0.11:0", func(p *peer) { p.families = p.families[:1] })
	both := startPeer(t, "127.0.0.12:0", nil)
	routes := prefixes(vip, vip6, "2001:db8:a::11/128", "2001:db8:a::9/128")
	want := map[string]desired.Session{
		"old":  {Identity: old.identity(), Routes: routes},
		"both": {Identity: both.identity(), Routes: routes},
	}
	mustApply(t, s, want)
	old.waitFor(t, vip)
	both.waitFor(t, vip, vip6, "2001:db8:a::11/128", "2001:db8:a::9/128")
	up := func() bool {
		states := s.States()
		return states["old"].Phase == Established && states["both"].Phase == Established
	}
	waitFor(t, "both states are Established", up)
	// One router does not speak IPv6; for the other, the node lost its next hop.
	lost := want["both"]
	lost.Identity.NextHop6 = netip.Addr{}
	want["both"] = lost
	check := func() {
		t.Helper()
		mustApply(t, s, want)
		have := s.inPlace()
		for peer, reason := range map[string]error{"old": errFamily, "both": errNoNextHop6} {
			if !maps.EqualFunc(have[peer].Announced, prefixes(vip), desired.RouteAttrs.Equal) {
				t.Errorf("announced to %s: %v", peer, have[peer].Announced)
			}
			state := s.States()[peer]
			if state.Advertised != 1 || !state.IPv4 || state.IPv6 != (peer == "both") {
				t.Errorf("state of %s: %+v", peer, state)
			}
			wanted := []Unannounced{{Family: addr.IPv6, Prefixes: 3, Example: netip.MustParsePrefix("2001:db8:a::9/128"), Err: reason}}
			if !slices.Equal(state.Unannounced, wanted) {
				t.Errorf("not announced to %s: %v, want %v", peer, state.Unannounced, wanted)
			}
		}
	}
	for range 5 {
		check()
	}
	both.waitFor(t, vip)
	// The session comes back as it was: that is no news either.
	was := s.States()["old"].Established
	old.drop()
	waitFor(t, "a new session", func() bool { return s.States()["old"].Established > was && up() })
	check()
	if told := strings.Count(log.text(), "not announced"); told != 2 {
		t.Errorf("told %d times, want once a session:\n%s", told, log.text())
	}
	// The node has an IPv6 address again.
	lost.Identity.NextHop6 = netip.MustParseAddr("2001:db8::2")
	mustApply(t, s, map[string]desired.Session{"both": lost})
	if state := s.States()["both"]; len(state.Unannounced) != 0 || state.Advertised != len(routes) {
		t.Errorf("state with a next hop: %+v", state)
	}
	if !strings.Contains(log.text(), "all prefixes of a family are announced") {
		t.Errorf("the end was not told:\n%s", log.text())
	}
}

// What is said of many prefixes does not depend on the order of a map, so that
// it is logged once and not at each attempt.
func TestTallySaysTheSameInAnyOrder(t *testing.T) {
	list := slices.Collect(maps.Keys(prefixes(vip, vip2, vip6, "2001:db8:a::11/128", "192.0.2.9/32")))
	want := "BGPPeer/tor: 3 prefixes, such as 192.0.2.9/32, are not announced: 192.0.2.9/32 is refused\n" +
		"BGPPeer/tor: 2 prefixes, such as 2001:db8:a::10/128, are not announced: 2001:db8:a::10/128 is refused"
	rapid.Check(t, func(t *rapid.T) {
		all := tally{}
		for _, prefix := range rapid.Permutation(list).Draw(t, "order") {
			all.add(prefix, fmt.Errorf("%s is refused", prefix))
		}
		if got := errors.Join(all.errors("tor", "announced")...).Error(); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	})
	one := tally{}
	one.add(netip.MustParsePrefix(vip), errFamily)
	if got, want := one.list()[0].String(), vip+" is not announced: "+errFamily.Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
