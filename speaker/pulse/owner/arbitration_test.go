package owner

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// TestADispute walks through what one node says to another one.
func TestADispute(t *testing.T) {
	mine, v := on(vip4), serving("a", "b")
	table := &api.Table{Node: "a", Claims: claim(vip4, "a", "b")}
	var ds arbitration
	now := noon
	wants := func(when string, left bool, stance hello.Stance) {
		t.Helper()
		if got := ds.keep(now, "a", mine, v); got[vip4] != left {
			t.Errorf("%s: left %t, want %t", when, got[vip4], left)
		}
		ds.take(mine, nil, 5)
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
	var ds arbitration
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
		epoch++
		ds.take(mine, nil, epoch)
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
