package pulse

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// blackout has no frame get anywhere, as while the switch of the whole segment is off.
func (c *cluster) blackout() {
	c.wires.Lock()
	defer c.wires.Unlock()
	for i := range c.nodes {
		for j := range gatewayIndex + 1 {
			if i != j {
				c.dark[[2]int{i, j}], c.dark[[2]int{j, i}] = true, true
			}
		}
	}
}

// TestTheSwitchIsOffForAWhile: once it is back, each address has one node, the one that it had, and moves no more.
func TestTheSwitchIsOffForAWhile(t *testing.T) {
	outages := []time.Duration{5 * time.Second, 20 * time.Second, time.Minute, 10 * time.Minute}
	if testing.Short() {
		outages = outages[:2]
	}
	for _, off := range outages {
		for _, gateway := range []bool{false, true} {
			for _, size := range []int{2, -2, 5, -5} { // without preemption, if negative
				synctest.Test(t, func(t *testing.T) {
					c := newClusterOf(t, max(size, -size), 10, size < 0, seeded(1))
					defer c.close()
					c.withGateway(gateway)
					before := c.has()
					c.blackout()
					c.idle(off)
					c.heal()
					clear(c.double)
					clear(c.nobody)
					c.longestDouble, c.longestNobody = 0, 0
					c.run(time.Second)
					moves := c.moves
					t.Logf("%d nodes, gateway %t, off for %v: when it was back, two answered for %v and nobody for %v", size, gateway, off, c.longestDouble, c.longestNobody)
					if c.longestDouble > simDetection || c.longestNobody > time.Second {
						t.Errorf("%d nodes, gateway %t, off for %v: two answered for %v, nobody for %v", size, gateway, off, c.longestDouble, c.longestNobody)
					}
					c.idle(time.Minute)
					c.expectOne("after the outage")
					if after := c.has(); !maps.EqualFunc(before, after, slices.Equal) || c.moves != moves {
						t.Errorf("%d nodes, gateway %t, off for %v: %d moves later on; they had %v and have %v", size, gateway, off, c.moves-moves, before, after)
					}
				})
			}
		}
	}
}
