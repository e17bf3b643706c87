package conflicts_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conflicts"
)

// TestTheLowestWins holds, after any candidacies and releases, that each destination
// is won by the lowest of those that want it now, by rank and key.
func TestTheLowestWins(t *testing.T) {
	type claim struct{ rank, value int }
	rapid.Check(t, func(t *rapid.T) {
		var c conflicts.Destinations[int, int]
		now := map[int]map[string]claim{}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			at := rapid.IntRange(0, 2).Draw(t, "at")
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: name}}
			if now[at] == nil {
				now[at] = map[string]claim{}
			}
			if rapid.Bool().Draw(t, "release") {
				c.Release(at, key)
				delete(now[at], name)
				continue
			}
			drawn := claim{rapid.IntRange(0, 1).Draw(t, "rank"), rapid.Int().Draw(t, "value")}
			c.Set(at, conflicts.Candidate[int]{Key: key, Rank: drawn.rank, Value: drawn.value})
			now[at][name] = drawn
		}
		want := map[int]int{}
		for at, of := range now {
			for _, rank := range []int{1, 0} {
				for _, name := range []string{"c", "b", "a"} {
					if one, ok := of[name]; ok && one.rank == rank {
						want[at] = one.value
					}
				}
			}
		}
		got := map[int]int{}
		for at := range now {
			if winner, ok := c.Winner(at); ok {
				got[at] = winner.Value
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("winners %v, want %v", got, want)
		}
	})
}
