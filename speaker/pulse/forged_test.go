package pulse

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestFramesWithTheMACOfADeadNode: any station of the segment can send them, and they move nothing: not while
// the node that they tell of does not reply to a poll.
func TestFramesWithTheMACOfADeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 12, seeded(1))
		defer c.close()
		owners := c.has()
		c.nodes[0].stop()
		c.run(2 * time.Second)
		c.expectOne("after the death")
		c.longestNobody, c.moves = 0, 0
		for range 24 {
			for _, a := range c.vips {
				for _, n := range c.nodes[1:] {
					if owners[a][0] == 0 {
						n.answers.Load().hears(a, 0)
					}
				}
			}
			c.run(500 * time.Millisecond)
		}
		if c.longestNobody > 0 || c.moves > 0 {
			t.Errorf("%d moves, and nobody answered for %v", c.moves, c.longestNobody)
		}
	})
}

// TestAFrameEndsNoHandOver: a node goes on until its successor replies, which has the old table here.
func TestAFrameEndsNoHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 1, seeded(1))
		defer c.close()
		owner := c.has()[c.vips[0]][0]
		ahead := c.table(owner) // by which the address is the next node's
		candidates := slices.Clone(ahead.Claims[c.vips[0]].Candidates)
		ahead.Claims[c.vips[0]] = desired.Candidacy{Candidates: append(candidates[1:], candidates[0])}
		c.nodes[owner].says(ahead)
		c.run(time.Second)
		c.longestNobody, c.moves = 0, 0
		for i := range c.nodes {
			if i != owner {
				c.nodes[owner].answers.Load().hears(c.vips[0], i)
			}
		}
		c.run(5 * time.Second)
		if c.longestNobody > 0 || c.moves > 0 {
			t.Errorf("%d moves, and nobody answered for %v", c.moves, c.longestNobody)
		}
	})
}
