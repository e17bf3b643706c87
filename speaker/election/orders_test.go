package election_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/election"
)

// TestOrdersAfterAnyHistory: whichever nodes came and went, the order is that of Rank.
func TestOrdersAfterAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o election.Orders
		all := nodes(20)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			var lists [2][]string
			for i := range lists {
				n := rapid.IntRange(0, len(all)).Draw(t, "nodes")
				if rapid.Bool().Draw(t, "nearly all") {
					n = len(all) - 1
				}
				lists[i] = slices.Sorted(slices.Values(rapid.Permutation(all).Draw(t, "of")[:n]))
			}
			before := [2][]string{slices.Clone(lists[0]), slices.Clone(lists[1])}
			kept := map[netip.Addr][]string{}
			for i := range rapid.IntRange(1, 12).Draw(t, "addresses") {
				a, of := address(i), lists[rapid.IntRange(0, 1).Draw(t, "list")]
				got := o.Rank(a, of)
				if want := election.Rank(a, of); !slices.Equal(got, want) {
					t.Fatalf("for %s among %v: %v, want %v", a, of, got, want)
				}
				kept[a] = got
			}
			for a, ranked := range kept {
				if !slices.Equal(ranked, election.Rank(a, ranked)) {
					t.Fatalf("what was said for %s was written to", a)
				}
			}
			if !slices.Equal(lists[0], before[0]) || !slices.Equal(lists[1], before[1]) {
				t.Fatal("Rank wrote to its argument")
			}
			if rapid.Bool().Draw(t, "forget") {
				o.Forget(address(0))
				o.Keep(func(a netip.Addr) bool { return a != address(1) })
			}
		}
	})
}

// However many nodes there are, and were before.
func TestManyNodesAreRanked(t *testing.T) {
	var orders election.Orders
	all := make([]string, 5000)
	for i := range all {
		all[i] = fmt.Sprintf("worker-%04d", i)
	}
	address := netip.MustParseAddr("2001:db8::1")
	for _, n := range []int{0, 1, 2, 1024, 5000, 1023, 1025, 3, 0} {
		address = address.Next()
		want := slices.SortedFunc(slices.Values(all[:n]), func(a, b string) int {
			w, other := sha256.Sum256([]byte(a+"#"+address.String())), sha256.Sum256([]byte(b+"#"+address.String()))
			return bytes.Compare(w[:], other[:])
		})
		if got := orders.Rank(address, all[:n]); !slices.Equal(got, want) {
			t.Errorf("of %d nodes: %d, and not in the order of their hashes", n, len(got))
		}
	}
}
