package stage

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"fairlead.dev/fairlead/e2e/bench/process"
)

// Start starts a contestant on the node until the test or the context ends, or Stop, after
// which its rules stay, as they do on a real node. An error is that of iptables or of the start.
func (s *Stage) Start(ctx context.Context, tb testing.TB, c Contestant, p Programs) (*process.Running, error) {
	tb.Helper()
	if c.Variant != "" {
		if err := s.hint(ctx, p, c.Variant); err != nil {
			return nil, err
		}
	}
	return process.Start(tb, c.Name, c.command(ctx, p), s.node.Do, c.synced()...)
}

// hint leaves the chain by which a kubelet tells which variant of iptables is used.
func (s *Stage) hint(ctx context.Context, p Programs, variant string) error {
	var errs []error
	s.node.Do(func() {
		for _, name := range []string{"iptables", "ip6tables"} {
			cmd := exec.CommandContext(ctx, p.variantDir(variant)+"/"+name, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
			if out, err := cmd.CombinedOutput(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w: %s", cmd, err, out))
			}
		}
	})
	return errors.Join(errs...)
}

// Worst is the Service that flows have the longest way to: the last in the list that
// kube-proxy's iptables mode has every packet walk through; otherwise ours to choose. It is an
// error if the list cannot be read or is empty.
func (s *Stage) Worst(ctx context.Context, c Contestant, p Programs, otherwise netip.AddrPort) (netip.AddrPort, error) {
	if c.Ours || c.Mode != "iptables" {
		return otherwise, nil
	}
	var out []byte
	var err error
	s.node.Do(func() {
		out, err = exec.CommandContext(ctx, p.variantDir(c.Variant)+"/iptables-save", "-t", "nat").Output()
	})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("iptables-save: %w", err)
	}
	return lastService(string(out), otherwise.Port())
}

// lastService finds the last Service with this port in kube-proxy's list.
func lastService(save string, port uint16) (netip.AddrPort, error) {
	var last netip.Addr
	for line := range strings.Lines(save) {
		rest, ok := strings.CutPrefix(line, "-A KUBE-SERVICES -d ")
		if !ok || !strings.Contains(line, fmt.Sprintf("--dport %d ", port)) {
			continue
		}
		address, _, _ := strings.Cut(rest, "/")
		parsed, err := netip.ParseAddr(address)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q: %w", line, err)
		}
		last = parsed
	}
	if !last.IsValid() {
		return netip.AddrPort{}, errors.New("the chain KUBE-SERVICES has no Service")
	}
	return netip.AddrPortFrom(last, port), nil
}
