package forwarding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/iptables"
	"fairlead.dev/fairlead/speaker/outcome"
)

func (l *lab) inMode(mode Mode) {
	l.t.Helper()
	var err error
	l.node.Do(func() { l.backend, err = New(Config{Mode: mode, Log: slog.New(slog.DiscardHandler)}) })
	if err != nil {
		l.t.Fatal(err)
	}
}

// chains tells whether the node has iptables chains of ours.
func (l *lab) chains() bool {
	l.t.Helper()
	return strings.Contains(l.saved(), "FAIRLEAD-")
}

// saved are the node's iptables rules.
func (l *lab) saved() string {
	l.t.Helper()
	var out []byte
	var err error
	l.node.Do(func() { out, err = exec.Command("iptables-nft-save").CombinedOutput() })
	if err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// Mode none leaves the kernel alone, but for what we left there ourselves: that goes once
// another proxy forwards, and not a moment before.
func TestModeNoneGivesWayToAnotherProxy(t *testing.T) {
	l := newLab(t)
	f := families()[0]
	want := f.want(f.vip, 30053, "e1")
	l.apply(want)
	flow := l.dial(netip.AddrPortFrom(f.vip, 53))
	defer flow.Close()

	l.inMode(None)
	l.apply(want)
	if got, err := flow.Ask(); !l.chains() || err != nil || got.Server != "e1" {
		t.Fatalf("our rules are there: %t; %v answers, %v; nobody else forwards yet", l.chains(), got, err)
	}
	// Another one comes: its first chain, then the whole of one family, then of the other. Its
	// rules keep the connection table at work: the kernel stops it where no rule needs it.
	const known = "-A KUBE-SERVICES -m conntrack --ctstate NEW -j RETURN\n"
	for _, step := range []struct {
		program, rules string
		stay           bool
	}{
		{"iptables-nft-restore", "*nat\n:KUBE-SERVICES - [0:0]\n" + known + "COMMIT\n", true},
		{"ip6tables-nft-restore", "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n" + known + "COMMIT\n", true},
		{"iptables-nft-restore", "*nat\n:KUBE-NODEPORTS - [0:0]\nCOMMIT\n", false},
	} {
		l.node.Do(func() {
			cmd := exec.Command(step.program, "--noflush")
			cmd.Stdin = strings.NewReader(step.rules)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		l.inMode(None)
		l.apply(want)
		if got, err := flow.Ask(); l.chains() != step.stay || err != nil || got.Server != "e1" {
			t.Errorf("after %s %q: our rules are there: %t; %v answers, %v", step.program, step.rules, l.chains(), got, err)
		}
	}
}

// TestTheOtherVariantIsCleanedUp begins on a host that used legacy iptables and has its kubelet's hint in nf_tables by
// now: what is left in legacy tables would still translate.
func TestTheOtherVariantIsCleanedUp(t *testing.T) {
	l := newLab(t)
	f := families()[0]
	want := f.want(f.vip, 30053, "e1")
	legacy := func() string { return blackbox.RunOn(t, l.node, "iptables-legacy-save") }
	l.node.Do(func() {
		b := iptables.New(iptables.Config{Log: slog.New(slog.DiscardHandler), Variant: iptables.Legacy})
		if missing, err := b.Apply(t.Context(), want); err != nil || len(missing) > 0 {
			t.Errorf("%d ports are missing: %v", len(missing), err)
		}
	})
	blackbox.RunOn(t, l.node, "iptables-legacy", "-A", "INPUT", "-p", "47", "-j", "ACCEPT")
	blackbox.RunOn(t, l.node, "iptables-nft", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
	if !strings.Contains(legacy(), "FAIRLEAD-") {
		t.Fatal("nothing is left in legacy tables")
	}
	l.inMode(IPTables)
	l.apply(want)
	if left := legacy(); !l.chains() || strings.Contains(left, "FAIRLEAD-") || !strings.Contains(left, "-A INPUT -p gre -j ACCEPT") && !strings.Contains(left, "-A INPUT -p 47 -j ACCEPT") {
		t.Errorf("nf_tables has chains of ours: %t; legacy tables have\n%s", l.chains(), left)
	}
}

// tables tells whether the node has nftables tables of ours.
func (l *lab) tables() bool {
	l.t.Helper()
	var out []byte
	var err error
	l.node.Do(func() { out, err = exec.Command("nft", "list", "tables").CombinedOutput() })
	if err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	return strings.Contains(string(out), " fairlead\n")
}

// Switching the mode of a live node, there and back, loses no connection, and leaves
// nothing of the mode before.
func TestModesAreSwitchedUnderOpenConnections(t *testing.T) {
	l := newLab(t)
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	for _, f := range families() {
		udp := f.want(f.vip, 30053, "e1", "e2")
		want.NodePorts = append(want.NodePorts, udp.NodePorts...)
		for key, port := range udp.Ports {
			want.Ports[key] = port
			key.Protocol, key.Name = view.TCP, "tcp"
			want.Ports[key] = port
		}
	}
	type flow struct {
		*netlab.Conn
		what, server string
	}
	var flows []flow
	open := func(mode Mode) {
		for _, f := range families() {
			for _, network := range []string{"tcp", "udp"} {
				for _, to := range []netip.AddrPort{netip.AddrPortFrom(f.vip, 53), netip.AddrPortFrom(f.node, 30053)} {
					what := fmt.Sprintf("%s to %s of mode %s", network, to, mode)
					conn, err := l.client.Dial(network, netip.AddrPort{}, to, answerIn)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					t.Cleanup(conn.Close)
					got, err := conn.Ask()
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					flows = append(flows, flow{conn, what, got.Server})
				}
			}
		}
	}
	for _, mode := range []Mode{IPTables, NFTables, IPTables, NFTables} {
		l.inMode(mode)
		l.apply(want)
		if l.chains() != (mode == IPTables) || l.tables() != (mode == NFTables) {
			t.Errorf("mode %s: there are iptables chains of ours: %t, nftables tables: %t", mode, l.chains(), l.tables())
		}
		for _, f := range flows {
			if got, err := f.Ask(); err != nil || got.Server != f.server {
				t.Errorf("mode %s: %s: %v, %v, want an answer of %s", mode, f.what, got, err, f.server)
			}
		}
		open(mode)
	}
}

// What other modes left goes when all that is wanted is in place, at once or later, and
// what the kernel refuses for good does not hold it up.
func TestOtherModesAreCleanedUpOnceThisOneIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := desired.PortKey{Name: "http"}
		backend := &scripted{}
		retired := 0
		s := assembled(t, backend, noFlows)
		s.modes = &modeSwitch{log: slog.New(slog.DiscardHandler), cleanup: func(context.Context) error {
			if retired++; retired == 1 {
				return errors.New("busy")
			}
			return nil
		}}
		for _, step := range []struct {
			missing outcome.Missing
			err     error
			want    int
		}{
			{outcome.Missing{key: {}}, errors.New("the kernel takes nothing"), 0},
			{outcome.Missing{key: {}}, &outcome.RefusedError{Key: key, Err: errors.New("no")}, 1},
			{nil, nil, 2},
			{nil, nil, 2}, // done
		} {
			backend.missing, backend.err = step.missing, step.err
			missing, err := s.Apply(t.Context(), desired.Forwarding{})
			if !errors.Is(err, step.err) || len(missing) != len(step.missing) {
				t.Errorf("%v, %v, want what the backend says", missing, err)
			}
			if retired != step.want {
				t.Errorf("%v: retired %d times, want %d", step.err, retired, step.want)
			}
			time.Sleep(tryEvery)
		}
	})
}

func TestUnknownModes(t *testing.T) {
	if _, err := New(Config{Mode: "ipvs", Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("mode ipvs was accepted")
	}
}
