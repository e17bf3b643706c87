package bgp

import (
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestRouterThatTakesNothingIsLeft has a router say that it is there, for ever, and read nothing: it
// never hears that routes are withdrawn.
func TestRouterThatTakesNothingIsLeft(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	s.sendHold = time.Second
	p := startPeer(t, "127.0.0.11:0", func(p *peer) { p.deaf = true })
	id := p.identity()
	id.HoldTime, id.KeepaliveTime = 3*time.Second, time.Second
	// More than its kernel takes in.
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: manyRoutes(30_000)}})
	waitFor(t, "it is said that the router takes nothing", func() bool {
		return strings.Contains(s.States()["tor"].LastError+s.States()["tor"].Overcome, "has not taken what it was sent for 6s")
	})
	waitFor(t, "a second attempt", func() bool { n, _ := p.sessions(); return n >= 2 })
}

func TestSendHold(t *testing.T) {
	t.Parallel()
	for hold, want := range map[time.Duration]time.Duration{
		0: 8 * time.Minute, 90 * time.Second: 8 * time.Minute, 4 * time.Minute: 8 * time.Minute, time.Hour: 2 * time.Hour,
	} {
		if got := sendHold(desired.Identity{HoldTime: hold}, leastSendHold); got != want {
			t.Errorf("with a hold time of %v: %v, want %v", hold, got, want)
		}
	}
}
