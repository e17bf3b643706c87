package election_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/election"
)

func drawNodes(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9-]{0,20}`), 1, 12, rapid.ID[string]).Draw(t, "nodes")
}

func drawAddress(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "v6") {
		return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "a6")))
	}
	return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "a4")))
}

func TestRankDoesNotDependOnTheOrderOfNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, address := drawNodes(t), drawAddress(t)
		shuffled := rapid.Permutation(nodes).Draw(t, "shuffled")
		before := slices.Clone(shuffled)
		if got, want := election.Rank(address, shuffled), election.Rank(address, nodes); !slices.Equal(got, want) {
			t.Fatalf("Rank(%s, %v) = %v, of the same nodes in another order %v", address, shuffled, got, want)
		}
		if !slices.Equal(shuffled, before) {
			t.Fatalf("Rank wrote to its argument")
		}
	})
}

// TestRankGoesByTheWholeHash of node and address.
func TestRankGoesByTheWholeHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, address := drawNodes(t), drawAddress(t)
		want := slices.SortedFunc(slices.Values(nodes), func(a, b string) int {
			w, other := sha256.Sum256([]byte(a+"#"+address.String())), sha256.Sum256([]byte(b+"#"+address.String()))
			return bytes.Compare(w[:], other[:])
		})
		if got := election.Rank(address, nodes); !slices.Equal(got, want) {
			t.Fatalf("Rank(%s, %v) = %v, want %v", address, nodes, got, want)
		}
	})
}

// BenchmarkRank is what one address costs with so many nodes.
func BenchmarkRank(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			address, all := netip.MustParseAddr("198.18.0.0"), make([]string, n)
			for i := range all {
				all[i] = fmt.Sprintf("worker-%04d.example.net", i)
			}
			for b.Loop() {
				address = address.Next()
				election.Rank(address, all)
			}
		})
	}
}

func TestOnlyTheAddressesOfADeadNodeMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, address := drawNodes(t), drawAddress(t)
		dead := rapid.SampledFrom(nodes).Draw(t, "dead")
		alive := func(node string) bool { return node != dead }
		all := func(string) bool { return true }
		ranked := election.Rank(address, nodes)
		before, _ := election.Owner(ranked, all)
		after, ok := election.Owner(ranked, alive)
		if ok != (len(nodes) > 1) {
			t.Fatalf("owner after the death of one of %d: %v", len(nodes), ok)
		}
		if before != dead && before != after {
			t.Fatalf("%s moved from %s to %s though %s died", address, before, after, dead)
		}
		// Skipping the dead in the old order is the order of the living.
		rest := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == dead })
		if again := election.Rank(address, rest); len(rest) > 0 && again[0] != after {
			t.Fatalf("the living would elect %s, the old order gives %s", again[0], after)
		}
	})
}

func TestAddressesSpreadOverNodes(t *testing.T) {
	nodes := []string{"node-1", "node-2", "node-3", "node-4", "node-5"}
	count := map[string]int{}
	for i := range 5000 {
		address := netip.MustParseAddr(fmt.Sprintf("192.0.%d.%d", i/250, i%250))
		count[election.Rank(address, nodes)[0]]++
	}
	for _, node := range nodes {
		if count[node] < 850 || count[node] > 1150 { // 1000 ± 5 standard deviations
			t.Errorf("%s owns %d of 5000 addresses, want about 1000", node, count[node])
		}
	}
}

// The weights are a contract between versions that run side by side, and with MetalLB: these
// are the orders of SHA-256 over "node1#192.0.2.1" and so on.
func TestRankIsMetalLBsInEveryRelease(t *testing.T) {
	nodes := []string{"node1", "node2", "node3"}
	for address, want := range map[string][]string{
		"192.0.2.1":      {"node3", "node2", "node1"},
		"192.0.2.2":      {"node1", "node2", "node3"},
		"192.0.2.3":      {"node3", "node1", "node2"},
		"2001:db8:113::": {"node2", "node3", "node1"},
	} {
		if got := election.Rank(netip.MustParseAddr(address), nodes); !slices.Equal(got, want) {
			t.Errorf("Rank(%s) = %v, want %v", address, got, want)
		}
	}
}
