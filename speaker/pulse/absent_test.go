package pulse

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNodesThatBeginBesideADeadOne, all of them, know that it is dead before Kubernetes does. They do not take
// from it what it may answer for: where its kernel goes on, or where nothing tells whether it is they who are cut off.
func TestNodesThatBeginBesideADeadOne(t *testing.T) {
	for what, tt := range map[string]struct {
		size            int
		kernel, gateway bool
		taken           bool
	}{
		"one, with a gateway":           {2, false, true, true},
		"one, and nothing else":         {2, false, false, false},
		"two":                           {3, false, false, true},
		"four":                          {5, false, true, true},
		"two, and its kernel goes on":   {3, true, true, false},
		"one, and the other's goes on":  {2, true, true, false},
		"four, and the other's goes on": {5, true, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, tt.size, 20, seeded(1))
			defer c.close()
			c.withGateway(tt.gateway)
			c.run(time.Second)
			for i := range c.nodes {
				c.kill(i)
			}
			c.nodes[0].kernel.Store(tt.kernel)
			c.run(time.Second)
			for i := range c.nodes[1:] {
				c.start(1 + i)
			}
			c.run(simDetection + absentQuestions*absentEvery + time.Second)
			served := 0
			for _, a := range c.vips {
				served += len(c.answering(a))
			}
			if all := served == len(c.vips); all != tt.taken {
				t.Errorf("%s: %d of %d addresses are answered for", what, served, len(c.vips))
			}
			if !tt.taken {
				return
			}
			moved := c.moves
			if c.run(10 * time.Second); c.moves != moved {
				t.Errorf("%s: addresses moved %d times while nothing changed", what, c.moves-moved)
			}
			c.start(0)
			c.longestNobody = 0
			c.run(3 * time.Second)
			c.expectOne(what)
			for _, n := range c.nodes {
				if silent := n.state().Silent; len(silent) > 0 {
					t.Errorf("%s: %s takes %v for dead when all are back", what, n.name, silent)
				}
			}
			if c.longestNobody > 0 {
				t.Errorf("%s: nobody answered for %v when it came back", what, c.longestNobody)
			}
		})
	}
}
