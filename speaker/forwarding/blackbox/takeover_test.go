package blackbox_test

import (
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestTakeover has each backend take over from those of other modes on a live node:
// it begins while the other is at work, which then cleans up after itself. Flows of
// all kinds stay open, and at each moment all are served.
func TestTakeover(t *testing.T) {
	t.Parallel()
	mode := func(c contender) string { return strings.SplitN(c.name, "-", 2)[0] }
	for _, first := range contenders {
		for _, next := range contenders {
			if mode(first) == mode(next) {
				continue // of one mode a node runs one backend
			}
			t.Run(first.name+" to "+next.name, func(t *testing.T) {
				t.Parallel()
				takeOver(t, &cluster{blackbox.NewCluster(t, first.create), first, t}, next)
			})
		}
	}
}

func takeOver(t *testing.T, c *cluster, next contender) {
	want := blackbox.Forwarding(slices.Concat(blackbox.Services(), moreServices())...)
	c.Apply(want)
	flows := c.establish(want)
	check := func(when string) {
		t.Helper()
		if err := live(flows); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if err := c.askAbout(0, want); err != nil {
			t.Errorf("%s, new flows: %v", when, err)
		}
	}
	c.Node.Do(func() {
		successor, err := next.create()
		if err == nil {
			_, err = successor.Apply(t.Context(), want)
		}
		if err != nil {
			t.Error(err)
		}
	})
	check("both are at work")
	c.Cleanup()
	check("the first is gone")
}
