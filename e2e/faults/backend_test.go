package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
)

var backendFlag = flag.String("faults.backend", "", "what forwards: iptables-nft, iptables-legacy or nftables; empty: what the seed gives")

// backend is what forwards, as NodeForwarding.status.tool has it.
type backend string

const (
	iptablesNFT    backend = "iptables-nft"
	iptablesLegacy backend = "iptables-legacy"
	nftables       backend = "nftables"
)

// chooseBackend returns that of the flag, or else of the seed.
func chooseBackend(t *testing.T, seed uint64) backend {
	t.Helper()
	all := []backend{iptablesNFT, iptablesLegacy, nftables}
	if *backendFlag == "" {
		return all[rand.New(rand.NewPCG(seed, hash("backend"))).IntN(len(all))]
	}
	if !slices.Contains(all, backend(*backendFlag)) {
		t.Fatalf("-faults.backend=%s: want one of %v", *backendFlag, all)
	}
	return backend(*backendFlag)
}

// mode is the value forwarding.mode of the chart.
func (b backend) mode() string {
	if b == nftables {
		return "nftables"
	}
	return "iptables"
}

// program is the program of iptables that writes where the backend does, "-save" or "-restore" may follow.
func (b backend) program(family string) string {
	return family + strings.TrimPrefix(string(b), "iptables")
}

// used waits until all nodes tell that the backend forwards.
func (k *kit) used(ctx context.Context) error {
	return lab.Until(ctx, func() error {
		for _, n := range k.Nodes() {
			var status v1beta1.NodeForwarding
			if err := k.API.Get(ctx, client.ObjectKey{Name: n.Name}, &status); err != nil {
				return err
			}
			if status.Status.Tool != string(k.backend) {
				return fmt.Errorf("%s forwards by %q, want %s", n.Name, status.Status.Tool, k.backend)
			}
		}
		return nil
	})
}

// byFirewalls are what other programs do to the rules of a node.
func byFirewalls(b backend) []fault {
	const told = "RulesChanged"
	flushed := excuses{moves: true, routes: true, lost: true} // there is nothing for up to a second
	iptables, whole := fault{name: "another program flushes all rules of iptables", excused: flushed}, fault{name: "another program flushes all rules of nf_tables", excused: flushed}
	switch b {
	case nftables: // the rules of iptables are not its own, and what it owns the kernel takes from nobody else (Linux 6.9)
		return []fault{onNode(iptables, "", flushRules), onNode(whole, "", flushRuleset), onNode(fault{name: "nft restores what it saved", gate: true}, "", restoreRuleset)}
	case iptablesLegacy:
		return []fault{onNode(iptables, told, flushRules), onNode(whole, "", flushRuleset), onNode(olderRestores(), told, restoreRules)}
	}
	return []fault{onNode(iptables, told, flushRules), onNode(whole, told, flushRuleset), onNode(olderRestores(), told, restoreRules)}
}

func olderRestores() fault {
	return fault{name: "an older iptables restores what it saved", gate: true}
}

// restoreRules has a program restore the rules that an older iptables saved before endpoints changed, as netfilter-persistent
// and Docker's or a firewall's scripts do.
func restoreRules(t *testing.T, k *kit, n *lab.Node) {
	root, ctx := olderIPTables(t), within(t, 2*soon)
	// Legacy iptables finds the tables that there are by /proc, and takes its lock in /run.
	older := func(stdin, program string) (string, error) {
		return inNetworkOf(ctx, n.Machine, stdin, "unshare", "--mount", "sh", "-ec",
			`mkdir -p "$0/proc" "$0/run" && mount --rbind /proc "$0/proc" && exec chroot "$0" "$1"`, root, program)
	}
	for _, family := range families() {
		command := k.backend.program(family)
		saved, err := older("", command+"-save")
		if err != nil || !strings.Contains(saved, "FAIRLEAD") {
			t.Fatalf("%s saved %d bytes, and none of ours: %v", command, len(saved), err)
		}
		if err := k.follow(ctx, soon); err != nil {
			t.Fatal(err)
		}
		if _, err := older(saved, command+"-restore"); err != nil {
			t.Fatal(err)
		}
	}
}

// restoreRuleset has nftables.service load again what was saved before endpoints changed. Where tables have owners (Linux 6.9) the kernel refuses that as a whole.
func restoreRuleset(t *testing.T, k *kit, n *lab.Node) {
	ctx := within(t, 2*soon)
	saved, err := n.Exec(ctx, "nft", "list", "ruleset")
	if err != nil || !strings.Contains(saved, "table ip fairlead {") {
		t.Fatalf("nft saved %d bytes, and none of ours: %v", len(saved), err)
	}
	if err := k.follow(ctx, soon); err != nil {
		t.Fatal(err)
	}
	if _, err := inNetworkOf(ctx, n.Machine, "flush ruleset\n"+saved, "nft", "-f", "-"); err != nil && !strings.Contains(err.Error(), "Operation not permitted") {
		t.Fatal(err)
	}
}
