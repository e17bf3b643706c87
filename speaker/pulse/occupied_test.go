package pulse

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// announce hands over tables with addresses that are new to the cluster.
func (c *cluster) announce(vips ...netip.Addr) {
	c.vips = vips
	for i, n := range c.nodes {
		n.says(c.table(i))
	}
}

// free has no interface of a node have the addresses any more.
func (c *cluster) free() {
	c.wires.Lock()
	defer c.wires.Unlock()
	clear(c.occupied)
}

// TestAnAddressOnAnInterfaceOfANode is one that a kernel has and no pulse claims, as the virtual IP of keepalived.
// No node answers for it, that one neither; the conflict is told with its name. Nor does one after the node that withheld it has died.
func TestAnAddressOnAnInterfaceOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 0, seeded(1))
		defer c.close()
		var vips []netip.Addr
		c.wires.Lock()
		c.occupied = map[netip.Addr]int{}
		for i := range 12 {
			vips = append(vips, netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}))
			c.occupied[vips[i]] = 0
		}
		c.wires.Unlock()
		c.announce(vips...)
		told := map[int]int{}
		for range 100 {
			c.run(200 * time.Millisecond)
			for a, by := range c.has() {
				if len(by) > 0 {
					t.Fatalf("%v answer for %s", by, a)
				}
			}
		}
		for i, n := range c.nodes {
			for a, contest := range n.state().Contested {
				if contest.Node != "node-0" || !contest.Withheld {
					t.Errorf("node %d tells of %s: %+v", i, a, contest)
				}
				told[i]++
			}
		}
		if told[0] == 0 || told[1]+told[2] == 0 || told[0]+told[1]+told[2] != len(vips) {
			t.Errorf("conflicts told by node: %v", told)
		}
		c.kill(1)
		for range 50 {
			c.run(200 * time.Millisecond)
			for a, by := range c.has() {
				if len(by) > 0 {
					t.Fatalf("%v answer for %s since the node that withheld it is dead", by, a)
				}
			}
		}
		c.free()
		c.run(2 * retryProbes)
		c.expectOne("free")
	})
}

// TestAnAddressThatAnotherSpeakerAnnounces moves, as while MetalLB is replaced: its speaker goes on, and is stopped then.
func TestAnAddressThatAnotherSpeakerAnnounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 0, seeded(1))
		defer c.close()
		c.wires.Lock()
		vip := netip.AddrFrom4([4]byte{192, 0, 2, 100})
		c.occupied, c.metallb = map[netip.Addr]int{vip: 0}, true
		c.wires.Unlock()
		c.announce(vip)
		c.run(2 * sayWithin)
		c.expectOne("beside the other speaker")
		c.free()
		c.run(time.Second)
		c.expectOne("after it")
	})
}

// TestAnAddressThatAnotherPulseHas moves: that one says in its hellos that it answers.
func TestAnAddressThatAnotherPulseHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 0, seeded(1))
		defer c.close()
		vip := netip.AddrFrom4([4]byte{192, 0, 2, 100})
		ranked := func(i int, nodes ...string) api.Table {
			table := c.table(i)
			table.Claims[vip] = desired.Candidacy{Candidates: nodes}
			return table
		}
		c.vips = []netip.Addr{vip}
		c.nodes[1].says(ranked(1, "node-1", "node-0", "node-2"))
		c.run(time.Second)
		c.expectOne("of the first one")
		c.longestDouble, c.longestNobody = 0, 0
		c.nodes[0].says(ranked(0, "node-0", "node-1", "node-2"))
		c.run(time.Second)
		if by := c.answering(vip); !slices.Equal(by, []int{0}) || c.longestNobody > 0 || c.longestDouble > simDetection {
			t.Errorf("%v answer; two did for %v, and nobody for %v", by, c.longestDouble, c.longestNobody)
		}
		if contested := c.nodes[0].state().Contested; len(contested) > 0 {
			t.Errorf("contested: %v", contested)
		}
	})
}
