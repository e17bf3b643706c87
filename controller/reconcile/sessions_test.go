package reconcile

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// session is a BGPSession that was created at a time.
func session(node, peer string, state v1beta1.BGPSessionState, created int64) *v1beta1.BGPSession {
	return &v1beta1.BGPSession{
		ObjectMeta: metav1.ObjectMeta{Name: v1beta1.SessionName(node, peer), ResourceVersion: "1", CreationTimestamp: metav1.Unix(created, 0)},
		Spec:       v1beta1.BGPSessionSpec{Node: node, Peer: peer},
		Status:     v1beta1.BGPSessionStatus{State: state},
	}
}

// seeSession shows the mirror a BGPSession and reports whether that calls for a pass.
func (o *objects) seeSession(s *v1beta1.BGPSession) bool {
	return o.setBGPSession(client.ObjectKeyFromObject(s), s)
}

// TestOrphansGo: the BGPSession of a node or a peer that is gone is deleted, but not a
// moment after it came, when its Node or its BGPPeer may not have been seen yet.
func TestOrphansGo(t *testing.T) {
	t.Parallel()
	o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
	named(o, &o.BGPPeers)(client.ObjectKey{Name: "tor"}, &v1beta1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "tor"}})
	o.setNode(client.ObjectKey{Name: "node1"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	for _, s := range []*v1beta1.BGPSession{
		session("node1", "tor", "Idle", 0), session("gone", "tor", "Established", 0), session("node1", "gone", "Established", 10),
	} {
		o.seeSession(s)
	}
	orphans := func(at int64) (names []string, due int64) {
		d := decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(at, 0))
		for object, w := range d.writes {
			if w.next == nil {
				names = append(names, object.Name)
			}
		}
		if next := d.due(); !next.IsZero() {
			due = next.Unix()
		}
		return slices.Sorted(slices.Values(names)), due
	}
	for at, want := range map[int64]struct {
		names []string
		due   int64
	}{59: {nil, 60}, 60: {[]string{"tor.gone"}, 70}, 70: {[]string{"gone.node1", "tor.gone"}, 0}} {
		if names, due := orphans(at); !slices.Equal(names, want.names) || due != want.due {
			t.Errorf("after %d s %v go, and more at %d, want %v and %d", at, names, due, want.names, want.due)
		}
	}
}

// TestSessionsAreCounted: what matters of a BGPSession calls for a pass, and the peer tells.
func TestSessionsAreCounted(t *testing.T) {
	t.Parallel()
	o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
	named(o, &o.BGPPeers)(client.ObjectKey{Name: "tor"}, &v1beta1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "tor"}})
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	seen, err := whereabouts(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: ready})
	if err != nil {
		t.Fatal(err)
	}
	o.setNode(client.ObjectKey{Name: "node1"}, seen.(*corev1.Node))
	counted := func() string {
		d := decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(0, 0))
		peer, ok := d.writes[problem.Object{Kind: "BGPPeer", Name: "tor"}].next.(*v1beta1.BGPPeer)
		if !ok {
			t.Fatal("the status of the peer is not written")
		}
		return peer.Status.Sessions
	}
	if got := counted(); got != "0/1" {
		t.Errorf("without any session: %s", got)
	}
	s := session("node1", "tor", v1beta1.SessionEstablished, 0)
	if !o.seeSession(s) || counted() != "1/1" {
		t.Errorf("a session came, and the peer tells of %s", counted())
	}
	more := s.DeepCopy()
	more.Status.AdvertisedPrefixes, more.Status.LastError, more.ResourceVersion = 7, "of the past", "2"
	if o.seeSession(more) {
		t.Error("the number of prefixes calls for a pass")
	}
	if got := o.bgpSessions[s.Name].ResourceVersion; got != "2" {
		t.Errorf("the mirror has version %s, by which nothing could be deleted", got)
	}
	down := session("node1", "tor", v1beta1.SessionActive, 0)
	if !o.seeSession(down) || counted() != "0/1" {
		t.Errorf("a session went down, and the peer tells of %s", counted())
	}
}

// TestPublisherDeletes: once a version, and again after a failure.
func TestPublisherDeletes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		orphan := map[problem.Object]write{{Kind: "BGPSession", Name: "tor.gone"}: {base: session("gone", "tor", "Idle", 0)}}
		s.set("tor.gone", errors.New("away"), false)
		p.apply(orphan)
		expect(t, s, "-tor.gone@1")
		s.set("tor.gone", nil, false)
		time.Sleep(2 * firstRetry)
		expect(t, s, "-tor.gone@1")
		p.apply(orphan) // the informer does not show that it is gone yet
		expect(t, s)
	})
}
