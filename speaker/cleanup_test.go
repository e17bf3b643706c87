package main

import (
	"context"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/iptables"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
	"fairlead.dev/fairlead/speaker/pulse/handover"
	"fairlead.dev/fairlead/speaker/pulse/untracked"
)

// counts is what differs between two readings of the same rules.
var counts = regexp.MustCompile(`(?m)^#.*\n|\[\d+:\d+\]|References: \d+|packets \d+ bytes \d+`)

// littered is a node whose kernel holds what all modes have ever put there, beside rules of
// others whose names are much like ours.
type littered struct {
	*blackbox.Cluster
	t *testing.T
}

func newLittered(t *testing.T) *littered {
	l := &littered{blackbox.NewCluster(t, func() (blackbox.Backend, error) {
		return forwarding.New(forwarding.Config{Mode: forwarding.None, Log: blackbox.Quiet()})
	}), t}
	for _, program := range []string{"iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"} {
		for table, chains := range map[string][]string{
			"nat": {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"}, "filter": {"INPUT", "FORWARD", "OUTPUT"}, "mangle": {"PREROUTING"},
		} {
			l.Run(program, "-t", table, "-N", "FAIRLEADING")
			l.Run(program, "-t", table, "-A", "FAIRLEADING", "-m", "comment", "--comment", "not -j FAIRLEAD-INPUT", "-j", "RETURN")
			for _, chain := range chains { // the program leaves those behind that it has once seen
				l.Run(program, "-t", table, "-A", chain, "-j", "FAIRLEADING")
			}
		}
	}
	l.Run("ipset", "create", "FAIRLEADING", "hash:ip")
	l.Run("ipset", "add", "FAIRLEADING", "192.0.2.7")
	l.Run("nft", "add", "table", "ip", "fairleading")
	return l
}

// state is all that the kernel has of rules and sets, and the setting for localhost.
func (l *littered) state() string {
	l.t.Helper()
	var all []string
	for _, command := range [][]string{
		{"iptables-legacy-save"},
		{"ip6tables-legacy-save"},
		{"ipset", "list"},
		{"nft", "list", "ruleset"}, // those of iptables-nft, too
	} {
		all = append(all, counts.ReplaceAllString(l.Run(command...), ""))
	}
	var setting []byte
	var err error
	l.Node.Do(func() { setting, err = os.ReadFile(forwarding.RouteLocalnet) })
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.Join(append(all, string(setting)), "\n")
}

// forward has each mode do its work, as none of them ever removed what it put there.
func (l *littered) forward() {
	l.t.Helper()
	want, less := blackbox.Forwarding(blackbox.Services()...), blackbox.Forwarding(blackbox.Services()[:3]...)
	a := blackbox.Plan(addr.IPv4)
	want.Loopback, want.Guard = []netip.Prefix{addr.Loopback()}, true
	less.Loopback, less.Guard = want.Loopback, want.Guard
	apply := func(what string, create func() (blackbox.Backend, error)) {
		l.t.Helper()
		l.Node.Do(func() {
			backend, err := create()
			if err != nil {
				l.t.Fatal(err)
			}
			for _, state := range []desired.Forwarding{want, less} { // what goes leaves its flows behind
				if missing, err := backend.Apply(l.t.Context(), state); err != nil || len(missing) > 0 {
					l.t.Fatalf("%s: %d ports are missing, error %v", what, len(missing), err)
				}
			}
		})
	}
	for _, variant := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
		apply("iptables-"+string(variant), func() (blackbox.Backend, error) {
			return iptables.New(iptables.Config{Log: blackbox.Quiet(), Variant: variant}), nil
		})
	}
	apply("all that a speaker does", func() (blackbox.Backend, error) {
		return forwarding.New(forwarding.Config{Mode: forwarding.IPTables, Log: blackbox.Quiet()})
	})
	l.Node.Do(func() {
		if err := handover.NewTable().Apply(map[netip.Addr]netip.Addr{blackbox.Nth(a.VIPs, 1): a.Other}); err != nil {
			l.t.Fatal(err)
		}
		ended, end := context.WithCancel(l.t.Context())
		end()
		if err := untracked.New(7475, blackbox.Quiet()).Run(ended); err != nil {
			l.t.Fatal(err)
		}
		forwarder, err := forwarding.New(forwarding.Config{Mode: forwarding.IPTables, Log: blackbox.Quiet()})
		if err != nil {
			l.t.Fatal(err)
		}
		forwarder.FreeReusedPorts(ended)
	})
	apply("nftables", func() (blackbox.Backend, error) { return nftables.New(nftables.Config{Log: blackbox.Quiet()}), nil })
}

