package pulse

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// asked is for how long a kernel is asked that does not answer.
const asked = questions * questionEvery

// former tells whether the nodes that answer now for what a node had before hand connections over to it.
func (c *cluster) former(had []netip.Addr, node int) (all, none bool) {
	all, none = true, true
	for _, a := range had {
		for _, owner := range c.answering(a) {
			hands := c.nodes[owner].hands.to()[a] == c.nodes[node].addr
			all, none = all && hands, none && !hands
		}
	}
	return all, none
}

// TestConnectionsStayWithAKernelThatGoesOn: from before a takeover on the next nodes know where the connections
// are, without a moment in between, if pulse alone has died; and not for long if the machine has.
func TestConnectionsStayWithAKernelThatGoesOn(t *testing.T) {
	for size := 2; size <= 4; size++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, size, 10, seeded(1))
			defer c.close()
			c.withGateway(true)
			c.run(5 * time.Second)
			var had []netip.Addr
			for _, a := range c.vips {
				if slices.Equal(c.answering(a), []int{0}) {
					had = append(had, a)
				}
			}
			handing := func(d time.Duration) {
				t.Helper()
				for end := time.Now().Add(d); time.Now().Before(end); c.run(simStep) {
					if all, _ := c.former(had, 0); !all {
						t.Fatalf("%d nodes: connections are lost though the kernel has them", size)
					}
				}
			}
			c.kill(0)
			c.run(simDetection + 2*simInterval)
			c.expectOf("killed", c.all()[1:]...)
			handing(15 * time.Second)
			c.start(0)
			c.run(2 * time.Second)
			c.expectOne("back")
			c.kill(0)
			c.run(simDetection + 2*simInterval)
			handing(time.Second)
			c.nodes[0].kernel.Store(false)
			c.run(askAgain + asked + slack)
			if _, none := c.former(had, 0); !none {
				t.Errorf("%d nodes: connections are handed over to a machine that is dead", size)
			}
			if c.longestNobody > simDetection+simInterval {
				t.Errorf("%d nodes: nobody answered for %v", size, c.longestNobody)
			}
			moved := maps.Clone(c.owners)
			c.run(10 * time.Second)
			if !maps.EqualFunc(moved, c.owners, slices.Equal) {
				t.Errorf("%d nodes: addresses moved while nothing changed", size)
			}
		})
	}
}

// TestADeadMachineCostsNoMore than the time in which it is asked; nobody hands connections over to it then.
func TestADeadMachineCostsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 10, seeded(1))
		defer c.close()
		c.run(5 * time.Second)
		var had []netip.Addr
		for _, a := range c.vips {
			if slices.Equal(c.answering(a), []int{0}) {
				had = append(had, a)
			}
		}
		c.nodes[0].stop()
		c.run(simDetection + simInterval + asked + slack)
		c.expectOf("dead", 1, 2)
		if _, none := c.former(had, 0); !none {
			t.Error("connections are handed over to a machine that is dead")
		}
		if c.longestNobody > simDetection+simInterval {
			t.Errorf("nobody answered for %v", c.longestNobody)
		}
	})
}
