package statuswriter_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

// keepForwarding runs a writer of the NodeForwarding of a node until stop or the end of the
// test.
func (c cluster) keepForwarding(t *testing.T, node string) (f *statuswriter.Forwardings, stop func()) {
	t.Helper()
	f = statuswriter.NewForwardings(node, c.speaker, slog.New(slog.DiscardHandler))
	return f, going(t, f.Run)
}

// forwards waits until the object of a node is as the test says; nil is none.
func (c cluster) forwards(t *testing.T, node, what string, ok func(*v1beta1.NodeForwarding) bool) *v1beta1.NodeForwarding {
	t.Helper()
	object := new(v1beta1.NodeForwarding)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		object = new(v1beta1.NodeForwarding)
		if err := c.Get(t.Context(), client.ObjectKey{Name: node}, object); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		} else if err != nil {
			object = nil
		}
		if ok(object) {
			return object
		}
	}
	t.Fatalf("never seen: %s; there is %+v", what, object)
	return nil
}

// testTheObjectSaysHowTheForwardingDoes goes through the life of the object of one node, on a
// real API server: it comes, changes, survives a restart, and goes.
func testTheObjectSaysHowTheForwardingDoes(t *testing.T, c cluster) {
	uid := c.node(t, "node1")
	began := time.Now().Add(-time.Hour)
	is := func(status metav1.ConditionStatus, reason string, since time.Time) v1beta1.NodeForwardingStatus {
		return v1beta1.NodeForwardingStatus{
			Mode: "iptables", Tool: "iptables-legacy", Since: metav1.NewTime(began), Services: 3, Ports: 5, ProgrammedPorts: 4, Problems: 1,
			Networks: []string{"192.0.2.0/24", "2001:db8::/64"},
			Conditions: []metav1.Condition{{
				Type: "Programmed", Status: status, Reason: reason, Message: strings.Repeat("x", 4096), LastTransitionTime: metav1.NewTime(since),
			}},
		}
	}
	says := func(status metav1.ConditionStatus, reason string) func(*v1beta1.NodeForwarding) bool {
		return func(o *v1beta1.NodeForwarding) bool {
			if o == nil {
				return false
			}
			found := meta.FindStatusCondition(o.Status.Conditions, "Programmed")
			return found != nil && found.Status == status && found.Reason == reason
		}
	}
	k, stop := c.keepForwarding(t, "node1")
	k.Set(uid, is("False", "ProgramMissing", began))
	o := c.forwards(t, "node1", "a program missing", says("False", "ProgramMissing"))
	if s := o.Status; s.Mode != "iptables" || s.Tool != "iptables-legacy" || s.Since.Unix() != began.Unix() ||
		s.Services != 3 || s.Ports != 5 || s.ProgrammedPorts != 4 || s.Problems != 1 ||
		!slices.Equal(s.Networks, []string{"192.0.2.0/24", "2001:db8::/64"}) || len(s.Conditions[0].Message) != 4096 {
		t.Errorf("status %+v", s)
	}
	if o.Spec.Node != "node1" || o.Labels[v1beta1.LabelNode] != "node1" || len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != uid {
		t.Errorf("whose it is: %+v", o)
	}

	// A restart tells the same with another reason: it has been so since the first process.
	stop()
	k, stop = c.keepForwarding(t, "node1")
	k.Set(uid, is("False", "ProgramHangs", time.Now()))
	after := c.forwards(t, "node1", "a new process writing on", says("False", "ProgramHangs"))
	if got := after.Status.Conditions[0].LastTransitionTime.Unix(); got != began.Unix() || after.UID != o.UID {
		t.Errorf("after a restart False since %d, want %d; UID %s, was %s", got, began.Unix(), after.UID, o.UID)
	}
	healed := time.Now()
	k.Set(uid, is("True", "AsExpected", healed))
	after = c.forwards(t, "node1", "all being well", says("True", "AsExpected"))
	if got := after.Status.Conditions[0].LastTransitionTime.Unix(); got != healed.Unix() {
		t.Errorf("True since %d, want %d", got, healed.Unix())
	}

	// The Node is made anew: what belongs to the old one would be collected.
	k.Set("another", is("True", "AsExpected", healed))
	c.forwards(t, "node1", "the object of the new Node", func(o *v1beta1.NodeForwarding) bool {
		return o != nil && o.OwnerReferences[0].UID == "another" && len(o.Status.Conditions) == 1
	})
	stop()
	if err := k.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.forwards(t, "node1", "no object of a node that went", func(o *v1beta1.NodeForwarding) bool { return o == nil })

	misnamed := &v1beta1.NodeForwarding{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Spec: v1beta1.NodeForwardingSpec{Node: "node2"}}
	if err := c.Create(t.Context(), misnamed); err == nil || !strings.Contains(err.Error(), "has the name of its node") {
		t.Errorf("an object with the name of another node: %v", err)
	}
}
