package election_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/election"
)

// TestTiersOrder: those of an earlier tier come first, the one given before all of its own tier, and
// else the weights decide; the ranking itself stays as it is.
func TestTiersOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, groups, of := nodes(8), make([][]string, rapid.IntRange(1, 3).Draw(t, "tiers")), map[string]int{}
		for _, node := range slices.Sorted(slices.Values(all)) {
			i := rapid.IntRange(0, len(groups)-1).Draw(t, "tier")
			groups[i], of[node] = append(groups[i], node), i
		}
		first := rapid.SampledFrom(append([]string{"", "stranger"}, all...)).Draw(t, "first")
		tiers := election.NewTiers(groups...)
		ranked := election.Rank(address(1), all)
		before := slices.Clone(ranked)
		want := slices.SortedStableFunc(slices.Values(ranked), func(a, b string) int {
			switch {
			case of[a] != of[b]:
				return of[a] - of[b]
			case a == first:
				return -1
			case b == first:
				return 1
			}
			return 0
		})
		if got := tiers.Order(ranked, first); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if !slices.Equal(ranked, before) || !slices.Equal(tiers.Among(), slices.Sorted(slices.Values(all))) {
			t.Fatalf("the ranking became %v, among %v", ranked, tiers.Among())
		}
		if other := election.NewTiers(append(slices.Clone(groups), []string{"another"})...); tiers.Digest() != election.NewTiers(groups...).Digest() || tiers.Digest() == other.Digest() {
			t.Fatal("the digest does not tell tiers by what is in them")
		}
		if !tiers.Equal(election.NewTiers(groups...)) || tiers.Equal(nil) || tiers.Equal(election.NewTiers(all[:1])) {
			t.Fatal("tiers are not compared by what is in them")
		}
	})
}
