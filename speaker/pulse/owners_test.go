package pulse

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func seeded(seed uint64) func() float64 { return rand.New(rand.NewPCG(seed, 1)).Float64 }

// simBound is for how long a node waits for hellos at most, however many are lost.
const simBound = 20 * simInterval

// slack is what hellos take from node to node, and how closely is looked.
const slack = 4 * simStep

// TestOneWayLoss: what one node sends does not reach another one, which takes it for dead
// and takes over; the first one learns that and leaves it be.
func TestOneWayLoss(t *testing.T) {
	for size := 3; size <= 5; size++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, size, 10, seeded(1))
			defer c.close()
			for from := range size {
				c.sever(from, (from+1)%size)
				c.run(15 * time.Second)
				c.expectOne("while one does not hear another")
				c.heal()
				c.run(2 * time.Second)
				c.expectOne("healed")
			}
			if c.longestDouble > simDetection+slack {
				t.Errorf("%d nodes: two answered for %v", size, c.longestDouble)
			}
			if c.longestNobody > simInterval {
				t.Errorf("%d nodes: nobody answered for %v", size, c.longestNobody)
			}
		})
	}
}

// TestPartedAndHealed: two of five nodes are cut off from the others; each part has one node for
// each address, and it is one again soon after.
func TestPartedAndHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 5, 10, seeded(1))
		defer c.close()
		c.darken([]int{0, 1}, []int{2, 3, 4})
		c.run(15 * time.Second)
		for _, a := range c.vips {
			if owners := c.answering(a); len(owners) != 2 || owners[0] > 1 || owners[1] < 2 {
				t.Errorf("parted: %v answer for %s", owners, a)
			}
		}
		moved := c.moves
		c.run(15 * time.Second)
		if c.moves != moved {
			t.Errorf("parted: addresses moved %d times", c.moves-moved)
		}
		c.heal()
		c.run(2 * time.Second)
		c.expectOne("healed")
		if c.longestDouble > simDetection+slack {
			t.Errorf("two answered for %v", c.longestDouble)
		}
		if c.moves > 3*len(c.vips) {
			t.Errorf("%d moves of %d addresses", c.moves, len(c.vips))
		}
	})
}

// TestThirtyPercentLoss for ten minutes: nodes may be taken for dead before they are waited
// for longer, and hardly after.
func TestThirtyPercentLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 10, seeded(1))
		defer c.close()
		c.lose(0.3)
		c.run(10 * time.Second)
		learning := c.moves
		c.run(10*time.Minute - 10*time.Second)
		t.Logf("%d moves in the first ten seconds, %d in ten minutes; two answered for %v, nobody for %v",
			learning, c.moves, c.longestDouble, c.longestNobody)
		if c.moves > 12*len(c.vips) {
			t.Errorf("%d moves of %d addresses", c.moves, len(c.vips))
		}
		if c.longestDouble > simDetection+2*simInterval {
			t.Errorf("two answered for %v", c.longestDouble)
		}
		c.lose(0)
		c.run(2 * time.Second)
		c.expectOne("after the loss")
	})
}

// event is something that happens to a cluster.
type event struct {
	what     string
	from, to int
	loss     float64
	after    time.Duration // time that passes then
}

func drawEvent(size int) func(t *rapid.T) event {
	node := rapid.IntRange(0, size-1)
	return func(t *rapid.T) event {
		return event{
			what: rapid.SampledFrom([]string{"cut", "heal", "crash", "start", "loss"}).Draw(t, "event"),
			from: node.Draw(t, "from"), to: node.Draw(t, "to"),
			loss:  rapid.Float64Range(0, 0.3).Draw(t, "loss"),
			after: time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond,
		}
	}
}

// happens leaves out what has no remedy: a node that can say nothing to another one can
// have nothing proved by it, so that it must have heard it before, and go on to do so. It does
// not if it begins anew, or loses so much by chance that it takes the other one for dead.
func (c *cluster) happens(e event) {
	n := c.nodes[e.from]
	switch {
	case e.what == "cut":
		c.sever(e.from, e.to)
		c.lose(0)
	case e.what == "heal":
		c.heal()
	case e.what == "crash" && n.stop != nil:
		n.stop()
	case e.what == "start" && n.stop == nil:
		c.part([]int{e.from}, c.all(), false)
		c.start(e.from)
		c.run(time.Second)
	case e.what == "loss":
		c.lose(e.loss)
		c.heal()
	}
	c.run(e.after)
}

// TestOwnersInRandomHistories: whatever wires and nodes do, two nodes of which one hears the
// other do not both answer for longer than nodes wait for hellos at most, and in the end each
// address has one owner.
func TestOwnersInRandomHistories(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(3, 5).Draw(r, "nodes")
		seed := rapid.Uint64().Draw(r, "seed")
		events := rapid.SliceOfN(rapid.Custom(drawEvent(size)), 1, 12).Draw(r, "events")
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, size, 5, seeded(seed))
			defer c.close()
			for _, e := range events {
				c.happens(e)
			}
			c.lose(0)
			c.heal()
			c.run(2 * time.Second)
			for i, n := range c.nodes {
				if n.stop == nil {
					c.start(i)
				}
			}
			c.run(12 * time.Second)
			c.expectOne("in the end")
			if c.longestDouble > simBound {
				t.Errorf("two of %d nodes answered for %v: %+v", size, c.longestDouble, events)
			}
		})
		if t.Failed() {
			r.FailNow()
		}
	})
}
