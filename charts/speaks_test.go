package charts_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

// testSpeakersWriteWithTheirTokens runs what writes the objects of a node, for two nodes, each with its own token: a node
// writes of itself, takes an address over, doubts another node, and says that one is dead, until that is back.
func testSpeakersWriteWithTheirTokens(_ *testing.T, a *authority) {
	one, two := a.writes("a"), a.writes("b")
	address, uid, other := netip.MustParseAddr("192.0.2.1"), types.UID("of a"), types.UID("of b")
	held := map[netip.Addr]report.Address{address: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: time.Now()}}}
	session := map[string]bgp.State{"router": {Phase: bgp.Established, Since: time.Now(), Advertised: 3}}
	forwarding := v1beta1.NodeForwardingStatus{Mode: "nftables", Since: metav1.Now(), Conditions: []metav1.Condition{
		{Type: "Programmed", Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.Now()},
	}}
	one.Sessions(uid, session, nil)
	one.Forwarding(uid, forwarding)
	one.Addresses(uid, held)
	l2, f, s := &v1beta1.L2Address{}, &v1beta1.NodeForwarding{}, &v1beta1.BGPSession{}
	condition := func(kind string) *metav1.Condition { return meta.FindStatusCondition(l2.Status.Conditions, kind) }
	until(a, "of node a that it answers", "192.0.2.1", l2, func() bool { return l2.Status.Node == "a" })
	until(a, "of node a its forwarding", "a", f, func() bool { return len(f.Status.Conditions) > 0 })

	two.Doubts(map[netip.Addr]api.Doubt{address: {Owner: "a", Interface: "eth0", Since: time.Now()}})
	until(a, "of node b that it doubts", "192.0.2.1", l2, func() bool { return condition(v1beta1.ConditionDoubted) != nil })
	two.Doubts(nil)
	until(a, "no doubts any more", "192.0.2.1", l2, func() bool {
		return condition(v1beta1.ConditionDoubted) == nil && l2.Labels[v1beta1.LabelDoubtedBy] == ""
	})

	two.MarkStale(map[string]time.Time{"a": time.Now().Add(-time.Minute)})
	until(a, "of node b that a is not heard", "192.0.2.1", l2, func() bool {
		c := condition(v1beta1.ConditionAnswering)
		return c != nil && c.Status == metav1.ConditionUnknown
	})
	two.Addresses(other, held)
	until(a, "of node b that it answers", "192.0.2.1", l2, func() bool { return l2.Status.Node == "b" && l2.Labels[v1beta1.LabelNode] == "b" })
	one.Addresses(uid, nil)
	two.Addresses(other, nil)
	until(a, "nothing of an address that is gone", "192.0.2.1", l2, func() bool { return l2.Name == "" })

	// The writers of node a saw that they were marked, and have written again since.
	until(a, "of node a that it forwards", "a", f, func() bool {
		c := meta.FindStatusCondition(f.Status.Conditions, "Programmed")
		return c != nil && c.Status == metav1.ConditionTrue
	})
	until(a, "of node a its session", v1beta1.SessionName("a", "router"), s, func() bool { return s.Status.State == v1beta1.SessionEstablished })
}

// writes runs what writes the objects of a node, with the token of its speaker, until the test ends.
func (a *authority) writes(node string) *statuswriter.Objects {
	a.t.Helper()
	o, err := statuswriter.New(node, a.token("fairlead-speaker", node), testlog.New(a.t))
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := o.Run(ctx); err != nil {
			a.t.Error(err)
		}
	}()
	a.t.Cleanup(func() {
		stop()
		<-ended
	})
	return o
}

// until reads an object until it is as it should be; one that is not there is read as an empty one.
func until[T client.Object](a *authority, what, name string, object T, good func() bool) {
	a.t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		object.SetName("")
		err := a.Get(a.t.Context(), client.ObjectKey{Namespace: object.GetNamespace(), Name: name}, object)
		if client.IgnoreNotFound(err) != nil {
			a.t.Fatal(err)
		}
		if good() {
			return
		}
	}
	a.t.Fatalf("the API server is never told %s: %+v", what, object)
}
