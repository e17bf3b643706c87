package status

import (
	"fmt"

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

// Peer returns the status of a BGPPeer: how many of the nodes that it chooses have an
// established session, why the others have none, and its problems. inUse: these do not keep
// it from taking part. It equals the present one when there is nothing to change.
func Peer(p *v1beta1.BGPPeer, problems []problem.Problem, inUse bool, established, nodes int, lacking []string, now metav1.Time) *v1beta1.BGPPeerStatus {
	condition := holds(v1beta1.ConditionEstablished, v1beta1.ReasonEstablished, "the session of every node that the peer chooses is established", p.Generation, now)
	switch {
	case nodes == 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonNoNodeSelected, "spec.nodeSelectors: no node has such labels, so nobody talks to the router"
	case len(lacking) > 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonNotEstablished, problem.List(lacking, "; ")
	}
	return &v1beta1.BGPPeerStatus{
		Sessions:   fmt.Sprintf("%d/%d", established, nodes),
		Conditions: with(Ready(p.Status.Conditions, p.Generation, problems, inUse, now), condition),
	}
}
