package statuswriter_test

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

// followAddresses keeps the L2Addresses of a node, and follows them, until the end of the test.
func (c cluster) followAddresses(t *testing.T, node string) *statuswriter.Addresses {
	t.Helper()
	a, _ := c.keepAddresses(t, node)
	c.follow(t, a)
	return a
}

func (c cluster) follow(t *testing.T, f interface {
	Follow(ctx context.Context, api statuswriter.Watcher) error
},
) {
	t.Helper()
	going(t, func(ctx context.Context) error { return f.Follow(ctx, c.speaker) })
}

// answering is what a node tells that answers for the IPv4 address alone.
func answering(since time.Time) map[netip.Addr]report.Address {
	return map[netip.Addr]report.Address{vip4: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: since}}}
}

// testTheLastToWriteIsNotTheOneThatGoesOn: two nodes answer for a moment, as neither hears the
// other, and both write. The one that goes on never knew of the other, and its object is there
// again after the other has removed its own.
func testTheLastToWriteIsNotTheOneThatGoesOn(t *testing.T, c cluster) {
	one, two := c.node(t, "node1"), c.node(t, "node2")
	a1, a2 := c.followAddresses(t, "node1"), c.followAddresses(t, "node2")
	began := time.Now().Add(-time.Hour)
	a1.Set(one, answering(began))
	c.addresses(t, "the first node", func(all map[string]v1beta1.L2Address) bool { return of(all["192.0.2.10"], "node1", one) })
	a2.Set(two, answering(time.Now()))
	c.addresses(t, "the second node", func(all map[string]v1beta1.L2Address) bool { return of(all["192.0.2.10"], "node2", two) })
	a2.Set(two, nil)
	c.addresses(t, "the first node again", func(all map[string]v1beta1.L2Address) bool { return of(all["192.0.2.10"], "node1", one) })
}

// testWhoIsBackWithinAMoment: an address goes to another node and back before the one that had
// it has written that it has not. What it knew of its object is not true any more then.
func testWhoIsBackWithinAMoment(t *testing.T, c cluster) {
	one, two := c.node(t, "node1"), c.node(t, "node2")
	a1, a2 := c.followAddresses(t, "node1"), c.followAddresses(t, "node2")
	began := time.Now().Add(-time.Hour)
	a1.Set(one, answering(began))
	c.addresses(t, "the first node", func(all map[string]v1beta1.L2Address) bool { return of(all["192.0.2.10"], "node1", one) })
	for round := range 3 {
		a2.Set(two, answering(began.Add(time.Duration(2*round+1)*time.Minute)))
		c.addresses(t, "the second node", func(all map[string]v1beta1.L2Address) bool {
			return all["192.0.2.10"].Labels[v1beta1.LabelNode] == "node2"
		})
		back := began.Add(time.Duration(2*round+2) * time.Minute)
		a1.Set(one, answering(back))
		a2.Set(two, nil)
		c.addresses(t, "the first node again", func(all map[string]v1beta1.L2Address) bool {
			return of(all["192.0.2.10"], "node1", one) && all["192.0.2.10"].Status.Since.Unix() == back.Unix()
		})
	}
	// Nobody removes it later.
	time.Sleep(3 * time.Second)
	c.addresses(t, "the first node still", func(all map[string]v1beta1.L2Address) bool { return of(all["192.0.2.10"], "node1", one) })
}

// testWhatIsDeletedIsMadeAgain: another client deletes objects of each kind, and they are there again at
// once, although nothing changed that they tell.
func testWhatIsDeletedIsMadeAgain(t *testing.T, c cluster) {
	uid := c.node(t, "node1")
	since := time.Now().Add(-time.Hour)
	a, s, f := c.followAddresses(t, "node1"), statuswriter.NewSessions("node1", c.speaker, slog.New(slog.DiscardHandler)), statuswriter.NewForwardings("node1", c.speaker, slog.New(slog.DiscardHandler))
	going(t, s.Run)
	going(t, f.Run)
	c.follow(t, s)
	c.follow(t, f)
	a.Set(uid, map[netip.Addr]report.Address{vip6: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: since}}})
	s.Set(uid, map[string]bgp.State{"tor": established(since)}, nil)
	f.Set(uid, v1beta1.NodeForwardingStatus{Mode: "iptables", Since: metav1.NewTime(since)})
	all := func(what string) {
		t.Helper()
		c.addresses(t, what, func(all map[string]v1beta1.L2Address) bool { return of(all["2001:db8::10"], "node1", uid) })
		c.sees(t, what, func(all map[string]v1beta1.BGPSession) bool {
			return all["tor.node1"].Status.State == v1beta1.SessionEstablished
		})
		var forwarding v1beta1.NodeForwarding
		for began := time.Now(); forwarding.Status.Mode != "iptables"; time.Sleep(50 * time.Millisecond) {
			if err := c.Get(t.Context(), client.ObjectKey{Name: "node1"}, &forwarding); time.Since(began) > patience {
				t.Fatalf("never seen: %s, the NodeForwarding: %v", what, err)
			}
		}
	}
	all("all of it")
	for _, kind := range []client.Object{&v1beta1.L2Address{}, &v1beta1.BGPSession{}, &v1beta1.NodeForwarding{}} {
		if err := c.DeleteAllOf(t.Context(), kind); err != nil {
			t.Fatal(err)
		}
	}
	all("all of it again")
}
