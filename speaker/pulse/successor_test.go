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

// turned is the table of a node in which the last candidate for each address is the first, or, if it
// is drained, in which this node is a candidate for none that it is the first for.
func (c *cluster) turned(i int, drained bool) api.Table {
	t := c.table(i)
	for a, claim := range t.Claims {
		if drained && claim.Candidates[0] == t.Node {
			delete(t.Claims, a)
			t.Elsewhere = append(t.Elsewhere, a)
			continue
		}
		candidates := slices.Clone(claim.Candidates)
		if slices.Reverse(candidates); !drained {
			t.Claims[a] = desired.Candidacy{Candidates: candidates}
		}
	}
	slices.SortFunc(t.Elsewhere, netip.Addr.Compare)
	return t
}

// TestASuccessorWithAnOldTable: one node gets a table that gives its addresses to others, which have
// lost the API server. It goes on answering until they have the table, too.
func TestASuccessorWithAnOldTable(t *testing.T) {
	for what, drained := range map[string]bool{"another order": false, "no candidate": true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, 12, seeded(1))
			defer c.close()
			c.run(10 * time.Second)
			c.longestNobody, c.longestDouble = 0, 0
			c.nodes[0].says(c.turned(0, drained))
			c.run(30 * time.Second)
			c.expectOne(what)
			for i := 1; i < len(c.nodes); i++ {
				c.nodes[i].says(c.turned(i, false))
			}
			c.run(5 * time.Second)
			c.expectOne(what + ", and all know")
			for _, a := range c.vips {
				if first := c.turned(1, false).Claims[a].Candidates[0]; !drained && c.nodes[c.answering(a)[0]].name != first {
					t.Errorf("%s: %s is answered by %v and not by %s", what, a, c.answering(a), first)
				}
			}
			if c.longestNobody > slack {
				t.Errorf("%s: nobody answered for %v", what, c.longestNobody)
			}
			if c.longestDouble > simDetection {
				t.Errorf("%s: two answered for %v", what, c.longestDouble)
			}
		})
	}
}

// TestHellosAreBlockedWherePatienceHasGrown: nodes had lost hellos, so that they are patient with each
// other; then a firewall drops all of them, and no frame. Who is waited for longer hears by a frame
// that the other one has taken over: it does not take a longer time than without patience.
func TestHellosAreBlockedWherePatienceHasGrown(t *testing.T) {
	for size := 2; size <= 5; size++ {
		for seed := range uint64(4) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, size, 10, seeded(seed))
				defer c.close()
				c.lose(0.3)
				c.run(20 * time.Second)
				c.lose(0)
				c.run(5 * time.Second)
				c.expectOne("patient")
				c.part(c.all()[:size/2], c.all()[size/2:], true)
				both := c.doubled(5 * time.Second)
				t.Logf("%d nodes, seed %d: two answered for %v", size, seed, both)
				if both > simDetection {
					t.Errorf("%d nodes, seed %d: two answered for %v", size, seed, both)
				}
				c.expectOne("blocked")
				moved := c.moves
				c.run(20 * time.Second)
				c.expectOne("blocked for long")
				if c.moves != moved {
					t.Errorf("%d nodes, seed %d: %d moves while nothing changed", size, seed, c.moves-moved)
				}
			})
		}
	}
}
