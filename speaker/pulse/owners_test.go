package pulse

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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

// inClusters runs a test in clusters of three to five nodes, in which nothing is announced any more.
func inClusters(t *testing.T, test func(t *testing.T, c *cluster)) {
	for size := 3; size <= 5; size++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, size, 24, seeded(1))
			defer c.close()
			c.run(5 * time.Second)
			test(t, c)
		})
	}
}

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

// TestNothingPassesBetweenTwoNodes: all others hear both. Who has an address keeps it, but for the moment until
// others have testified; and when one of the two dies, the other one does not wait to hear that from them.
func TestNothingPassesBetweenTwoNodes(t *testing.T) {
	inClusters(t, func(t *testing.T, c *cluster) {
		before := c.has()
		c.darken([]int{0}, []int{1})
		c.run(2 * time.Second)
		c.expectOne("parted")
		if after := c.has(); !maps.EqualFunc(before, after, slices.Equal) {
			t.Errorf("%d nodes: addresses were at %v, and are at %v", len(c.nodes), before, after)
		}
		moved := c.moves
		c.run(time.Minute)
		if c.moves != moved {
			t.Errorf("%d nodes: addresses moved %d times", len(c.nodes), c.moves-moved)
		}
		if c.longestDouble > simDetection || c.longestNobody > 0 {
			t.Errorf("%d nodes: two answered for %v, nobody for %v", len(c.nodes), c.longestDouble, c.longestNobody)
		}
		c.longestDouble = 0
		c.nodes[1].stop()
		c.run(10 * time.Second)
		c.expectOne("one is dead")
		c.heal()
		c.start(1)
		c.run(2 * time.Second)
		c.expectOne("healed")
		if c.longestNobody > simDetection+2*simInterval || c.longestDouble > simDetection+slack {
			t.Errorf("%d nodes: nobody answered for %v, two for %v", len(c.nodes), c.longestNobody, c.longestDouble)
		}
	})
}

// TestTwoFaultsInOneDirection: of four nodes the first does not hear the last, which does not hear
// the second. Where the second comes first, the last takes over from it, and leaves that to
// nobody: the first hears the second, and so does not answer.
func TestTwoFaultsInOneDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, 24, seeded(1))
		defer c.close()
		c.run(5 * time.Second) // nothing is announced any more
		c.sever(3, 0)
		c.sever(1, 3)
		c.run(10 * time.Second)
		c.expectOne("with two faults")
		if c.longestNobody > simInterval || c.longestDouble > simDetection+slack {
			t.Errorf("nobody answered for %v, two for %v", c.longestNobody, c.longestDouble)
		}
		c.nodes[1].stop() // it is dead for all
		c.run(2 * time.Second)
		c.expectOne("one is dead")
	})
}

// TestANodeThatBeginsAfterADeath: one node dies, and another one begins before Kubernetes knows: it
// believes the others who heard the dead one, and not Kubernetes.
func TestANodeThatBeginsAfterADeath(t *testing.T) {
	inClusters(t, func(t *testing.T, c *cluster) {
		c.nodes[0].stop()
		c.nodes[1].stop()
		c.run(2 * time.Second)
		c.longestNobody = 0
		c.start(1)
		c.run(5 * time.Second)
		c.expectOne("begun anew")
		if c.longestNobody > slack {
			t.Errorf("%d nodes: nobody answered for %v", len(c.nodes), c.longestNobody)
		}
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
			what: rapid.SampledFrom([]string{"cut", "blind", "heal", "crash", "start", "loss", "gateway", "no gateway", "old table", "new table"}).Draw(t, "event"),
			from: node.Draw(t, "from"), to: node.Draw(t, "to"),
			loss:  rapid.Float64Range(0, 0.3).Draw(t, "loss"),
			after: time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond,
		}
	}
}