func (l *littered) command(args ...string) (err error) {
	l.Node.Do(func() { err = dispatch(l.t.Context(), append([]string{"cleanup"}, args...)) })
	return err
}

// "speaker cleanup" removes what any mode put into the kernel, with all that goes with it, and
// nothing of others; it may be run again, and where the speaker never ran.
func TestCleanupRemovesOursAlone(t *testing.T) {
	l := newLittered(t)
	before := l.state()
	if err := l.command(); err != nil {
		t.Errorf("where the speaker never ran: %v", err)
	}
	if d := cmp.Diff(before, l.state()); d != "" {
		t.Errorf("where the speaker never ran (-before +after):\n%s", d)
	}
	l.forward()
	full := l.state()
	for _, part := range []string{"FAIRLEAD-DISPATCH", "table ip fairlead ", "table ip6 fairlead ", "Name: FAIRLEAD-ENDPOINTS4", "Name: fairlead-journal4", "handover", "untracked", "reused-ports"} {
		if !strings.Contains(full, part) {
			t.Errorf("there is no %q, so that this test holds too little", part)
		}
	}
	if !strings.HasSuffix(strings.TrimSpace(full), "2") {
		t.Error("the setting for NodePorts on localhost is not ours")
	}
	service := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(addr.IPv4).VIPs, 1), 80)
	if _, err := l.Client.Ask("tcp", service, blackbox.AnswerIn); err != nil {
		t.Errorf("before: %v", err)
	}
	for range 2 {
		if err := l.command(); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(before, l.state()); d != "" {
			t.Errorf("what is left (-before +after):\n%s", d)
		}
	}
	if got, err := l.Client.Ask("tcp", service, 250*time.Millisecond); err == nil {
		t.Errorf("%s still answers", got.Server)
	}
	l.forward() // nothing is in the way of a speaker that comes again
	if got, err := l.Client.Ask("tcp", service, blackbox.AnswerIn); err != nil {
		t.Errorf("after another beginning: %v, %v", got, err)
	}
}

// What others have put a use to stays with them: it is told, and all else goes.
func TestCleanupTellsWhatItCannotRemove(t *testing.T) {
	l := newLittered(t)
	l.forward()
	l.Run("iptables-legacy", "-A", "OUTPUT", "-m", "set", "--match-set", "FAIRLEAD-ENDPOINTS4", "dst,dst,dst", "-j", "RETURN")
	err := l.command()
	if err == nil || !strings.Contains(err.Error(), "FAIRLEAD-ENDPOINTS4") {
		t.Errorf("a set of ours in a rule of others: %v", err)
	}
	left := l.Run("ipset", "list", "-n")
	if names := strings.Fields(left); !slices.Equal(names, []string{"FAIRLEADING", "FAIRLEAD-ENDPOINTS4"}) && !slices.Equal(names, []string{"FAIRLEAD-ENDPOINTS4", "FAIRLEADING"}) {
		t.Errorf("left are the sets %q", names)
	}
	l.Run("iptables-legacy", "-D", "OUTPUT", "-m", "set", "--match-set", "FAIRLEAD-ENDPOINTS4", "dst,dst,dst", "-j", "RETURN")
	if err := l.command(); err != nil {
		t.Errorf("once it is not in use any more: %v", err)
	}
	if left := l.Run("ipset", "list", "-n"); strings.TrimSpace(left) != "FAIRLEADING" {
		t.Errorf("left are the sets %q", left)
	}
}

func TestCleanupTakesNoArguments(t *testing.T) {
	if err := dispatch(t.Context(), []string{"cleanup", "nftables"}); err == nil || !strings.Contains(err.Error(), `"nftables"`) {
		t.Errorf("an argument that means nothing: %v", err)
	}
}
