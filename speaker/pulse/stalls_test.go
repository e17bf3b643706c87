package pulse

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/signal"
)

// stall has the server of a node stand still for a while, as on a machine that has no processor for one of its threads. Its hellos go on.
func (n *simNode) stall(d time.Duration) { n.stalled.Store(time.Now().Add(d).UnixNano()) }

// stand waits until the server runs on.
func (n *simNode) stand() {
	if d := time.Until(time.Unix(0, n.stalled.Load())); d > 0 {
		time.Sleep(d)
	}
}

// pull pulls the cable of a node out of the switch, or plugs it in.
func (c *cluster) pull(i int, out bool) {
	if out {
		c.darken([]int{i}, append(c.all(), gatewayIndex))
	} else {
		c.heal()
	}
	n := c.nodes[i]
	c.wires.Lock()
	defer c.wires.Unlock()
	if n.pulled = out; !out {
		n.ups++
	}
	signal.Send(n.cable)
}

// TestStallsMoveNothingWithoutPreemption: the cable of a node is plugged in again while the servers of nodes stand still, each for a while.
func TestStallsMoveNothingWithoutPreemption(t *testing.T) {
	many := uint64(60)
	if testing.Short() {
		many = 16
	}
	for seed := range many {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			c := newClusterOf(t, 2+int(seed%4), 8, true, seeded(seed))
			defer c.close()
			c.withGateway(seed%2 == 0)
			c.run(time.Second)
			c.pull(1, true)
			c.run(5 * time.Second)
			before := c.keepers()
			for a, nodes := range before {
				if slices.Contains(nodes, 1) {
					t.Fatalf("seed %d: %s is answered for by %v while a cable is out", seed, a, nodes)
				}
			}
			stall := func() {
				for _, n := range c.nodes {
					if random.IntN(2) == 0 {
						n.stall(time.Duration(random.IntN(2000)) * time.Millisecond)
					}
				}
			}
			if random.IntN(2) == 0 {
				stall()
			}
			c.run(time.Duration(random.IntN(100)) * time.Millisecond)
			c.pull(1, false)
			c.run(time.Duration(random.IntN(400)) * time.Millisecond)
			stall()
			c.run(5 * time.Second)
			c.expectKept("it is back", before)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}
