package claims_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/claims"
)

// TestTheLowestKeyHolds holds, after any claims and releases, that each destination
// is held by the lowest of those who claim it now.
func TestTheLowestKeyHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c claims.Claims[int, int]
		now := map[int]map[string]int{}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			at := rapid.IntRange(0, 2).Draw(t, "at")
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: name}}
			if now[at] == nil {
				now[at] = map[string]int{}
			}
			if rapid.Bool().Draw(t, "release") {
				c.Release(at, key)
				delete(now[at], name)
				continue
			}
			value := rapid.Int().Draw(t, "value")
			c.Claim(at, claims.Claim[int]{Key: key, Value: value})
			now[at][name] = value
		}
		want := map[int]int{}
		for at, of := range now {
			for _, name := range []string{"c", "b", "a"} {
				if v, ok := of[name]; ok {
					want[at] = v
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
