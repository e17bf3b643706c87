package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// byNeighbours are what the administrator of a node does to its kernel, and what one does to the store of the cluster.
func byNeighbours() []fault {
	return []fault{
		changedSetting("net.ipv4.ip_forward", "ForwardingDisabled", excuses{moves: true, routes: true, lost: true, unheard: true, unasked: true}),
		changedSetting("net.ipv6.conf.all.forwarding", "ForwardingDisabled", excuses{moves: true, routes: true, lost: true, unheard: true, unasked: true}),
		// Both nodes and clients are others than the pods beside an endpoint.
		changedSetting("net.bridge.bridge-nf-call-iptables", "BridgeBypassed", excuses{}),
		changedSetting("net.bridge.bridge-nf-call-ip6tables", "BridgeBypassed", excuses{}),
		{name: "etcd is restored to an older state", excused: excuses{unheard: true, unasked: true}, inject: restoreEtcd, check: forgotten},
	}
}

// olderIPTables is a root directory with the iptables of Debian 11, 1.8.7, which is made once.
func olderIPTables(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(lab.Programs()), "iptables-1.8.7")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	half := dir + ".half"
	if err := os.RemoveAll(half); err != nil {
		t.Fatal(err)
	}
	// Packages are extracted, not installed: no program of theirs runs but iptables.
	c := exec.CommandContext(t.Context(), "mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--include=iptables", "bullseye", half,
		"deb http://deb.debian.org/debian bullseye main")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("get the iptables of Debian 11: %v: %s", err, out)
	}
	if err := os.Rename(half, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inNetworkOf runs a program of the host in the network of a machine.
func inNetworkOf(ctx context.Context, m *lab.Machine, stdin string, command ...string) (out string, err error) {
	err = m.Inside(func() error {
		c := exec.CommandContext(ctx, command[0], command[1:]...)
		c.Stdin = strings.NewReader(stdin)
		var said bytes.Buffer
		c.Stderr = &said
		text, err := c.Output()
		out = string(text)
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, &said)
		}
		return err
	})
	return out, err
}

// families of iptables, as its programs are called.
func families() []string { return []string{"iptables", "ip6tables"} }

// keepOwn has the rules of a node that are not Fairlead's come back when the test ends.
func keepOwn(t *testing.T, n *lab.Node) {
	t.Helper()
	for _, command := range families() {
		saved, err := n.Exec(within(t, soon), command+"-save")
		if err != nil {
			t.Fatal(err)
		}
		own := slices.DeleteFunc(strings.SplitAfter(saved, "\n"), func(line string) bool { return strings.Contains(line, "FAIRLEAD") })
		atEnd(t, func(ctx context.Context) error {
			_, err := inNetworkOf(ctx, n.Machine, strings.Join(own, ""), command+"-restore", "--noflush")
			return err
		})
	}
}

// flushRules has a program delete all rules and chains of iptables.
func flushRules(t *testing.T, _ *kit, n *lab.Node) {
	keepOwn(t, n)
	for _, command := range families() {
		for _, table := range []string{"raw", "mangle", "nat", "filter"} {
			// Others' chains may be written in between, which are then not empty.
			if _, err := n.Exec(within(t, soon), "sh", "-c", fmt.Sprintf("%[1]s -t %[2]s -F && { %[1]s -t %[2]s -X || :; }", command, table)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// flushRuleset does what nftables.service does when it starts.
func flushRuleset(t *testing.T, _ *kit, n *lab.Node) {
	keepOwn(t, n)
	if _, err := n.Exec(within(t, soon), "nft", "flush", "ruleset"); err != nil {
		t.Fatal(err)
	}
}

// changedSetting is a fault in which a setting of a node's network is 0 for a while, which the node tells by a reason.
func changedSetting(name, reason string, excused excuses) fault {
	return onNode(fault{name: name + " is switched off", excused: excused}, reason, func(t *testing.T, _ *kit, n *lab.Node) {
		set := func(value string) error {
			return n.Inside(func() error {
				return os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0o600)
			})
		}
		atEnd(t, func(context.Context) error { return set("1") })
		if err := set("0"); err != nil {
			t.Fatal(err)
		}
	})
}

// onNode has a fault happen to a node, which tells it in its NodeForwarding by a reason, unless that is empty.
func onNode(f fault, reason string, inject func(*testing.T, *kit, *lab.Node)) fault {
	var victim *lab.Node
	f.inject = func(t *testing.T, k *kit, r *rand.Rand) {
		victim = k.victim(r)
		inject(t, k, victim)
	}
	if reason == "" {
		return f
	}
	f.check = func(ctx context.Context, k *kit) error {
		return lab.Until(ctx, func() error {
			var status v1beta1.NodeForwarding
			if err := k.API.Get(ctx, client.ObjectKey{Name: victim.Name}, &status); err != nil {
				return err
			}
			for _, c := range status.Status.Conditions {
				if c.Reason == reason || strings.Contains(c.Message, reason) {
					return nil
				}
			}
			return fmt.Errorf("%s does not tell %s: %v", victim.Name, reason, status.Status.Conditions)
		})
	}
	return f
}

// since is a Service that came after a backup.
const since = "since"

// restoreEtcd has etcd go back to before a Service came, which nodes announced.
func restoreEtcd(t *testing.T, k *kit, _ *rand.Rand) {
	ctx := within(t, 6*soon)
	restore, err := k.Backup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := product.WebService(webs, since, "bgp", corev1.ServiceExternalTrafficPolicyCluster)
	var vips []netip.Addr
	err = lab.Until(ctx, func() error { // the server may refuse for a moment after it is ready
		vips, err = k.expose(ctx, s.DeepCopy(), 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	k.sinceBackup = vips[0]
	err = lab.Until(ctx, func() error {
		hops, err := k.Router.Routes(netip.PrefixFrom(vips[0], vips[0].BitLen()))
		if err == nil && len(hops) == 0 {
			err = errors.New("no node announces it")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := restore(ctx); err != nil {
		t.Fatal(err)
	}
}

// forgotten waits until no node announces the Service that came after the backup.
func forgotten(ctx context.Context, k *kit) error {
	return lab.Until(ctx, func() error {
		hops, err := k.Router.Routes(netip.PrefixFrom(k.sinceBackup, k.sinceBackup.BitLen()))
		if err == nil && len(hops) != 0 {
			err = fmt.Errorf("%s is announced by %v, and its Service is not there any more", k.sinceBackup, hops)
		}
		return err
	})
}
