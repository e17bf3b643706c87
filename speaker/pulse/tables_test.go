package pulse

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// change is a version of the tables, and when each node learns of it; node by node, later than of the one before.
type change struct {
	Order   uint64          // by which the candidates of each address are drawn
	Without int             // this node is no candidate any more; -1: all are
	After   []time.Duration // that each node takes to learn of it
}

// version is the table of a node as of a change.
func (c *cluster) version(i int, ch change) api.Table {
	t := c.table(i)
	for n, a := range c.vips {
		var candidates []string
		for _, j := range rand.New(rand.NewPCG(ch.Order, uint64(n))).Perm(len(c.nodes)) {
			if j != ch.Without {
				candidates = append(candidates, c.nodes[j].name)
			}
		}
		t.Claims[a] = desired.Candidacy{Candidates: candidates}
	}
	t.Digests = digestsOf(t.Claims)
	if i == ch.Without {
		t.Claims, t.Elsewhere = nil, slices.SortedFunc(maps.Keys(t.Claims), netip.Addr.Compare)
	}
	return t
}

func drawChange(size int) func(t *rapid.T) change {
	return func(t *rapid.T) change {
		ch := change{Order: rapid.Uint64Range(1, 1<<20).Draw(t, "order"), Without: rapid.IntRange(-1, size-1).Draw(t, "without")}
		for range size {
			ch.After = append(ch.After, time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms"))*time.Millisecond)
		}
		return ch
	}
}

// TestTablesChangeWhileANodeDies: tables change, nodes learn of it at different moments, and one dies
// meanwhile. Two never answer for longer than a detection time, and in the end one does. Until all have one table,
// nodes may leave an address to each other, so that nobody answers: no longer than that.
func TestTablesChangeWhileANodeDies(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(3, 5).Draw(r, "nodes")
		changes := rapid.SliceOfN(rapid.Custom(drawChange(size)), 1, 3).Draw(r, "changes")
		dies, at := rapid.IntRange(0, size-1).Draw(r, "dies"), time.Duration(rapid.IntRange(0, 4000).Draw(r, "dies after"))*time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, size, 6, seeded(1))
			defer c.close()
			c.run(5 * time.Second)
			type step struct {
				at time.Duration
				do func()
			}
			steps := []step{{at, func() { c.nodes[dies].stop() }}}
			learned := make([]time.Duration, size)
			for _, ch := range changes {
				for i, after := range ch.After {
					learned[i] += after
					steps = append(steps, step{learned[i], func() {
						if c.nodes[i].stop != nil {
							c.nodes[i].says(c.version(i, ch))
						}
					}})
				}
			}
			slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
			now := time.Duration(0)
			for _, s := range steps {
				c.run(s.at - now)
				now = max(now, s.at)
				s.do()
			}
			c.run(5 * time.Second)
			c.idle(15 * time.Second)
			c.expectOne("in the end")
			differ := slices.Max(learned)
			if c.longestDouble > simDetection+slack || c.longestNobody > simDetection+slack+differ {
				t.Errorf("two answered for %v, nobody for %v; node %d dies after %v, %+v", c.longestDouble, c.longestNobody, dies, at, changes)
			}
		})
		if t.Failed() {
			r.FailNow()
		}
	})
}

// TestTablesDifferForGood: nodes have different tables, as where one has lost the API server, and another
// one dies. Each of them may take another one for the owner. Who comes next finds that nobody answers, and does.
func TestTablesDifferForGood(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(3, 6).Draw(r, "nodes")
		changes := rapid.SliceOfN(rapid.Custom(drawChange(size)), size, size).Draw(r, "changes")
		dies, at := rapid.IntRange(0, size-1).Draw(r, "dies"), time.Duration(rapid.IntRange(0, 4000).Draw(r, "dies after"))*time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, size, 6, seeded(1))
			defer c.close()
			c.run(5 * time.Second)
			for i, ch := range changes {
				ch.Without = -1 // else who has it goes on
				c.nodes[i].says(c.version(i, ch))
			}
			c.run(at)
			c.nodes[dies].stop()
			c.run(5 * time.Second)
			c.expectOne("in the end")
			if c.longestDouble > simDetection+slack || c.longestNobody > time.Second {
				t.Errorf("two answered for %v, nobody for %v; node %d dies after %v, %+v", c.longestDouble, c.longestNobody, dies, at, changes)
			}
		})
		if t.Failed() {
			r.FailNow()
		}
	})
}

// TestAnOwnerWhoseAnswersAreLostKeepsItsAddress: whoever comes next finds that nobody answers. He hears in
// hellos that the owner does, and does not answer beside it: clients elsewhere may well hear it.
func TestAnOwnerWhoseAnswersAreLostKeepsItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 6, seeded(1))
		defer c.close()
		c.run(5 * time.Second)
		before := c.has()
		c.wires.Lock()
		for _, i := range c.all() {
			for _, j := range c.all() {
				c.muffled[[2]int{i, j}] = true
			}
		}
		c.wires.Unlock()
		for range 30 {
			c.run(5 * time.Second)
			c.expectOne("while no answer is heard")
		}
		if doubts := len(c.nodes[0].state().Doubted) + len(c.nodes[1].state().Doubted) + len(c.nodes[2].state().Doubted); doubts != len(c.vips) {
			t.Errorf("%d addresses are told of, want %d", doubts, len(c.vips))
		}
		if has := c.has(); c.longestDouble > 0 || !reflect.DeepEqual(has, before) {
			t.Errorf("two answered for %v; owners were %v, are %v", c.longestDouble, before, has)
		}
	})
}

// TestWhoWasHeardBeforeTheTableCame: each address moves to another node, whose announcement the one that had it
// hears a moment before it learns of the move itself. It must not wait for the next one, 100 ms later.
func TestWhoWasHeardBeforeTheTableCame(t *testing.T) {
	for order := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, 6, seeded(1))
			defer c.close()
			c.run(5 * time.Second)
			moved := change{Order: order, Without: -1}
			for _, a := range c.vips {
				had := c.owners[a][0]
				for i, n := range c.nodes {
					if i != had {
						n.says(c.version(i, moved))
					}
				}
				c.run(2 * simStep)
				c.nodes[had].says(c.version(had, moved))
				c.run(time.Second)
			}
			c.expectOne("in the end")
			if c.longestDouble > 20*time.Millisecond || c.longestNobody > 0 {
				t.Errorf("order %d: two answered for %v, nobody for %v", order, c.longestDouble, c.longestNobody)
			}
		})
	}
}

// TestHundredsOfAddressesWhereTablesDiffer: each of three nodes has another table, and one dies.
func TestHundredsOfAddressesWhereTablesDiffer(t *testing.T) {
	addresses := 600
	if testing.Short() {
		addresses = 150
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, addresses, seeded(1))
		defer c.close()
		time.Sleep(10 * time.Second)
		for i, n := range c.nodes {
			n.says(c.version(i, change{Order: uint64(i + 1), Without: -1}))
		}
		time.Sleep(10 * time.Second)
		c.longestDouble, c.longestNobody = 0, 0
		c.nodes[0].stop()
		c.run(3 * time.Second)
		c.expectOne("in the end")
		t.Logf("%d addresses: two answered for %v, nobody for %v", addresses, c.longestDouble, c.longestNobody)
		if c.longestDouble > simDetection || c.longestNobody > time.Second {
			t.Errorf("%d addresses: two answered for %v, nobody for %v", addresses, c.longestDouble, c.longestNobody)
		}
	})
}
