package report

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// Reasons of the Events on a BGPPeer.
const (
	ReasonSessionUp   = "SessionUp"
	ReasonSessionDown = "SessionDown"
	ReasonFamilyLeft  = "FamilyLeft" // the session cannot carry a family that is wanted
	ReasonBFDUp       = "BFDUp"
	ReasonBFDDown     = "BFDDown"
)

// Sessions takes in the states of the BGP sessions by BGPPeer, nil while they are not known. A session that
// comes up or goes down is an Event on its BGPPeer.
func (r *Reporter) Sessions(states map[string]bgp.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for peer, state := range states {
		before, known := r.sessions[peer]
		up, was := state.Phase == bgp.Established, before.Phase == bgp.Established
		switch {
		case up && !was:
			r.event(r.peerReference(peer), corev1.EventTypeNormal, ReasonSessionUp, "node %s: the session is established", r.node)
		case !up && known && (was || state.LastError != before.LastError) && state.LastError != "":
			r.event(r.peerReference(peer), corev1.EventTypeWarning, ReasonSessionDown, "node %s: %s", r.node, state.LastError)
		}
		had := map[addr.Family]string{}
		for _, u := range before.Unannounced {
			had[u.Family] = u.Err.Error()
		}
		for _, u := range state.Unannounced {
			if why := u.Err.Error(); had[u.Family] != why {
				r.event(r.peerReference(peer), corev1.EventTypeWarning, ReasonFamilyLeft,
					"node %s: %s addresses are not announced: %s", r.node, u.Family, why)
			}
		}
	}
	r.sessions = states
	r.writeSessions()
}

// BFD takes in the states of the BFD sessions by BGPPeer. A session that comes up or goes down, or cannot come
// up for a reason of this node's, is an Event on its BGPPeer; one that was up before this process began is not new.
func (r *Reporter) BFD(paths map[string]bfd.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for peer, now := range paths {
		before, known := r.paths[peer]
		up, was := now.State == bfd.Up, before.State == bfd.Up
		switch {
		case up && !known && now.Since.Before(r.began):
		case up && !was:
			r.event(r.peerReference(peer), corev1.EventTypeNormal, ReasonBFDUp, "node %s: the BFD session is up", r.node)
		case !up && now.Reason() != "" && (was || before.Reason() != now.Reason()):
			r.event(r.peerReference(peer), corev1.EventTypeWarning, ReasonBFDDown, "node %s: the BFD session is down: %s", r.node, now.Reason())
		}
	}
	r.paths = paths
	r.writeSessions()
}

// writeSessions hands on the states of the sessions, once they are known: objects that an earlier process
// has written stay until then.
func (r *Reporter) writeSessions() {
	if r.sessions != nil && r.registered() {
		r.objects.Sessions(types.UID(r.cluster.Nodes[r.node].UID), r.sessions, r.paths)
	}
}
