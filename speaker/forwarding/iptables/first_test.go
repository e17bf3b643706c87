package iptables

import (
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestChainsThatTranslateAreSeen has another program add a chain that translates destinations, and take it away again,
// while the backend watches: our rules come before it in both families, and go with it. Chains of later priorities,
// and those that translate sources, are left to themselves.
func TestChainsThatTranslateAreSeen(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.keep(want)
		first := func() int { return strings.Count(c.Run("nft", "list", "tables"), firstTable) }
		await := func(tables int) {
			t.Helper()
			for deadline := time.Now().Add(patience); first() != tables; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("there are %d tables %s, want %d", first(), firstTable, tables)
				}
			}
		}
		c.Run("nft", "add table inet others; add chain inet others later { type nat hook prerouting priority -90; }; add chain inet others sources { type nat hook postrouting priority 100; }")
		c.Run("nft", "add table inet hostports; add chain inet hostports output { type nat hook output priority -100; }")
		await(2)
		c.Run("nft", "delete table ip "+firstTable)
		await(2)
		c.Run("nft", "delete table inet hostports")
		await(0)
		c.Run("nft", "add table ip6 hostports; add chain ip6 hostports prerouting { type nat hook prerouting priority -110; }")
		await(1)
	})
}
