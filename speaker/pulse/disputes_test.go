package pulse

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// stale is the table of a node with the candidates for some addresses in another order, so
// that it is the first of them and not the last.
func (c *cluster) stale(i, addresses int) api.Table {
	t := c.table(i)
	for _, a := range c.vips {
		candidates := slices.Clone(t.Claims[a].Candidates)
		if slices.Reverse(candidates); candidates[0] == t.Node && addresses > 0 {
			t.Claims[a] = desired.Candidacy{Candidates: candidates}
			addresses--
		}
	}
	if addresses > 0 {
		c.t.Fatalf("%d addresses too few", addresses)
	}
	return t
}

// TestNodesWithDifferentTables: one node has another order of the candidates, as if it had lost
// the API server. Two nodes that hear each other do not both answer for longer than a detection
// time, though hundreds of addresses be in dispute. With -short they are dozens.
func TestNodesWithDifferentTables(t *testing.T) {
	disputed := []int{8, 24, 400}
	if testing.Short() {
		disputed = disputed[:2]
	}
	for _, addresses := range disputed {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, min(4*addresses, 3400), seeded(1))
			defer c.close()
			time.Sleep(10 * time.Second) // all answered for all when they began
			c.longestDouble = 0
			c.nodes[0].says(c.stale(0, addresses))
			c.run(500 * time.Millisecond)
			c.expectOne("in dispute")
			t.Logf("%d addresses: two answered for %v", addresses, c.longestDouble)
			if c.longestDouble == 0 || c.longestDouble > simDetection {
				t.Errorf("%d addresses: two answered for %v", addresses, c.longestDouble)
			}
			moved := c.moves
			for range 100 {
				time.Sleep(600 * time.Millisecond)
				c.look()
			}
			if c.moves != moved {
				t.Errorf("%d addresses: %d moves while nothing changed", addresses, c.moves-moved)
			}
			c.longestDouble = 0
			c.nodes[0].says(c.table(0))
			c.run(time.Second)
			c.expectOne("with one table")
			if c.longestDouble > simDetection {
				t.Errorf("%d addresses: two answered for %v when the tables were one again", addresses, c.longestDouble)
			}
		})
	}
}

// TestPartedByAFirewall: hellos of two nodes do not reach three others any more, and their
// frames do. Each address has one node all the same.
func TestPartedByAFirewall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 5, 10, seeded(1))
		defer c.close()
		c.withGateway(true)
		c.part([]int{0, 1}, []int{2, 3, 4}, true)
		if both := c.doubled(5 * time.Second); both > simDetection {
			t.Errorf("two answered for %v", both)
		}
		c.expectOne("parted")
		moved := c.moves
		c.run(time.Minute)
		c.expectOne("parted for long")
		if c.moves != moved {
			t.Errorf("%d moves while nothing changed", c.moves-moved)
		}
		for _, n := range c.nodes[2:] {
			n.stop()
		}
		c.run(5 * time.Second)
		c.expectOf("the others are dead", 0, 1)
	})
}

