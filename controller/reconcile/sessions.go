package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
)

// orphanhood is how old a BGPSession is at least before it is deleted for want of its Node
// or its BGPPeer: informers of several kinds do not tell what happened in its order, and the
// object that it belongs to may be younger than what we know.
const orphanhood = time.Minute

func (w *statusPlanner) peer(p *v1beta1.BGPPeer, count verify.Sessions) {
	object := problem.Object{Kind: "BGPPeer", Name: p.Name}
	after := status.Peer(p, w.problems[object], !w.unmet[object], count.Established, count.Nodes, count.Lacking, w.now)
	if equality.Semantic.DeepEqual(&p.Status, after) {
		return
	}
	next := p.DeepCopy()
	next.Status = *after
	w.writes[object] = write{base: p, next: next, events: status.ReadyEvents(p.Status.Conditions, after.Conditions)}
}

// orphans plans to delete the BGPSessions whose Node or BGPPeer is gone, and returns when
// the next one is old enough. A speaker deletes its own; this is for those that have no
// speaker any more.
func (w *statusPlanner) orphans(s *snapshot) (next time.Time) {
	for name, session := range s.bgpSessions {
		if s.cluster.Nodes[session.Spec.Node] != nil && s.cluster.BGPPeers[session.Spec.Peer] != nil {
			continue
		}
		if at := session.CreationTimestamp.Add(orphanhood); at.After(w.now.Time) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		w.writes[problem.Object{Kind: "BGPSession", Name: name}] = write{base: session}
	}
	return next
}
