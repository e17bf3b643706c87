package bgp

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestStatesTellWhatWasNegotiated: with each router what its OPEN says, and after it came
// back, why it was away.
func TestStatesTellWhatWasNegotiated(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	if states := s.States(); states != nil {
		t.Errorf("before anything is wanted there are %v", states)
	}
	modern := startPeer(t, "127.0.0.11:0", nil)
	old := startPeer(t, "127.0.0.12:0", func(p *peer) { p.old = true })
	mustApply(t, s, map[string]desired.Session{
		"modern": {Identity: modern.identity(), Routes: prefixes(vip)}, "old": {Identity: old.identity(), Routes: prefixes(vip)},
	})
	waitFor(t, "both sessions are up", func() bool {
		states := s.States()
		return states["modern"].Phase == Established && states["old"].Phase == Established
	})
	for name, want := range map[string]bool{"modern": true, "old": false} {
		state := s.States()[name]
		if state.FourOctetASN != want || state.HoldTime != longHold || !state.IPv4 || !state.IPv6 || !state.GracefulRestart {
			t.Errorf("%s: %+v, and AS numbers of 32 bits are %t", name, state, want)
		}
		if state.Overcome != "" {
			t.Errorf("%s: it came up at once, and had overcome %q", name, state.Overcome)
		}
	}
	modern.drop()
	waitFor(t, "the session is up again, and says why it was not", func() bool {
		state := s.States()["modern"]
		return state.Phase == Established && state.Established >= 2 && state.LastError == "" && state.Overcome != ""
	})
}

// TestPrefixesAreListedUnlessTheyAreMany: what the router has been told of is listed, but for
// families that the session does not carry; of more than a hundred the number is enough.
func TestPrefixesAreListedUnlessTheyAreMany(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	p := startPeer(t, "127.0.0.11:0", nil)
	announce := func(routes map[netip.Prefix]desired.RouteAttrs) State {
		t.Helper()
		mustApply(t, s, map[string]desired.Session{"tor": {Identity: p.identity(), Routes: routes}})
		waitFor(t, "the router has been told of all", func() bool {
			state := s.States()["tor"]
			return state.Phase == Established && state.Advertised == len(routes)
		})
		return s.States()["tor"]
	}
	some := prefixes("2001:db8::10/128", "192.0.2.10/32", "192.0.2.9/32")
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.9/32"), netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("2001:db8::10/128")}
	if got := announce(some).Prefixes; !slices.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
	many := manyRoutes(mostListed)
	if got := announce(many).Prefixes; len(got) != len(many) || !slices.IsSortedFunc(got, netip.Prefix.Compare) {
		t.Errorf("listed are %d of %d: %v", len(got), len(many), got)
	}
	maps.Copy(many, some)
	if got := announce(many).Prefixes; len(got) > 0 {
		t.Errorf("of %d prefixes %d are listed, want none", len(many), len(got))
	}
	if got := announce(some).Prefixes; !slices.Equal(got, want) {
		t.Errorf("when they are few again, listed are %v, want %v", got, want)
	}
	p.drop()
	waitFor(t, "nothing is listed of a session that is down, or all when it is back", func() bool {
		state := s.States()["tor"]
		return state.Phase != Established && state.Prefixes == nil || state.Phase == Established && state.Established == 2 && slices.Equal(state.Prefixes, want)
	})
}
