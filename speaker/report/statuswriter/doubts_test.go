package statuswriter_test

import (
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

// keepDoubts runs a writer of doubts until stop or the end of the test.
func (c cluster) keepDoubts(t *testing.T, node string) (d *statuswriter.Doubts, stop func()) {
	t.Helper()
	d = statuswriter.NewDoubts(node, c.speaker, slog.New(slog.DiscardHandler))
	return d, going(t, d.Run)
}

// doubt is the reason of the condition of an address and who noted it; empty if nobody has.
func doubt(all map[string]v1beta1.L2Address, address string) string {
	c := meta.FindStatusCondition(all[address].Status.Conditions, v1beta1.ConditionDoubted)
	by, labelled := all[address].Labels[v1beta1.LabelDoubtedBy]
	switch {
	case c == nil && !labelled:
		return ""
	case c == nil || !labelled:
		return "a half: " + by
	}
	return c.Reason + " by " + by
}

// testDoubtsAreNotedInTheObjectsOfOthers goes through the life of a doubt on a real API server:
// neither the node that answers nor the one that doubts undoes what the other writes, another
// process takes back what one left behind, and the object goes with who answers.
func testDoubtsAreNotedInTheObjectsOfOthers(t *testing.T, c cluster) {
	one, two := c.node(t, "node1"), c.node(t, "node2")
	since := time.Now().Add(-time.Hour)
	answers := map[netip.Addr]report.Address{
		vip4: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: since, Next: "node2"}},
		vip6: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: since}},
	}
	found := api.Doubt{Owner: "node1", Interface: "eth0", Since: since}
	d2, stop := c.keepDoubts(t, "node2")
	d2.Set(map[netip.Addr]api.Doubt{vip4: found, vip6.Next(): {}}) // before the object is there, and of what has none
	a1, _ := c.keepAddresses(t, "node1")
	a1.Set(one, answers)
	c.addresses(t, "both addresses, and no more", func(all map[string]v1beta1.L2Address) bool {
		return len(all) == 2 && of(all["192.0.2.10"], "node1", one) && of(all["2001:db8::10"], "node1", one)
	})
	all := c.addresses(t, "a doubt", func(all map[string]v1beta1.L2Address) bool {
		return doubt(all, "192.0.2.10") == "AddressUnanswered by node2"
	})
	got := meta.FindStatusCondition(all["192.0.2.10"].Status.Conditions, v1beta1.ConditionDoubted)
	if got.Status != "True" || got.LastTransitionTime.Unix() != since.Unix() || !strings.HasPrefix(got.Message, "node node2 asked for 192.0.2.10 on eth0") {
		t.Errorf("condition %+v", got)
	}
	if other := doubt(all, "2001:db8::10"); other != "" {
		t.Errorf("the other address has a doubt: %s", other)
	}

	// What is found becomes worse while the node that answers has something to say, too.
	found.Station = "52:54:00:12:34:56"
	d2.Set(map[netip.Addr]api.Doubt{vip4: found})
	worse := maps.Clone(answers)
	worse[vip4] = report.Address{
		Ownership:   api.Ownership{Interfaces: []string{"eth0", "eth1"}, Since: since, Next: "node2"},
		Obstruction: &report.Finding{Reason: report.ReasonReversePathFiltered, Message: "rp_filter", Since: since},
	}
	a1.Set(one, worse)
	c.addresses(t, "the words of both", func(all map[string]v1beta1.L2Address) bool {
		s := all["192.0.2.10"].Status
		in := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionObstructed)
		return doubt(all, "192.0.2.10") == "AddressAnsweredTwice by node2" && len(s.Interfaces) == 2 &&
			in != nil && in.Status == "True" && in.Reason == report.ReasonReversePathFiltered && in.LastTransitionTime.Unix() == since.Unix()
	})
	a1.Set(one, answers)
	c.addresses(t, "only one's own taken back", func(all map[string]v1beta1.L2Address) bool {
		return doubt(all, "192.0.2.10") == "AddressAnsweredTwice by node2" &&
			meta.FindStatusCondition(all["192.0.2.10"].Status.Conditions, v1beta1.ConditionObstructed) == nil
	})

	// A process that begins anew takes back what it finds no more.
	stop()
	again, _ := c.keepDoubts(t, "node2")
	again.Set(nil)
	all = c.addresses(t, "no doubt", func(all map[string]v1beta1.L2Address) bool { return doubt(all, "192.0.2.10") == "" })
	if !of(all["192.0.2.10"], "node1", one) || all["192.0.2.10"].Status.RunnerUp != "node2" {
		t.Errorf("something of the other node's is gone: %+v", all["192.0.2.10"])
	}

	// The object goes with who answers, although somebody else wrote to it last.
	again.Set(map[netip.Addr]api.Doubt{vip4: found})
	c.addresses(t, "a doubt again", func(all map[string]v1beta1.L2Address) bool { return doubt(all, "192.0.2.10") != "" })
	a2, _ := c.keepAddresses(t, "node2")
	a2.Set(two, map[netip.Addr]report.Address{vip6: answers[vip6]})
	c.addresses(t, "one taken over", func(all map[string]v1beta1.L2Address) bool { return of(all["2001:db8::10"], "node2", two) })
	a1.Set(one, nil)
	c.addresses(t, "nothing of what nobody answers for", func(all map[string]v1beta1.L2Address) bool {
		return len(all) == 1 && of(all["2001:db8::10"], "node2", two)
	})
}

// testDoubtsOfADeadNodeAreTakenBack: by another one, which lives.
func testDoubtsOfADeadNodeAreTakenBack(t *testing.T, c cluster) {
	one := c.node(t, "node1")
	a1, _ := c.keepAddresses(t, "node1")
	a1.Set(one, map[netip.Addr]report.Address{vip4: {Ownership: api.Ownership{Interfaces: []string{"eth0"}, Since: time.Now()}}})
	c.addresses(t, "the address", func(all map[string]v1beta1.L2Address) bool { return of(all["192.0.2.10"], "node1", one) })
	d2, stop := c.keepDoubts(t, "node2")
	d2.Set(map[netip.Addr]api.Doubt{vip4: {Owner: "node1", Interface: "eth0", Since: time.Now()}})
	c.addresses(t, "a doubt", func(all map[string]v1beta1.L2Address) bool {
		return doubt(all, "192.0.2.10") == "AddressUnanswered by node2"
	})
	stop()
	w := statuswriter.NewStaleMarker("node1", c.speaker, slog.New(slog.DiscardHandler))
	going(t, w.Run)
	w.MarkStale(map[string]time.Time{"node2": time.Now().Add(-time.Minute)})
	all := c.addresses(t, "no doubt", func(all map[string]v1beta1.L2Address) bool { return doubt(all, "192.0.2.10") == "" })
	if !of(all["192.0.2.10"], "node1", one) || len(all["192.0.2.10"].Status.Conditions) != 1 {
		t.Errorf("something of the node that answers is gone: %+v", all["192.0.2.10"])
	}
}
