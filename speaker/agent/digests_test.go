package agent_test

import (
	"testing"
	"testing/synctest"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestPulseIsToldTheDigestsOfOtherNodes: they are those of the same cluster on another node, whatever this one can
// serve, and they do not differ either once it leaves.
func TestPulseIsToldTheDigestsOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		wake, a, stop := run(t, w)
		defer stop()
		wake(cluster(vip(1), vip(2)))
		want, _ := desired.NewEngine(desired.Options{Node: "b"}).Decide(cluster(vip(1), vip(2)))
		if w.answers.Digests != want.Digests || want.Digests == (desired.Digests{}) {
			t.Errorf("digests %v, and of another node %v", w.answers.Digests, want.Digests)
		}
		if err := a.Leave(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if w.answers.Digests != want.Digests {
			t.Errorf("once it leaves: %v", w.answers.Digests)
		}
	})
}
