package pulse

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// expectKept fails the test unless each address has the node that it had, and none is said to be left to another one.
func (c *cluster) expectKept(when string, before map[string][]int) {
	c.t.Helper()
	c.expectOne(when)
	moved := 0
	for a, nodes := range c.keepers() {
		if !slices.Equal(nodes, before[a]) {
			moved++
		}
	}
	if moved > 0 {
		c.t.Errorf("%s: %d addresses moved", when, moved)
	}
	for _, n := range c.nodes {
		if n.stop != nil && len(n.state().Left) > 0 {
			c.t.Errorf("%s: %s tells of differing tables: %v", when, n.name, n.state().Left)
		}
	}
}

// keepers are the nodes that answer for each address now.
func (c *cluster) keepers() map[string][]int {
	has := map[string][]int{}
	for a, nodes := range c.has() {
		has[a.String()] = nodes
	}
	return has
}

// TestANodeThatComesBackTakesNothingFromOthers where no candidate preempts: each address moves when its node dies, and then
// no more, however often that comes back. If the node that has it then dies, the first that is alive takes and keeps it.
func TestANodeThatComesBackTakesNothingFromOthers(t *testing.T) {
	many := 600
	if testing.Short() {
		many = 100
	}
	for _, addresses := range []int{24, many} {
		for _, size := range []int{2, 3, 5} {
			synctest.Test(t, func(t *testing.T) {
				c := newClusterOf(t, size, addresses, true, seeded(1))
				defer c.close()
				c.run(time.Second)
				c.nodes[0].stop()
				c.run(2 * time.Second)
				before := c.keepers()
				c.longestDouble, c.moves = 0, 0
				c.start(0)
				c.run(time.Second)
				c.idle(20 * time.Second)
				c.expectKept("it is back", before)
				for range 3 {
					c.nodes[0].stop()
					c.run(time.Second)
					c.start(0)
					c.run(3 * time.Second)
				}
				c.expectKept("it is back again", before)
				if c.moves > 0 || c.longestDouble > 0 {
					t.Errorf("%d nodes: %d moves while it came back, two answered for %v", size, c.moves, c.longestDouble)
				}
				c.nodes[1].stop()
				c.run(2 * time.Second)
				c.expectOne("the second is dead")
				before = c.keepers()
				c.start(1)
				c.run(5 * time.Second)
				c.expectKept("the second is back", before)
				if bound := simDetection + 2*simInterval; c.longestNobody > bound || c.longestDouble > slack {
					t.Errorf("%d nodes: nobody answered for %v, two for %v", size, c.longestNobody, c.longestDouble)
				}
			})
		}
	}
}

// restart ends the process of a node, which says that it will be back, and begins it anew after a while.
func (c *cluster) restart(i int, after time.Duration) {
	c.nodes[i].goodbye(restartHold)
	c.run(slack)
	c.nodes[i].stop()
	c.run(after)
	c.start(i)
}

// TestARestartMovesNothingWithoutPreemption, no candidate preempts: neither of a node that has what another one
// comes before it for, nor of that one.
func TestARestartMovesNothingWithoutPreemption(t *testing.T) {
	for _, addresses := range []int{24, 300} {
		synctest.Test(t, func(t *testing.T) {
			c := newClusterOf(t, 3, addresses, true, seeded(1))
			defer c.close()
			c.nodes[0].stop()
			c.run(time.Second)
			c.start(0)
			c.run(5 * time.Second)
			before := c.keepers()
			for i := range c.nodes {
				c.restart(i, time.Second)
				c.run(3 * time.Second)
				c.expectKept("it was restarted", before)
			}
			bound := time.Second + 2*simDetection
			if addresses > hello.AtOnce { // those that a node comes first for wait until it knows which are claimed
				bound += 2 * hello.TurnOf(addresses, 3)
			}
			if c.longestDouble > slack || c.longestNobody > bound {
				t.Errorf("%d addresses: two answered for %v, nobody for %v", addresses, c.longestDouble, c.longestNobody)
			}
		})
	}
}

