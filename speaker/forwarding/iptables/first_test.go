package iptables

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestALookAtOthersChainsThatFailsIsMadeAgain has no socket be left for the look whether others translate, as where a process has too many
// files open: the next Apply looks again, though nothing has changed meanwhile.
func TestALookAtOthersChainsThatFailsIsMadeAgain(t *testing.T) {
	c := newCluster(t, NFT)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	c.Run("nft", "add table ip another")
	of := c.backend.families[0]
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	c.Node.Do(func() {
		none := limit
		none.Cur = 0
		err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
		of.comeFirst()
		err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(of.first.failure, unix.EMFILE) {
		t.Fatalf("without sockets the look fails with %v", of.first.failure)
	}
	c.Apply(want)
}
