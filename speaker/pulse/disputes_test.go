package pulse

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/speaker/desired"
)

// stale is the table of a node with the candidates for some addresses in another order, so
// that it is the first of them and not the last.
func (c *cluster) stale(i, addresses int) api.Table {
	t := c.table(i)
	for _, a := range c.vips {
		candidates := slices.Clone(t.Claims[a].Candidates)
		if slices.Reverse(candidates); candidates[0] == t.Node && addresses > 0 {
			t.Claims[a] = desired.Candidacy{Candidates: candidates}
			addresses--
		}
	}
	if addresses > 0 {
		c.t.Fatalf("%d addresses too few", addresses)
	}
	return t
}

// TestNodesWithDifferentTables: one node has another order of the candidates, as if it had lost
// the API server. Two nodes that hear each other do not both answer for longer than a detection
// time, though hundreds of addresses be in dispute. With -short they are dozens.
func TestNodesWithDifferentTables(t *testing.T) {
	disputed := []int{8, 24, 400}
	if testing.Short() {
		disputed = disputed[:2]
	}
	for _, addresses := range disputed {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, min(4*addresses, 3400), seeded(1))
			defer c.close()
			time.Sleep(10 * time.Second) // all answered for all when they began
			c.longestDouble = 0
			c.nodes[0].says(c.stale(0, addresses))
			c.run(500 * time.Millisecond)
			c.expectOne("in dispute")
			t.Logf("%d addresses: two answered for %v", addresses, c.longestDouble)
			if c.longestDouble == 0 || c.longestDouble > simDetection {
				t.Errorf("%d addresses: two answered for %v", addresses, c.longestDouble)
			}
			moved := c.moves
			for range 100 {
				time.Sleep(600 * time.Millisecond)
				c.look()
			}
			if c.moves != moved {
				t.Errorf("%d addresses: %d moves while nothing changed", addresses, c.moves-moved)
			}
			c.longestDouble = 0
			c.nodes[0].says(c.table(0))
			c.run(time.Second)
			c.expectOne("with one table")
			if c.longestDouble > simDetection {
				t.Errorf("%d addresses: two answered for %v when the tables were one again", addresses, c.longestDouble)
			}
		})
	}
}

// TestPartedByAFirewall: hellos of two nodes do not reach three others any more, and their
// frames do. Each address has one node all the same.
func TestPartedByAFirewall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 5, 10, seeded(1))
		defer c.close()
		c.withGateway(true)
		c.part([]int{0, 1}, []int{2, 3, 4}, true)
		if both := c.doubled(5 * time.Second); both > simDetection {
			t.Errorf("two answered for %v", both)
		}
		c.expectOne("parted")
		moved := c.moves
		c.run(time.Minute)
		c.expectOne("parted for long")
		if c.moves != moved {
			t.Errorf("%d moves while nothing changed", c.moves-moved)
		}
		for _, n := range c.nodes[2:] {
			n.stop()
		}
		c.run(5 * time.Second)
		c.expectOf("the others are dead", 0, 1)
	})
}
