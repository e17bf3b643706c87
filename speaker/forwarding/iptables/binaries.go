package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Variant is one of the two implementations of iptables. A host must use one
// only: rules of the other would be evaluated apart from them.
type Variant string

// The variants. Detect chooses the one that the host uses.
const (
	Detect Variant = ""
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

type commands struct {
	variant Variant
	family  addr.Family
}

func (c commands) program(action string) string {
	name := "iptables"
	if c.family == addr.IPv6 {
		name = "ip6tables"
	}
	return name + "-" + string(c.variant) + "-" + action
}

// pace is how many lines of a script or a table a program gets through in a second at
// the least, on a node that is busy.
const pace = 2000

// restore applies a script, each of its transactions as a whole.
func (c commands) restore(ctx context.Context, r *runner, script string) error {
	work := time.Duration(strings.Count(script, "\n")) * time.Second / pace
	_, err := r.run(ctx, work, script, c.program("restore"), "--noflush", "--wait", "1")
	return err
}

// saveTable reads a table of about so many lines.
func (c commands) saveTable(ctx context.Context, r *runner, table string, lines int) (saved, error) {
	out, err := r.run(ctx, time.Duration(lines)*time.Second/pace, "", c.program("save"), "-t", table)
	if err != nil {
		return saved{}, err
	}
	return parseSave(bytes.NewReader(out))
}

// detect finds the variant that the host uses: that in which the kubelet left a
// hint, else that with more rules, else nft.
func detect(ctx context.Context, patience time.Duration) (Variant, error) {
	var installed []Variant
	var present []commands
	for _, variant := range []Variant{NFT, Legacy} {
		if _, err := exec.LookPath(commands{variant, addr.IPv4}.program("restore")); err != nil {
			continue
		}
		installed = append(installed, variant)
		for _, family := range addr.Families() {
			// Asking legacy iptables about a table creates it, so ask only if it is there.
			if variant == NFT || legacyInUse(family) {
				present = append(present, commands{variant, family})
			}
		}
	}
	if len(installed) == 0 {
		return "", outcome.Caused(outcome.ReasonProgramMissing,
			fmt.Errorf("neither iptables-nft-restore nor iptables-legacy-restore is in PATH: install iptables 1.8 or newer: %w", exec.ErrNotFound))
	}
	rules := map[Variant]int{}
	for _, look := range []struct { // at the table that has all hints, then at all, which may be long
		args []string
		work time.Duration
	}{{[]string{"-t", "mangle"}, 0}, {nil, time.Minute}} {
		clear(rules)
		for _, c := range present {
			out, err := (&runner{patience: patience}).run(ctx, look.work, "", c.program("save"), look.args...)
			if late := (*LateError)(nil); errors.As(err, &late) {
				return "", err // what it might say is worth waiting for
			}
			if kubeletHint(out) {
				return c.variant, nil
			}
			rules[c.variant] += bytes.Count(out, []byte("\n-A ")) // a family that the host has not got hints at nothing
		}
	}
	if rules[Legacy] > rules[NFT] {
		return Legacy, nil
	}
	return installed[0], nil
}

// kubeletHint finds the chains by which a kubelet tells its variant (KEP-3178).
func kubeletHint(save []byte) bool {
	return slices.ContainsFunc([]string{"\n:KUBE-IPTABLES-HINT ", "\n:KUBE-KUBELET-CANARY "}, func(hint string) bool {
		return bytes.Contains(save, []byte(hint))
	})
}

func legacyInUse(family addr.Family) bool {
	name := "/proc/thread-self/net/ip_tables_names"
	if family == addr.IPv6 {
		name = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(name)
	return err == nil && len(bytes.TrimSpace(names)) > 0
}
