package status_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/status"
)

func TestPeer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		established, nodes int
		lacking            []string
		sessions           string
		want               metav1.Condition
	}{
		"all are up": {2, 2, nil, "2/2", metav1.Condition{
			Status: metav1.ConditionTrue, Reason: "Established", Message: "the session of every node that the peer chooses is established",
		}},
		"some are not": {1, 3, []string{"node b: connection refused", "node c: no answer"}, "1/3", metav1.Condition{
			Status: metav1.ConditionFalse, Reason: "NotEstablished", Message: "node b: connection refused; node c: no answer",
		}},
		"nobody": {0, 0, nil, "0/0", metav1.Condition{
			Status: metav1.ConditionFalse, Reason: "NoNodeSelected", Message: "spec.nodeSelectors: no node has such labels, so nobody talks to the router",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &v1beta1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "tor", Generation: 3}}
			tt.want.Type, tt.want.ObservedGeneration, tt.want.LastTransitionTime = "Established", 3, then
			ready := metav1.Condition{
				Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: then,
				Reason: "Ready", Message: "the object is valid and in use",
			}
			got := status.Peer(p, nil, true, tt.established, tt.nodes, tt.lacking, then)
			want := &v1beta1.BGPPeerStatus{Sessions: tt.sessions, Conditions: []metav1.Condition{ready, tt.want}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			p.Status = *got
			if diff := cmp.Diff(got, status.Peer(p, nil, true, tt.established, tt.nodes, tt.lacking, now)); diff != "" {
				t.Errorf("at rest (-want +got):\n%s", diff)
			}
			again := status.Peer(p, full, false, 1, 1, nil, now)
			if again.Conditions[0].Reason != "PoolExhausted" || again.Sessions != "1/1" || p.Status.Sessions != tt.sessions {
				t.Errorf("with a problem: %+v, and before it: %+v", again, p.Status)
			}
		})
	}
}