// happens leaves out what has no remedy: a node that can say nothing to another one can
// have nothing proved by it, so that it must have heard it before, and go on to do so. It does
// not if it begins anew, or loses so much by chance that it takes the other one for dead. And
// two nodes that do not hear each other go by the table, so that they must have one. Who begins where no other
// node runs has only Kubernetes' word for who is dead.
func (c *cluster) happens(e event) {
	n := c.nodes[e.from]
	switch {
	case e.what == "cut", e.what == "blind":
		c.agree()
		if c.lose(0); e.what == "cut" {
			c.sever(e.from, e.to)
		} else if e.from != e.to {
			c.blind(e.from, e.to)
		}
	case e.what == "heal":
		c.heal()
	case e.what == "crash" && n.stop != nil:
		n.stop()
	case e.what == "start" && n.stop == nil && c.runs():
		c.part([]int{e.from}, c.all(), false)
		c.light(e.from)
		c.start(e.from)
		c.run(time.Second)
	case e.what == "loss":
		c.lose(e.loss)
		c.heal()
	case e.what == "gateway", e.what == "no gateway":
		c.withGateway(e.what == "gateway")
	case e.what == "old table" && n.stop != nil:
		c.heal()
		c.run(time.Second) // all hear each other
		n.says(c.turned(e.from, false))
	case e.what == "new table":
		c.agree()
	}
	c.run(e.after)
}

// agree gives all nodes the same table, and the time that it takes to live by it.
func (c *cluster) agree() {
	for i, n := range c.nodes {
		if n.stop != nil {
			n.says(c.table(i))
		}
	}
	c.run(time.Second)
}

// light has all frames get through from a station and to it.
func (c *cluster) light(i int) {
	c.wires.Lock()
	defer c.wires.Unlock()
	for j := range c.nodes {
		delete(c.dark, [2]int{i, j})
		delete(c.dark, [2]int{j, i})
	}
}

// TestOwnersInRandomHistories: whatever wires, nodes, gateway and tables do, two nodes of which one hears the
// other do not both answer for longer than nodes wait for hellos at most, nor does nobody while a node
// runs and all have one table, and in the end each address has one owner.
func TestOwnersInRandomHistories(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(3, 5).Draw(r, "nodes")
		seed := rapid.Uint64().Draw(r, "seed")
		noPreempt := rapid.Bool().Draw(r, "no preemption")
		events := rapid.SliceOfN(rapid.Custom(drawEvent(size)), 1, 12).Draw(r, "events")
		synctest.Test(t, func(t *testing.T) {
			c := newClusterOf(t, size, 5, noPreempt, seeded(seed))
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
			c.agree()
			c.run(4 * time.Second)
			c.idle(8 * time.Second)
			c.expectOne("in the end")
			if c.longestDouble > simBound {
				t.Errorf("two of %d nodes answered for %v: %+v", size, c.longestDouble, events)
			}
			old := slices.ContainsFunc(events, func(e event) bool { return e.what == "old table" })
			if c.longestNobody > simBound+simDetection && !old { // with two tables each may leave it to the other
				t.Errorf("none of %d nodes answered for %v: %+v", size, c.longestNobody, events)
			}
		})
		if t.Failed() {
			r.FailNow()
		}
	})
}

// TestTheLastOneKnowsWhoDiedBefore: a node that begins while another one is dead learns of that from a third one,
// and does not forget it when that one dies as well: it is left alone, and answers for everything.
func TestTheLastOneKnowsWhoDiedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 6, seeded(1))
		defer c.close()
		c.nodes[2].stop()
		c.nodes[1].stop()
		c.run(time.Second)
		c.start(2)
		c.run(2 * time.Second)
		c.expectOne("with one back")
		c.nodes[0].stop()
		c.longestNobody = 0
		c.run(5 * time.Second)
		c.expectOne("with one left")
		if c.longestNobody > simDetection+slack {
			t.Errorf("nobody answered for %v", c.longestNobody)
		}
	})
}

// TestWhoDiedIsPassedOn: of the nodes that run none has ever heard the one that is dead. Those that began
// after its death learned of it from those that are dead as well, and tell those that begin after them.
func TestWhoDiedIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 5, 24, seeded(1))
		defer c.close()
		restart := func(i int) {
			if c.nodes[i].stop != nil {
				c.nodes[i].stop()
			}
			c.run(time.Second)
			c.start(i)
			c.run(time.Second)
		}
		c.nodes[4].stop()
		for round := range 2 {
			for i := range 4 { // as when pulse is upgraded
				restart(i)
				c.expectOne(fmt.Sprintf("node %d has begun in round %d", i, round))
			}
		}
		if bound := simDetection + slack; c.longestNobody > bound || c.longestDouble > bound {
			t.Errorf("nobody answered for %v, two for %v", c.longestNobody, c.longestDouble)
		}
		c.start(4)
		c.run(2 * time.Second)
		c.expectOne("when it is back")
	})
}
