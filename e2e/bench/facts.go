package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// facts are what a reader must know of machine, kernel and programs.
func facts(ctx context.Context, o options) ([]string, error) {
	facts := []string{
		fmt.Sprintf("%s; %d rounds, the order of modes turned by one in each; %d passes of %d flows, %d changes of endpoints a round",
			time.Now().UTC().Format(time.DateOnly), o.rounds, passes, o.flows, o.changes),
		fmt.Sprintf("%d CPUs, %s; memory %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), field("/proc/meminfo", "MemTotal")),
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	facts = append(facts, "Linux "+strings.TrimSpace(string(kernel)))
	for _, command := range [][]string{
		{"git", "describe", "--tags", "--always", "--dirty"},
		{filepath.Join(o.bin, "kube-proxy"), "--version"},
		{"iptables", "--version"},
		{"nft", "--version"},
	} {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
		text := strings.TrimSpace(string(out))
		switch command[0] {
		case "git":
			text = "Fairlead " + text
		case "iptables", "nft":
		default:
			text = "kube-proxy: " + text
		}
		facts = append(facts, text)
	}
	return append(facts,
		"Services of type ClusterIP with one port and 3 to 10 endpoints, IPv4; iptables is the nf_tables variant where the name does not say legacy",
		"kube-proxy runs with `--iptables-min-sync-period=1ms`, else it would wait for up to a second before it acts on a change"), nil
}

// field reads the first line of that name from a file of lines "name: value".
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
