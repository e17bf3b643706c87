package statuswriter_test

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

// forwardsWell is what a node says whose forwarding is as it should be.
func forwardsWell(since time.Time) v1beta1.NodeForwardingStatus {
	well := v1beta1.NodeForwardingStatus{Mode: "iptables", Services: 3}
	for _, condition := range []string{v1beta1.ConditionProgrammed, v1beta1.ConditionReadable} {
		well.Conditions = append(well.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonAsExpected, LastTransitionTime: metav1.NewTime(since),
		})
	}
	return well
}

// allAre tells whether both conditions have this status and reason.
func allAre(want string) func(*v1beta1.NodeForwarding) bool {
	return func(o *v1beta1.NodeForwarding) bool {
		return o != nil && len(o.Status.Conditions) == 2 && !slices.ContainsFunc(o.Status.Conditions, func(c metav1.Condition) bool {
			return string(c.Status)+" "+c.Reason != want
		})
	}
}

// testWhatADeadNodeSaidIsMarked: what no node knows any more is marked by a node that lives, on
// a real API server; what another node has taken over is not, and the node writes its own
// again when it is back, whether its process has ended or not.
func testWhatADeadNodeSaidIsMarked(t *testing.T, c cluster) {
	one, two := c.node(t, "node1"), c.node(t, "node2")
	since := time.Now().Add(-time.Hour)
	sessions := map[string]bgp.State{"tor": established(since)}
	addresses := map[netip.Addr]report.Address{
		vip4: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: since}},
		vip6: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: since}},
	}
	s1, _ := c.keep(t, "node1")
	s1.Set(one, sessions, nil)
	a1, _ := c.keepAddresses(t, "node1")
	a1.Set(one, addresses)
	s2, _ := c.keep(t, "node2")
	s2.Set(two, sessions, nil)
	f1, _ := c.keepForwarding(t, "node1")
	f1.Set(one, forwardsWell(since))
	c.forwards(t, "node1", "all being well", allAre("True AsExpected"))
	state := func(all map[string]v1beta1.BGPSession, name string) v1beta1.BGPSessionState {
		return all[name].Status.State
	}
	c.sees(t, "two sessions", func(all map[string]v1beta1.BGPSession) bool {
		return state(all, "tor.node1") == "Established" && state(all, "tor.node2") == "Established"
	})
	c.addresses(t, "both addresses", func(all map[string]v1beta1.L2Address) bool {
		return of(all["192.0.2.10"], "node1", one) && of(all["2001:db8::10"], "node1", one)
	})
	a2, _ := c.keepAddresses(t, "node2")
	a2.Set(two, map[netip.Addr]report.Address{vip4: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: time.Now(), Dead: []string{"node1"}}}})
	c.addresses(t, "a successor", func(all map[string]v1beta1.L2Address) bool { return of(all["192.0.2.10"], "node2", two) })

	w := statuswriter.NewStaleMarker("node2", c.speaker, slog.New(slog.DiscardHandler))
	going(t, w.Run)
	began := time.Now()
	w.MarkStale(map[string]time.Time{"node1": began})
	words := "node node1 has not been heard since " + began.UTC().Format(time.RFC3339) + ", says node node2"
	marked := c.sees(t, "a session that nobody knows", func(all map[string]v1beta1.BGPSession) bool { return state(all, "tor.node1") == "Unknown" })
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("marked after %v: a restart of pulse is no death", took)
	}
	if s := marked["tor.node1"].Status; !strings.HasPrefix(s.LastError, words) || s.Since.Unix() != began.Unix() || s.AdvertisedPrefixes != 0 || s.Negotiated != nil || s.LocalAddress == "" {
		t.Errorf("status %+v", s)
	}
	if state(marked, "tor.node2") != "Established" {
		t.Errorf("that of a node which lives is %+v", marked["tor.node2"].Status)
	}
	answering := func(all map[string]v1beta1.L2Address, address string) string {
		why := meta.FindStatusCondition(all[address].Status.Conditions, v1beta1.ConditionAnswering)
		if why == nil {
			return ""
		}
		return string(why.Status) + " " + why.Reason
	}
	found := c.addresses(t, "an address that nobody knows", func(all map[string]v1beta1.L2Address) bool {
		return answering(all, "2001:db8::10") == "Unknown NodeSilent"
	})
	if got := answering(found, "192.0.2.10"); got != "True Successor" {
		t.Errorf("the one that was taken over is %q", got)
	}

	unknown := c.forwards(t, "node1", "nobody knowing how it does", allAre("Unknown NodeSilent"))
	if s := unknown.Status; s.Services != 3 || !strings.HasPrefix(s.Conditions[0].Message, words) {
		t.Errorf("status %+v", s)
	}

	// The node was cut off, and is heard again.
	w.MarkStale(nil)
	s1.Resync()
	a1.Resync()
	f1.Resync()
	c.forwards(t, "node1", "its own words again", allAre("True AsExpected"))
	c.sees(t, "its own words again", func(all map[string]v1beta1.BGPSession) bool {
		s := all["tor.node1"].Status
		return s.State == "Established" && s.AdvertisedPrefixes == 3 && s.Negotiated != nil
	})
	c.addresses(t, "its own words again", func(all map[string]v1beta1.L2Address) bool {
		return answering(all, "2001:db8::10") == "True First"
	})

	// Another silence is marked again, and another node may take over what was marked.
	w.MarkStale(map[string]time.Time{"node1": time.Now().Add(-time.Minute)})
	c.sees(t, "a mark again", func(all map[string]v1beta1.BGPSession) bool { return state(all, "tor.node1") == "Unknown" })
	c.addresses(t, "a mark again", func(all map[string]v1beta1.L2Address) bool {
		return answering(all, "2001:db8::10") == "Unknown NodeSilent"
	})
	a2.Set(two, map[netip.Addr]report.Address{vip6: {Ownership: api.Ownership{Interfaces: []string{"eth1"}, Since: time.Now(), Dead: []string{"node1"}}}})
	c.addresses(t, "a late successor", func(all map[string]v1beta1.L2Address) bool {
		return of(all["2001:db8::10"], "node2", two) && answering(all, "2001:db8::10") == "True Successor"
	})
	// A process that begins anew writes its own.
	again, _ := c.keep(t, "node1")
	again.Set(one, sessions, nil)
	c.sees(t, "its own words after a restart", func(all map[string]v1beta1.BGPSession) bool { return state(all, "tor.node1") == "Established" })
}

