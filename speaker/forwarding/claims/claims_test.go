package claims_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/claims"
)

// TestTheLowestHolds holds, after any claims and releases, that each destination
// is held by the lowest of those who claim it now, by rank and key.
func TestTheLowestHolds(t *testing.T) {
	type claim struct{ rank, value int }
	rapid.Check(t, func(t *rapid.T) {
		var c claims.Claims[int, int]
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
			c.Claim(at, claims.Claim[int]{Key: key, Rank: drawn.rank, Value: drawn.value})
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
			if holder, ok := c.Holder(at); ok {
				got[at] = holder.Value
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("holders %v, want %v", got, want)
		}
	})
}