// TestPartsThatMeetAgainWithoutPreemption: a node that was cut off, with a gateway or without one, or two of five, take back nothing that others took
// meanwhile, and keep nothing that they took themselves.
func TestPartsThatMeetAgainWithoutPreemption(t *testing.T) {
	for what, tt := range map[string]struct {
		size    int
		part    []int
		gateway bool
	}{
		"one, with a gateway":    {3, []int{0}, true},
		"one, without a gateway": {3, []int{0}, false},
		"two of five":            {5, []int{0, 1}, true},
		"the only other one":     {2, []int{0}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClusterOf(t, tt.size, 24, true, seeded(1))
			defer c.close()
			c.withGateway(tt.gateway)
			c.run(5 * time.Second)
			others := slices.DeleteFunc(c.all(), func(i int) bool { return slices.Contains(tt.part, i) })
			cut := others
			if tt.gateway && len(tt.part) == 1 {
				cut = append(slices.Clone(others), gatewayIndex)
			}
			c.darken(tt.part, cut)
			c.run(5 * time.Second)
			before := c.keepers()
			for _, nodes := range before { // what is answered for in both parts stays with the others
				if slices.ContainsFunc(nodes, func(i int) bool { return slices.Contains(others, i) }) {
					continue
				}
				t.Errorf("%s: %v answer while it is cut off", what, nodes)
			}
			for a, nodes := range before {
				before[a] = slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return slices.Contains(tt.part, i) })
			}
			c.heal()
			clear(c.double)
			c.longestDouble = 0
			c.run(20 * time.Second)
			t.Logf("%s: two answered for %v once they met", what, c.longestDouble)
			c.expectKept(what, before)
			if c.longestDouble > simDetection {
				t.Errorf("%s: two answered for %v once they met", what, c.longestDouble)
			}
		})
	}
}

// TestPreemptionIsTurnedOffAndOn: the first moves nothing, and the second moves addresses back to the first candidates without
// a gap, whichever node learns of it first.
func TestPreemptionIsTurnedOffAndOn(t *testing.T) {
	for _, first := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, 24, seeded(1))
			defer c.close()
			home := c.keepers()
			c.noPreempt = true
			c.agree()
			c.nodes[0].stop()
			c.run(time.Second)
			before := c.keepers()
			c.start(0)
			c.run(5 * time.Second)
			c.expectKept("off", before)
			c.noPreempt, c.longestNobody, c.longestDouble = false, 0, 0
			for i := range c.nodes {
				n := c.nodes[(first+i)%len(c.nodes)]
				n.says(c.table(n.index))
				c.run(500 * time.Millisecond)
			}
			c.run(3 * time.Second)
			c.expectKept("on again", home)
			if c.longestNobody > 0 || c.longestDouble > simInterval {
				t.Errorf("the first learns of it as number %d: nobody answered for %v, two for %v", 1+len(c.nodes)-first, c.longestNobody, c.longestDouble)
			}
		})
	}
}

// TestTwoNodesThatDoNotHearEachOtherWithoutPreemption, while a third one hears both, do not hear each other's claims: between them the
// table decides, and each address has one node.
func TestTwoNodesThatDoNotHearEachOtherWithoutPreemption(t *testing.T) {
	for what, part := range map[string]func(c *cluster){
		"in either direction":   func(c *cluster) { c.darken([]int{0}, []int{1}) },
		"the one that is back":  func(c *cluster) { c.sever(1, 0) },
		"the one that answers":  func(c *cluster) { c.sever(0, 1) },
		"nor its frames either": func(c *cluster) { c.blind(1, 0) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClusterOf(t, 3, 24, true, seeded(1))
			defer c.close()
			c.nodes[0].stop()
			c.run(time.Second)
			c.start(0)
			c.run(5 * time.Second)
			c.longestDouble, c.longestNobody = 0, 0
			part(c)
			c.run(20 * time.Second)
			c.expectOne(what)
			c.heal()
			c.run(5 * time.Second)
			c.expectOne(what + ", healed")
			t.Logf("%s: two answered for %v, none for %v", what, c.longestDouble, c.longestNobody)
			if c.longestDouble > 500*time.Millisecond || c.longestNobody > simDetection {
				t.Errorf("%s: two answered for %v, none for %v", what, c.longestDouble, c.longestNobody)
			}
		})
	}
}
