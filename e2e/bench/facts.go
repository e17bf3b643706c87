package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"fairlead.dev/fairlead/e2e/bench/machine"
)

// facts are what a reader must know of machine, kernel and programs.
func facts(ctx context.Context, o options) ([]string, error) {
	facts, err := machine.Facts(ctx)
	if err != nil {
		return nil, err
	}
	facts = slices.Insert(facts, 1, fmt.Sprintf("%d rounds, the order of modes turned by one in each; %d passes of %d flows, %d changes of endpoints a round",
		o.rounds, o.passes, o.flows, o.changes))
	for _, program := range []struct {
		label   string
		command []string
	}{
		{"kube-proxy: ", []string{filepath.Join(o.bin, "kube-proxy"), "--version"}},
		{"", []string{"iptables", "--version"}},
		{"", []string{"nft", "--version"}},
	} {
		said, err := machine.Said(ctx, program.command...)
		if err != nil {
			return nil, err
		}
		facts = append(facts, program.label+said)
	}
	return append(facts,
		"Services of type ClusterIP with one port and 3 to 10 endpoints, IPv4; iptables is the nf_tables variant where the name does not say legacy",
		"the API server hands out ClusterIPs as that of Kubernetes 1.33 can, lest tens of thousands of Services take it tens of minutes",
		"kube-proxy runs with `--iptables-min-sync-period=1ms`, else it would wait for up to a second before it acts on a change"), nil
}
