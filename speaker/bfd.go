package main

import (
	"fmt"

	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/report"
)

// paths knows how often the BFD session with each peer has failed, to end its BGP
// session when it fails once more (RFC 5882, 4.3). One that was never up ends nothing,
// and one that the peer's administrator ended is no failure.
type paths map[string]uint64

// failed takes in what pulse says, nothing while it is away, and returns the peers
// that have failed since, and why. What failed before this process, or pulse, began is
// no news: a session that came up since has shown that the peer can be reached.
func (p paths) failed(states map[string]bfd.Status) map[string]string {
	news := map[string]string{}
	for peer, s := range states {
		if before, known := p[peer]; known && s.Failures > before {
			news[peer] = fmt.Sprintf("BFD found that the router cannot be reached: %v", s.Diag)
		}
		p[peer] = s.Failures
	}
	for peer := range p {
		if _, there := states[peer]; !there {
			delete(p, peer)
		}
	}
	return news
}

// bfdOf is what BFD sessions are doing, as the reporter takes it.
func bfdOf(states map[string]bfd.Status) map[string]report.Path {
	paths := make(map[string]report.Path, len(states))
	for peer, s := range states {
		paths[peer] = report.Path{Up: s.State == bfd.Up, State: s.State.String(), Since: s.Since, Reason: s.Reason(), Detection: s.Detection}
	}
	return paths
}
