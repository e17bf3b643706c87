package bgp

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestStatesTellWhatWasNegotiated: with each router what its OPEN says, and after it came
// back, why it was away.
func TestStatesTellWhatWasNegotiated(t *testing.T) {
	if netlab.Apart(t) {
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