// TestADispute walks through what one node says to another one.
func TestADispute(t *testing.T) {
	mine, v := on(vip4), serving("a", "b")
	table := &api.Table{Node: "a", Claims: claim(vip4, "a", "b")}
	var ds disputes
	now := noon
	wants := func(when string, left bool, stance hello.Stance) {
		t.Helper()
		if got := ds.keep(now, "a", mine, v); got[vip4] != left {
			t.Errorf("%s: left %t, want %t", when, got[vip4], left)
		}
		ds.take(mine, nil, func() uint64 { return 5 })
		var said hello.Stance
		for _, c := range ds.claims(now) {
			said = c.Stance
			if c.Address != vip4 || c.Epoch != 5 {
				t.Errorf("%s: said %+v", when, c)
			}
		}
		if said != stance {
			t.Errorf("%s: said %d, want %d", when, said, stance)
		}
	}
	says := func(stance hello.Stance, epoch uint64) {
		member := v.Alive["b"]
		member.Claims = []hello.Claim{{Address: vip4, Stance: stance, Epoch: epoch}}
		v.Alive["b"] = member
	}
	wants("nobody disagrees", false, 0)
	ds.claimed(now, neighbour.Claim{Address: vip4, Station: colleague}, "b", table, v)
	wants("just heard", false, 0)
	now = now.Add(disputeAfter)
	wants("it was no hand-over", false, hello.Answers)
	says(hello.Answers, 4)
	wants("b took it before", false, hello.Answers)
	says(hello.Leaves, 4)
	wants("b leaves it", false, hello.Answers)
	says(hello.Answers, 6)
	wants("b has taken it later", true, hello.Leaves)
	now = now.Add(time.Hour)
	wants("b goes on to say so", true, hello.Leaves)
	says(hello.Stopped, 6)
	wants("b has stopped", false, hello.Answers)
	says(hello.Answers, 5)
	wants("as late: the name decides", false, hello.Answers)
	says(hello.Answers, 7)
	wants("b again", true, hello.Leaves)
	delete(v.Alive, "b")
	wants("b is dead", false, 0)
	v = serving("a", "b")
	says(hello.Answers, 4)
	wants("b before this one", false, hello.Answers)
	mine = nil
	wants("it is this node's no more", false, hello.Stopped)
	now = now.Add(ds.patience())
	wants("and that was said", false, 0)
}

// TestWhatDisputesHoldIsBounded: whatever other nodes say, no more addresses are in dispute than
// this node has, and all is forgotten some time after.
func TestWhatDisputesHoldIsBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var addresses []netip.Addr
	for i := range 200 {
		addresses = append(addresses, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	mine, now := on(addresses[:100]...), noon
	table := &api.Table{Node: "a", Claims: map[netip.Addr]desired.Candidacy{}}
	for i, a := range addresses[:100] {
		table.Claims[a] = desired.Candidacy{Candidates: [][]string{{"a", "b", "c"}, {"c", "b", "a"}}[i%2]}
	}
	var ds disputes
	var epoch uint64
	for range 10_000 {
		now = now.Add(time.Duration(random.IntN(100)) * time.Millisecond)
		v := serving("a", "b", "c")
		for _, node := range []string{"b", "c"} {
			member := v.Alive[node]
			for range random.IntN(4) {
				member.Claims = append(member.Claims, hello.Claim{
					Address: addresses[random.IntN(len(addresses))], Epoch: uint64(random.IntN(100)), Stance: hello.Stance(1 + random.IntN(3)),
				})
			}
			v.Alive[node] = member
		}
		if random.IntN(3) == 0 {
			v.Silent = []string{"c"}
			delete(v.Alive, "c")
		}
		heard := neighbour.Claim{Address: addresses[random.IntN(100)], Station: colleague}
		ds.claimed(now, heard, []string{"b", "c"}[random.IntN(2)], table, v)
		ds.due(now, func(string) bool { return now.Nanosecond()%2 == 0 })
		ds.keep(now, "a", mine, v)
		ds.take(mine, nil, func() uint64 { epoch++; return epoch })
		if next := ds.next(); !next.IsZero() && next.Before(now) {
			ds.due(now, func(string) bool { return now.Nanosecond()%2 == 0 })
			if ds.keep(now, "a", mine, v); !ds.next().After(now) {
				t.Fatalf("there is always something to do: %v, and it is %v", ds.next(), now)
			}
		}
		if len(ds.of) > len(mine) || len(ds.epochs) != len(mine) {
			t.Fatalf("%d in dispute, %d epochs", len(ds.of), len(ds.epochs))
		}
	}
	ds.keep(now.Add(time.Minute), "a", mine, serving("a", "b", "c"))
	if len(ds.of) > 0 || !ds.next().IsZero() {
		t.Errorf("%d are in dispute for ever", len(ds.of))
	}
}
