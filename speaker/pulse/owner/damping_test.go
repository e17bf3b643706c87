package owner

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

const period = 3 * time.Minute

// hearing is a view of those that are heard, and of those that are silent.
func hearing(alive []string, silent ...string) hello.View {
	v := serving(alive...)
	for _, node := range alive {
		v.Alive[node] = hello.Member{Serving: true, Heard: true}
	}
	v.Silent = silent
	return v
}

// TestHowLongANodeIsDamped: from its second death within the period on, twice as long with the next one soon after that, and so on, and
// as at first once it has been there for as long.
func TestHowLongANodeIsDamped(t *testing.T) {
	var d damping
	now := noon
	steps := func(v hello.View, until time.Time) (damped bool) {
		for {
			damped = len(d.update(now, period, "a", v, true)) > 0
			if d.at.IsZero() || d.at.After(until) {
				now = until
				return damped
			}
			now = d.at
		}
	}
	up, down := hearing([]string{"a", "b", "c"}), hearing([]string{"a", "c"}, "b")
	die := func(after time.Duration) bool {
		steps(up, now.Add(after))
		steps(down, now.Add(5*time.Second))
		return steps(up, now.Add(time.Second))
	}
	lasts := func() time.Duration {
		from := now
		for steps(up, now.Add(time.Second)) {
		}
		return now.Sub(from)
	}
	about := func(what string, got, want time.Duration) {
		t.Helper()
		if got < want-10*time.Second || got > want {
			t.Errorf("%s: damped for %v, want %v since the last death", what, got, want)
		}
	}
	if die(time.Hour) || die(period) {
		t.Error("damped by deaths that are far apart")
	}
	if !die(time.Minute) || !die(time.Second) || !die(2*time.Minute) {
		t.Error("not damped by deaths that are near each other")
	}
	about("at first", lasts(), period)
	for doubled, want := range []time.Duration{2 * period, 4 * period, 8 * period, 16 * period, 16 * period} {
		if !die(time.Minute) {
			t.Errorf("not damped by a death soon after it was, number %d", doubled)
		}
		about("again", lasts(), want)
	}
	if die(2 * period) {
		t.Error("damped by one death long after it was")
	}
	if die(time.Minute); !slices.Equal(d.update(now, period, "a", up, true), []string{"b"}) {
		t.Error("not damped by a second one")
	}
	about("long after", lasts(), period)
	if d.update(now.Add(time.Hour), period, "a", hearing([]string{"a", "c"}), true); d.of["b"] != nil {
		t.Error("a node that has left is not forgotten")
	}
}

// TestANodeThatIsCutOffCountsNothing, however late it finds out that it is.
func TestANodeThatIsCutOffCountsNothing(t *testing.T) {
	var d damping
	now := noon
	step := func(v hello.View, sure bool, after time.Duration) []string {
		damped := d.update(now, period, "a", v, sure)
		now = now.Add(after)
		return damped
	}
	all := hearing([]string{"a", "b", "c"})
	for range 5 {
		step(all, true, time.Second)
		step(hearing([]string{"a", "c"}, "b"), true, 10*time.Millisecond)
		step(hearing([]string{"a"}, "b", "c"), false, 500*time.Millisecond)
		step(hearing([]string{"a", "b"}, "c"), true, time.Millisecond) // they are back, one after the other
		step(all, true, time.Second)
		step(hearing([]string{"a", "c"}, "b"), true, 10*time.Millisecond)
		step(hearing([]string{"a"}, "b", "c"), false, 2*time.Second)
		step(hearing([]string{"a"}, "b", "c"), false, time.Second)
		step(hearing([]string{"a", "b"}, "c"), true, time.Millisecond)
		if damped := step(all, true, time.Second); len(damped) > 0 {
			t.Fatalf("%v flap in its eyes", damped)
		}
	}
}

// TestDampingAndNearness: of candidates that can answer, those come first that clients reach, and of these those that are not damped. The
// order decides among equals, as where all are damped.
func TestDampingAndNearness(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.10")
	here := []hello.Interface{{Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
	there := []hello.Interface{{Subnets: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}
	rapid.Check(t, func(t *rapid.T) {
		v := hello.View{Settled: true, Alive: map[string]hello.Member{}}
		nodes := rapid.Permutation([]string{"a", "b", "c", "d"}).Draw(t, "order")
		rank := func(node string) (rank int) {
			if v.Alive[node].Lacks(a) {
				rank += 2
			}
			if v.Alive[node].Damped {
				rank++
			}
			return rank
		}
		var able []string
		for _, node := range nodes {
			m := hello.Member{Serving: rapid.IntRange(0, 3).Draw(t, "serves") > 0, Damped: rapid.Bool().Draw(t, "damped"), Interfaces: here}
			if rapid.Bool().Draw(t, "far") {
				m.Interfaces = there
			}
			if v.Alive[node] = m; m.Serving {
				able = append(able, node)
			}
		}
		got, ok := near(desired.Candidacy{Candidates: nodes}, a, v, func(node string) bool { return v.CanServe(node, a) })
		slices.SortStableFunc(able, func(a, b string) int { return rank(a) - rank(b) })
		if ok != (len(able) > 0) || ok && got != able[0] {
			t.Fatalf("%q answers, want the first of %v", got, able)
		}
	})
}
