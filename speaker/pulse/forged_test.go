package pulse

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
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

// TestWhoseFrameItIs: the Ethernet source and the sender of ARP and NDP have to be of one node.
func TestWhoseFrameItIs(t *testing.T) {
	second := neighbour.MAC{2, 0, 0, 0, 0, 21}
	n := nodes{complete: true, known: map[hello.Station]acquaintance{}}
	for _, m := range []neighbour.MAC{colleague, second} {
		n.known[hello.Station(m)] = acquaintance{"b", noon.Add(time.Hour)}
	}
	for name, test := range map[string]struct{ station, source, want neighbour.MAC }{
		"of a node":                  {colleague, neighbour.MAC{}, colleague},
		"of a stranger":              {stranger, neighbour.MAC{}, stranger},
		"of a node, by another card": {colleague, second, colleague},
		"a stranger tells of a node": {colleague, stranger, stranger},
		"of a virtual router":        {stranger, neighbour.MAC{2, 0, 0, 0, 9, 8}, stranger},
		"a node tells of a stranger": {stranger, colleague, stranger},
	} {
		claim := says(vip4, test.station)
		claim.Source = test.source
		if got := n.attribute(claim).Station; got != test.want {
			t.Errorf("%s: it is of %v, want %v", name, got, test.want)
		}
	}
}
