package iptables

import (
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/forwarding/iptables/wire"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// TestASetIsFreeOnceTheKernelHasSettled holds that a set can go as soon as the kernel has destroyed the rule that
// used it, however long a busy node takes for that.
func TestASetIsFreeOnceTheKernelHasSettled(t *testing.T) {
	netlab.NewHost(t, "node").Do(func() {
		const table, chain, name = "nat", ours + "TEST", ours + "TEST"
		for range 20 {
			if err := ipset.Create(ipset.Spec{Name: name, Type: ipset.HashIP, Family: addr.IPv4, MaxElements: 10}, 0); err != nil {
				t.Errorf("create: %v", err)
				return
			}
			with, without := wire.New(addr.IPv4, 4096, &nfnetlink.Conn{}), wire.New(addr.IPv4, 4096, &nfnetlink.Conn{})
			with.MakeTable(table, baseChains[table])
			with.Make(table, chain)
			if err := with.Append(table, chain, "-m set --match-set "+name+" src -j RETURN", 0); err != nil {
				t.Errorf("rule: %v", err)
				return
			}
			without.Clear(table, chain)
			for _, tx := range []*wire.Transaction{with, without} {
				if err := tx.Send(); err != nil {
					t.Errorf("transaction: %v", err)
					return
				}
			}
			nfnetlink.Settle()
			if err := ipset.Destroy(name); err != nil {
				t.Errorf("after the rule that used it is gone: %v", err)
				return
			}
		}
	})
}
