package pulse

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// darken has no frames get through both ways between two groups of stations.
func (c *cluster) darken(left, right []int) {
	for _, i := range left {
		for _, j := range right {
			c.blind(i, j)
			c.blind(j, i)
		}
	}
}

// blind has no frames get from one station to another one.
func (c *cluster) blind(from, to int) {
	c.wires.Lock()
	defer c.wires.Unlock()
	c.dark[[2]int{from, to}] = true
}

// withGateway puts a gateway on the segment, or takes it off.
func (c *cluster) withGateway(there bool) {
	c.wires.Lock()
	defer c.wires.Unlock()
	c.gateway = there
}

// doubled lets time pass, and says for how long in all two nodes answered for an address.
func (c *cluster) doubled(d time.Duration) time.Duration {
	var longest time.Duration
	since := map[int]time.Time{}
	for end := time.Now().Add(d); time.Now().Before(end); c.run(simStep) {
		for i, a := range c.vips {
			two := len(c.answering(a)) > 1
			switch {
			case !two:
				delete(since, i)
			case since[i].IsZero():
				since[i] = time.Now()
			default:
				longest = max(longest, time.Since(since[i]))
			}
		}
	}
	return longest
}

// expectOf fails the test unless, for each address, one of these nodes answers and no other.
func (c *cluster) expectOf(when string, nodes ...int) {
	c.t.Helper()
	c.expectOne(when)
	for _, a := range c.vips {
		if owners := c.answering(a); !slices.Contains(nodes, owners[0]) {
			c.t.Fatalf("%s: %v answer for %s, not one of %v", when, owners, a, nodes)
		}
	}
}

// TestThoseWhoAreCutOffStop: two of five nodes, one of three and one of two lose the others
// and the gateway. They stop within a detection time of the others taking over; and not if
// the gateway still answers them.
func TestThoseWhoAreCutOffStop(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, size, 10, seeded(1))
			defer c.close()
			c.withGateway(true)
			few, most := c.all()[:size/2], c.all()[size/2:]
			c.darken(few, append([]int{gatewayIndex}, most...))
			if both := c.doubled(3 * time.Second); both > simDetection {
				t.Errorf("%d nodes: two answered for %v", size, both)
			}
			c.expectOf("parted", most...)
			moved := c.moves
			c.run(time.Minute)
			if c.moves != moved {
				t.Errorf("%d nodes: addresses moved %d times while nothing changed", size, c.moves-moved)
			}
			c.heal()
			c.run(2 * time.Second)
			c.expectOne("healed")
			if c.longestNobody > simDetection+questions*questionEvery+simBound {
				t.Errorf("%d nodes: nobody answered for %v", size, c.longestNobody)
			}
		})
	}
}

// TestThoseWhomTheGatewayAnswersGoOn: the smaller part may be the one that clients reach.
func TestThoseWhomTheGatewayAnswersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 5, 10, seeded(1))
		defer c.close()
		c.withGateway(true)
		few, most := []int{0, 1}, []int{2, 3, 4}
		c.darken(few, most)
		c.run(time.Minute)
		for _, a := range c.vips {
			if owners := c.answering(a); len(owners) != 2 || owners[0] > 1 || owners[1] < 2 {
				t.Errorf("parted: %v answer for %s", owners, a)
			}
		}
		// All but one of the larger part die at once: it asks, and goes on.
		c.nodes[2].stop()
		c.nodes[3].stop()
		c.nodes[0].stop()
		c.nodes[1].stop()
		c.run(time.Minute)
		c.expectOf("alone", 4)
		// And goes on without a gateway, which may be restarted.
		c.darken([]int{gatewayIndex}, c.all())
		c.run(time.Minute)
		c.expectOf("alone for long", 4)
	})
}

// TestTwoNodes goes through what can happen to two nodes, of which none has a majority.
func TestTwoNodes(t *testing.T) {
	const a, b = 0, 1
	both, onlyA, onlyB, one := []int{a, b}, []int{a}, []int{b}, []int(nil)
	for _, tt := range []struct {
		what    string
		gateway bool
		happens func(c *cluster)
		answer  []int // nil: either, and not both
	}{
		{"hellos of A do not reach B", true, func(c *cluster) { c.sever(a, b) }, onlyB},
		{"hellos of A do not reach B, no gateway", false, func(c *cluster) { c.sever(a, b) }, onlyB},
		{"hellos of B do not reach A", true, func(c *cluster) { c.sever(b, a) }, onlyA},
		{"frames of A do not reach B", true, func(c *cluster) { c.blind(a, b) }, onlyB},
		{"frames of B do not reach A", true, func(c *cluster) { c.blind(b, a) }, onlyA},
		{"no hellos reach the other", true, func(c *cluster) { c.part([]int{a}, []int{b}, true) }, one},
		{"no hellos reach the other, no gateway", false, func(c *cluster) { c.part([]int{a}, []int{b}, true) }, one},
		{"nothing of A reaches anybody", true, func(c *cluster) { c.blind(a, b); c.blind(a, gatewayIndex) }, onlyB},
		{"nothing reaches A", true, func(c *cluster) { c.blind(b, a); c.blind(gatewayIndex, a) }, onlyB},
		{"the cable of A", true, func(c *cluster) { c.darken([]int{a}, []int{b, gatewayIndex}) }, onlyB},
		{"A is dead", true, func(c *cluster) { c.nodes[a].stop() }, onlyB},
		{"A is dead, no gateway", false, func(c *cluster) { c.nodes[a].stop() }, onlyB},
		// What has no remedy: each may be the only one that clients reach.
		{"the cable between two switches", true, func(c *cluster) { c.darken([]int{a}, []int{b}) }, both},
		{"the cable of A, no gateway", false, func(c *cluster) { c.darken([]int{a}, []int{b}) }, both},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2, 10, seeded(1))
			defer c.close()
			c.withGateway(tt.gateway)
			tt.happens(c)
			doubled := c.doubled(20 * time.Second)
			for _, vip := range c.vips {
				switch got := c.answering(vip); {
				case tt.answer == nil && len(got) != 1, tt.answer != nil && !slices.Equal(got, tt.answer):
					t.Errorf("%s: %v answer for %s, want %v", tt.what, got, vip, tt.answer)
				}
			}
			if len(tt.answer) < 2 && doubled > simDetection+slack {
				t.Errorf("%s: two answered for %v", tt.what, doubled)
			}
			moved := c.moves
			c.run(20 * time.Second)
			if c.moves != moved {
				t.Errorf("%s: addresses moved %d times while nothing changed", tt.what, c.moves-moved)
			}
			c.heal()
			if c.nodes[a].stop == nil {
				c.start(a)
			}
			c.run(2 * time.Second)
			c.expectOne(fmt.Sprintf("%s, and healed", tt.what))
		})
	}
}