// testAMarkOfASpeakerThatLivesIsTakenBack: its pulse is away, or heard by no node, and it knows all the same
// how its sessions and its forwarding do.
func testAMarkOfASpeakerThatLivesIsTakenBack(t *testing.T, c cluster) {
	one := c.node(t, "node1")
	since := time.Now().Add(-time.Hour)
	s, _ := c.keep(t, "node1")
	c.follow(t, s)
	s.Set(one, map[string]bgp.State{"tor": established(since)}, nil)
	f, _ := c.keepForwarding(t, "node1")
	c.follow(t, f)
	f.Set(one, forwardsWell(since))
	holds := func(all map[string]v1beta1.BGPSession) bool { return all["tor.node1"].Status.State == "Established" }
	session := c.sees(t, "a session", holds)["tor.node1"].ResourceVersion
	forwarding := c.forwards(t, "node1", "all being well", allAre("True AsExpected")).ResourceVersion

	w := statuswriter.NewStaleMarker("node2", c.speaker, slog.New(slog.DiscardHandler))
	going(t, w.Run)
	w.MarkStale(map[string]time.Time{"node1": time.Now().Add(-time.Minute)})
	c.sees(t, "the session, marked and written again", func(all map[string]v1beta1.BGPSession) bool {
		return holds(all) && all["tor.node1"].ResourceVersion != session
	})
	c.forwards(t, "node1", "all being well, marked and written again", func(o *v1beta1.NodeForwarding) bool {
		return allAre("True AsExpected")(o) && o.ResourceVersion != forwarding
	})
}
