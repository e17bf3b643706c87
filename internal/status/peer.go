package status

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
)

// Reasons of the condition Established of a BGPPeer when it is False.
const (
	// ReasonNotEstablished: a node that the peer chooses has no session that is up.
	ReasonNotEstablished = "NotEstablished"
	// ReasonNoNodeSelected: the peer chooses no node.
	ReasonNoNodeSelected = "NoNodeSelected"
)

// Peer renders into the status of a BGPPeer how many of the nodes that it chooses have an
// established session, why the others have none, and its problems. inUse: these do not
// keep it from taking part. now is the time of a transition. The result equals the status
// when there is nothing to change.
func Peer(p *v1beta1.BGPPeer, problems []problem.Problem, inUse bool, established, nodes int, lacking []string, now metav1.Time) *v1beta1.BGPPeerStatus {
	next := &v1beta1.BGPPeerStatus{Conditions: slices.Clone(p.Status.Conditions), Sessions: fmt.Sprintf("%d/%d", established, nodes)}
	if changed := Ready(next.Conditions, p.Generation, problems, inUse, now); changed != nil {
		next.Conditions = changed
	}
	condition := metav1.Condition{
		Type:               v1beta1.ConditionEstablished,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: p.Generation,
		LastTransitionTime: now,
	}
	switch {
	case nodes == 0:
		condition.Reason, condition.Message = ReasonNoNodeSelected, "spec.nodeSelectors: no node has such labels, so nobody talks to the router"
	case len(lacking) > 0:
		condition.Reason, condition.Message = ReasonNotEstablished, problem.List(lacking, "; ")
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1beta1.ReasonEstablished
		condition.Message = "the session of every node that the peer chooses is established"
	}
	if changed := with(next.Conditions, condition); changed != nil {
		next.Conditions = changed
	}
	return next
}
