package report_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/report"
)

// heard are the dead nodes whose objects were to be marked last.
type heard struct {
	unread
	nodes map[string]time.Time
}

func (h *heard) MarkStale(nodes map[string]time.Time) { h.nodes = nodes }

// TestTheFirstOfTheLivingSpeaks: of the nodes whose speakers Kubernetes calls ready, one that
// is believed to be dead speaks for nobody.
func TestTheFirstOfTheLivingSpeaks(t *testing.T) {
	t.Parallel()
	ready := map[string]view.Speaker{"node1": {Ready: true}, "node2": {Ready: true}, "node3": {Ready: true}, "node0": {}}
	told := map[string]*heard{}
	reporters := map[string]*report.Reporter{}
	for _, node := range []string{"node1", "node2", "node3"} {
		told[node] = &heard{}
		c := toldTo(&events{})
		c.Node, c.Objects = node, told[node]
		reporters[node] = report.New(c)
	}
	pass := func(fallen ...string) {
		o := anOutcome()
		o.Cluster.Speakers, o.Cluster.Fallen = ready, map[string]struct{}{}
		for _, node := range fallen {
			o.Cluster.Fallen[node] = struct{}{}
		}
		for _, r := range reporters {
			r.Report(o)
		}
	}
	want := func(node string, silent ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(told[node].nodes)); !slices.Equal(got, silent) {
			t.Errorf("%s speaks for %v, want %v", node, got, silent)
		}
	}
	pass("node3")
	want("node1", "node3")
	want("node2")
	since := told["node1"].nodes["node3"]
	pass("node1", "node3")
	want("node2", "node1", "node3")
	pass("node3")
	want("node1", "node3")
	want("node2")
	if again := told["node1"].nodes["node3"]; !again.Equal(since) || since.IsZero() {
		t.Errorf("silent since %v, before since %v", again, since)
	}
	pass()
	want("node1")
}
