package verify_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/view"
)

func TestCountSessions(t *testing.T) {
	t.Parallel()
	left := map[string]string{"left": "yes"}
	c := &view.Cluster{
		Nodes: map[string]*view.Node{
			"a": {Name: "a", Ready: true, Labels: left}, "b": {Name: "b", Ready: true, Labels: left},
			"c": {Name: "c", Labels: left}, "d": {Name: "d", Ready: true},
		},
		BGPPeers: map[string]*view.BGPPeer{
			"all": peer("all", "192.0.2.1", 179), "left": peer("left", "192.0.2.2", 179, labelled("left")),
			"nowhere": peer("nowhere", "192.0.2.3", 179, labelled("nowhere")),
		},
		BGPSessions: map[string]*view.BGPSession{
			"all.a":   {Node: "a", Peer: "all", Established: true},
			"all.b":   {Node: "b", Peer: "all", LastError: "connection refused"},
			"all.c":   {Node: "c", Peer: "all", Established: true}, // it said so before it fell silent
			"left.a":  {Node: "a", Peer: "left", Established: true, LastError: "of the past"},
			"left.b":  {Node: "b", Peer: "left"},
			"left.d":  {Node: "d", Peer: "left", Established: true}, // it is about to end it
			"gone.a":  {Node: "a", Peer: "gone", Established: true},
			"all.old": {Node: "old", Peer: "all", Established: true},
		},
	}
	want := map[string]verify.Sessions{
		"all": {Nodes: 4, Established: 1, Lacking: []string{
			"node b: connection refused", "node c: not ready, so that nothing is known of its session", "node d: no speaker there tells of one (is the node in the chart's speaker.nodeSelector?)",
		}},
		"left":    {Nodes: 3, Established: 1, Lacking: []string{"node b: the session is coming up", "node c: no speaker there tells of one (is the node in the chart's speaker.nodeSelector?)"}},
		"nowhere": {},
	}
	if diff := cmp.Diff(want, verify.CountSessions(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
