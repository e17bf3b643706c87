package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// testSessions: a peer tells how many of its nodes have an established session, and why
// the others have none, and a Service that no node announces since none has one.
func testSessions(t *testing.T, c *cluster) {
	c.start(t)
	readiness := func(n *corev1.Node, value corev1.ConditionStatus) {
		before := n.DeepCopy()
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: value}}
		if err := c.Status().Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	says := func(s *v1beta1.BGPSession, state v1beta1.BGPSessionState, lastError string) {
		before := s.DeepCopy()
		s.Status.State, s.Status.LastError, s.Status.Since = state, lastError, metav1.NewTime(time.Now().Add(-9*time.Second))
		if err := c.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"rack": "r1"}
	var nodes []*corev1.Node
	for _, name := range []string{"session-a", "session-b"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		c.temporary(t, n)
		readiness(n, corev1.ConditionTrue)
		nodes = append(nodes, n)
	}
	peer := &v1beta1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: "counted"},
		Spec: v1beta1.BGPPeerSpec{
			MyASN: 64500, PeerASN: 64512, PeerAddress: "192.0.2.253", NodeSelectors: v1beta1.Selectors{{MatchLabels: labels}},
		},
	}
	c.temporary(t, peer)
	tells := func(sessions, reason, message string) {
		t.Helper()
		until(t, c, peer, "told of "+sessions+" "+reason+" "+message, func(p *v1beta1.BGPPeer) bool {
			told := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionEstablished)
			return p.Status.Sessions == sessions && told.Reason == reason && strings.Contains(told.Message, message)
		})
	}
	tells("0/2", "NotEstablished", "node session-a: no speaker there tells of one (is the node in the chart's speaker.nodeSelector?); node session-b: ")
	var sessions []*v1beta1.BGPSession
	for _, n := range nodes {
		s := &v1beta1.BGPSession{
			ObjectMeta: metav1.ObjectMeta{Name: v1beta1.SessionName(n.Name, peer.Name)}, Spec: v1beta1.BGPSessionSpec{Node: n.Name, Peer: peer.Name},
		}
		c.temporary(t, s)
		says(s, v1beta1.SessionEstablished, "")
		sessions = append(sessions, s)
	}
	tells("2/2", v1beta1.ReasonEstablished, "every node")
	c.temporary(t, &v1beta1.BGPAdvertisement{ObjectMeta: metav1.ObjectMeta{Name: "routes"}})
	c.pool(t, "p", "192.0.2.0/28")
	web := c.service(t, "web")
	c.holds(t, web, "192.0.2.0")
	allocated := func(s *corev1.Service) *metav1.Condition {
		return meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
	}
	announced := func(s *corev1.Service) bool {
		return allocated(s).Status == metav1.ConditionTrue && allocated(s).Reason == v1beta1.ReasonAllocated
	}
	until(t, c, web, "announced by both nodes", announced)
	says(sessions[0], v1beta1.SessionActive, "connection refused")
	says(sessions[1], v1beta1.SessionActive, "connection refused")
	until(t, c, web, "announced by nobody", func(s *corev1.Service) bool {
		return allocated(s).Status == metav1.ConditionFalse && allocated(s).Reason == "NoServingNode" &&
			strings.Contains(allocated(s).Message, "session-a session-b: no BGP session is established: see the condition Established of BGPPeer counted")
	})
	c.told(t, web, "NoServingNode")
	says(sessions[0], v1beta1.SessionEstablished, "")
	until(t, c, web, "announced by one node", announced)
	tells("1/2", "NotEstablished", "node session-b: connection refused")
	readiness(nodes[0], corev1.ConditionUnknown)
	tells("0/2", "NotEstablished", "node session-a: not ready")
	update(t, c, peer, func(p *v1beta1.BGPPeer) {
		p.Spec.NodeSelectors = v1beta1.Selectors{{MatchLabels: map[string]string{"rack": "none"}}}
	})
	tells("0/0", "NoNodeSelected", "no node has such labels")
}
