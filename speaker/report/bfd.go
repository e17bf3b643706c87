package report

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the Events on a BGPPeer that are about its BFD session.
const (
	ReasonBFDUp   = "BFDUp"
	ReasonBFDDown = "BFDDown"
)

// Path is what the BFD session with a peer is doing.
type Path struct {
	Up    bool
	State string    // that of RFC 5880
	Since time.Time // of State
	// Reason says why it is not up; "" if nothing is known but that the peer has not
	// been heard.
	Reason string
	// Detection is how long the peer may be silent; 0 while it is not up.
	Detection time.Duration
}

// BFD takes in what the BFD sessions are doing, by BGPPeer. One that comes up or goes
// down, or cannot come up for a reason of this node's, is an Event on its BGPPeer. What
// was up before this process began is nothing new.
func (r *Reporter) BFD(paths map[string]Path) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for peer, now := range paths {
		before, known := r.paths[peer]
		switch {
		case now.Up && !known && now.Since.Before(r.began):
		case now.Up && !before.Up:
			r.event(r.peerReference(peer), corev1.EventTypeNormal, ReasonBFDUp, "node %s: the BFD session is up", r.node)
		case !now.Up && now.Reason != "" && (before.Up || before.Reason != now.Reason):
			r.event(r.peerReference(peer), corev1.EventTypeWarning, ReasonBFDDown, "node %s: the BFD session is down: %s", r.node, now.Reason)
		}
	}
	r.paths = paths
	r.tellStanding()
}
