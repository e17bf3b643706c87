package pulse

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// simDamping is the default of the program.
const simDamping = 3 * time.Minute

// client counts how often addresses move in its eyes.
type client struct {
	*cluster

	of    map[netip.Addr]int   // the node that began to answer last
	heard map[netip.Addr][]int // that answer
	moved map[netip.Addr]int
}

// sees lets time pass. The client does not hear those nodes.
func (c *client) sees(d, step time.Duration, unheard ...int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(step)
		for _, a := range c.vips {
			heard := slices.DeleteFunc(c.answering(a), func(i int) bool { return slices.Contains(unheard, i) })
			for _, i := range heard {
				if i != c.of[a] && !slices.Contains(c.heard[a], i) {
					c.of[a] = i
					c.moved[a]++
				}
			}
			c.heard[a] = heard
		}
	}
}

func newClient(c *cluster) *client {
	all := &client{c, map[netip.Addr]int{}, map[netip.Addr][]int{}, map[netip.Addr]int{}}
	all.sees(simStep, simStep)
	clear(all.moved)
	return all
}

// flaps are the ways in which a node goes away and comes back.
func flaps() map[string]func(c *cluster, i int, away bool) {
	return map[string]func(c *cluster, i int, away bool){
		"it loses the network": func(c *cluster, i int, away bool) {
			if !away {
				c.heal()
				return
			}
			others := slices.DeleteFunc(append(c.all(), gatewayIndex), func(j int) bool { return i == j })
			c.darken([]int{i}, others)
		},
		"it loses its power": func(c *cluster, i int, away bool) {
			if away {
				c.nodes[i].stop()
			} else {
				c.start(i)
			}
		},
	}
}

// TestANodeThatFlapsTakesItsAddressesBackOnce: lost for 5 s six times in a minute, it takes its addresses back once, and then when the damping is over. No address
// of another node moves, and none more often than a switch (EVPN, RFC 7432, section 15.1: five moves in 180 s) puts up with.
func TestANodeThatFlapsTakesItsAddressesBackOnce(t *testing.T) {
	sizes := []int{2, 3, 5, 12}
	if testing.Short() {
		sizes = sizes[:2]
	}
	for how, flap := range flaps() {
		for _, size := range sizes {
			synctest.Test(t, func(t *testing.T) {
				c := newClusterOf(t, size, 24, false, seeded(1))
				defer c.close()
				c.withGateway(true) // of two nodes, the one that reaches it is not the one that is lost
				c.run(time.Second)
				home := c.has()
				client := newClient(c)
				for range 6 {
					flap(c, 0, true)
					client.sees(5*time.Second, simStep, 0)
					flap(c, 0, false)
					client.sees(5*time.Second, simStep)
				}
				for a, n := range client.moved {
					if wants := map[bool]int{true: 3}[home[a][0] == 0]; n != wants {
						t.Errorf("%s, %d nodes: %v of node %d moved %d times, want %d", how, size, a, home[a][0], n, wants)
					}
				}
				if now := c.nodes[size-1].state(); !slices.Equal(now.Damped, []string{"node-0"}) {
					t.Errorf("%s, %d nodes: damped are %v", how, size, now.Damped)
				}
				client.sees(simDamping-15*time.Second, idleStep)
				if len(c.nodes[0].state().Owned) > 0 {
					t.Errorf("%s, %d nodes: it takes addresses back before its time: %v", how, size, c.nodes[0].state().Owned)
				}
				client.sees(15*time.Second, idleStep)
				if now := c.has(); !maps.EqualFunc(now, home, slices.Equal) || len(c.nodes[0].state().Damped) > 0 {
					t.Errorf("%s, %d nodes: after the damping they have %v, want %v", how, size, now, home)
				}
				for a, n := range client.moved {
					if n > 4 {
						t.Errorf("%s, %d nodes: %v moved %d times in all", how, size, a, n)
					}
				}
			})
		}
	}
}

// TestWhereAllNodesFlapNoneComesLast, nor does one that is alone: the order is the one without damping.
func TestWhereAllNodesFlapNoneComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 24, seeded(1))
		defer c.close()
		c.withGateway(true)
		home, flap := c.has(), flaps()["it loses the network"]
		for i := range c.nodes {
			for range 2 {
				flap(c, i, true)
				c.run(2 * time.Second)
				flap(c, i, false)
				c.run(2 * time.Second)
			}
		}
		c.expectOne("all flapped")
		if now, damped := c.has(), c.nodes[1].state().Damped; !maps.EqualFunc(now, home, slices.Equal) || len(damped) != 3 {
			t.Errorf("%v are damped, and they have %v, want %v", damped, now, home)
		}
		c.nodes[1].stop()
		c.nodes[2].stop()
		c.run(time.Second)
		c.expectOne("and no other is left")
	})
}

// TestOrdinaryLifeIsNotDamped: a death of each node, restarts of all speakers one after another, and a switch that
// flaps.
func TestOrdinaryLifeIsNotDamped(t *testing.T) {
	for what, happens := range map[string]func(c *cluster, i int){
		"a death": func(c *cluster, i int) {
			c.nodes[i].stop()
			c.run(time.Second)
			c.start(i)
		},
		"restarts": func(c *cluster, i int) {
			for range 3 {
				c.restart(i, time.Second)
				c.run(time.Second)
			}
		},
		"the switch": func(c *cluster, _ int) {
			c.blackout()
			c.run(3 * time.Second)
			c.heal()
		},
		"half of them": func(c *cluster, _ int) {
			c.darken([]int{0, 1}, []int{2, 3})
			c.run(3 * time.Second)
			c.heal()
		},
	} {
		for _, gateway := range []bool{true, false} {
			if gateway && what == "half of them" {
				continue // in which each half is vouched for, and damps the other: in the end all are
			}
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 4, 24, seeded(1))
				defer c.close()
				c.withGateway(gateway)
				home := c.has()
				for i := range c.nodes {
					happens(c, i)
					c.run(3 * time.Second)
					for _, n := range c.nodes {
						if damped := n.state().Damped; len(damped) > 0 {
							t.Fatalf("%s, of node %d: %s says that %v flap", what, i, n.name, damped)
						}
					}
				}
				if now := c.has(); !maps.EqualFunc(now, home, slices.Equal) {
					t.Errorf("%s: they have %v, want %v", what, now, home)
				}
			})
		}
	}
}
