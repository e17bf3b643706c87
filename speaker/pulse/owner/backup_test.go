package owner

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// differing is what nodes are alive, while tables differ in the bucket of the address.
func differing(nodes ...string) hello.View {
	v := serving(nodes...)
	v.Differs = 1 << desired.Bucket(vip4)
	return v
}

// saysOf has a node say something of the address.
func saysOf(v hello.View, node string, stance hello.Stance, epoch uint64) {
	m := v.Alive[node]
	m.Claims = []hello.Claim{{Address: vip4, Stance: stance, Epoch: epoch}}
	v.Alive[node] = m
}

// TestABackupAsksWhichNodeIsActive walks through what the others say, and what the backup does.
func TestABackupAsksWhichNodeIsActive(t *testing.T) {
	var b backups
	now, place, yields, v := noon, standby{owner: "b", after: 2}, false, serving("a", "b", "c")
	asks := func(when string, want bool) {
		t.Helper()
		b.update(now, "a", map[netip.Addr]standby{vip4: place}, func(netip.Addr) bool { return yields }, v)
		if adopt, _ := b.due(now, true); len(adopt) > 0 {
			t.Errorf("%s: it adopts %v", when, adopt)
		}
		if got := b.claims(); (len(got) > 0) != want || want && got[0] != (hello.Claim{Address: vip4, Stance: hello.Leaves}) {
			t.Errorf("%s: it says %v; asks: want %t", when, got, want)
		}
	}
	after := func(d time.Duration) { now = now.Add(d) }

	asks("tables are equal", false)
	after(time.Hour)
	asks("tables are equal for long", false)
	v = differing("a", "b", "c")
	asks("tables differ", false)
	after(2*skewTime - 1)
	asks("the turn of those before it", false)
	after(1)
	asks("its turn", true)
	after(activeDown)
	saysOf(v, "c", hello.Answers, 3)
	asks("c answers", false)
	v.Alive["c"] = hello.Member{Serving: true}
	place.owner = "d"
	after(time.Hour)
	asks("c answers, whichever is to by the table", false)
	delete(v.Alive, "c")
	asks("c is dead", false)
	after(2 * skewTime)
	asks("c is dead, and it is its turn", true)
	saysOf(v, "b", hello.Yields, 4)
	asks("b answers until another does", false)
	saysOf(v, "b", hello.Stopped, 4)
	asks("b has stopped", false)
	after(2 * skewTime)
	asks("b has stopped, and it is its turn", true)
	yields = true
	asks("it answers itself", false)
	yields = false
	v.Differs = 0
	after(time.Hour)
	asks("tables are equal again", false)
	if len(b.of) > 0 || !b.next().IsZero() {
		t.Errorf("it goes on with %v", b.of)
	}
}

// TestABackupAdoptsWhatNoNodeAnswersFor, but not while a node is not heard that may, and a new address only later.
func TestABackupAdoptsWhatNoNodeAnswersFor(t *testing.T) {
	for name, c := range map[string]struct {
		before api.Table
		heard  time.Duration // after so long all nodes are heard
		want   time.Duration
	}{
		"all are heard":    {api.Table{Claims: claim(vip4, "b", "a")}, 0, activeDown + claimTime},
		"all are later":    {api.Table{Claims: claim(vip4, "b", "a")}, time.Second, time.Second},
		"it was elsewhere": {api.Table{Elsewhere: []netip.Addr{vip4}}, 0, activeDown + claimTime},
		"it is new":        {api.Table{}, 0, newFor + activeDown + claimTime},
	} {
		var b backups
		b.table(noon, &c.before, &api.Table{Claims: claim(vip4, "b", "a")})
		var adopted time.Duration
		for now := noon; adopted == 0 && now.Before(noon.Add(time.Minute)); now = now.Add(time.Millisecond) {
			b.update(now, "a", map[netip.Addr]standby{vip4: {owner: "b"}}, func(netip.Addr) bool { return false }, differing("a", "b"))
			if adopt, _ := b.due(now, now.Sub(noon) >= c.heard); slices.Equal(adopt, []netip.Addr{vip4}) {
				adopted = now.Sub(noon)
			}
		}
		if adopted < c.want || adopted > c.want+hearAgain {
			t.Errorf("%s: adopted after %v, want %v", name, adopted, c.want)
		}
	}
}

// TestOneOfTwoThatAdoptedGoesOn: the one that took the address last, and of two epochs that are equal the one whose
// name comes first; neither does once a node answers that is to by its own table.
func TestOneOfTwoThatAdoptedGoesOn(t *testing.T) {
	for _, c := range []struct {
		stance hello.Stance
		theirs uint64
		node   string
		want   bool
	}{
		{hello.Yields, 4, "c", true},
		{hello.Yields, 6, "c", false},
		{hello.Yields, 5, "c", true},
		{hello.Yields, 5, "a", false},
		{hello.Answers, 1, "c", false},
		{hello.Leaves, 6, "c", true},
	} {
		y, v := releases{}, differing("b", c.node)
		y.adopt(noon, vip4)
		saysOf(v, c.node, c.stance, c.theirs)
		y.told("b", v, map[netip.Addr]uint64{vip4: 5})
		if got := y.answers(vip4); got != c.want {
			t.Errorf("%s says %d of epoch %d: b goes on: %t, want %t", c.node, c.stance, c.theirs, got, c.want)
		}
	}
}
