package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// What runs in the containers of Fairlead, as pgrep finds it.
const (
	agent      = "^/usr/local/bin/speaker --"
	pulse      = "^/usr/local/bin/speaker pulse"
	controller = "^/usr/local/bin/controller"
)

// processes are those on a node whose command lines match.
func processes(ctx context.Context, n *lab.Node, pattern string) ([]string, error) {
	out, err := n.Exec(ctx, "sh", "-c", "pgrep -f '"+pattern+"' || :")
	return strings.Fields(out), err
}

// stop stops processes of a node until the test ends.
func stop(t *testing.T, n *lab.Node, pids ...string) {
	t.Helper()
	if len(pids) == 0 {
		t.Fatalf("nothing is to be stopped on %s", n.Name)
	}
	signal := func(ctx context.Context, what string) error {
		_, err := n.Exec(ctx, append([]string{"kill", "-" + what}, pids...)...)
		return err
	}
	atEnd(t, func(ctx context.Context) error { return signal(ctx, "CONT") })
	if err := signal(within(t, soon), "STOP"); err != nil {
		t.Fatal(err)
	}
}

// victim is one of the nodes.
func (k *kit) victim(r *rand.Rand) *lab.Node { return k.Node(1 + r.IntN(len(k.Nodes()))) }

// stopped has all that matches stop on a node.
func (k *kit) stopped(t *testing.T, n *lab.Node, pattern string) {
	t.Helper()
	pids, err := processes(within(t, soon), n, pattern)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, n, pids...)
}

// stopPulse has pulse of a node stop, and waits until the others know.
func (k *kit) stopPulse(t *testing.T, n *lab.Node) {
	t.Helper()
	k.silent = n
	k.stopped(t, n, pulse)
	ctx := within(t, soon) // of which the detection time is the least part
	if err := lab.Until(ctx, func() error { return k.heard(ctx) }); err != nil {
		t.Fatal(err)
	}
}

// byStopping are processes that stop, as when a disk hangs or a debugger holds them, and go on later.
func byStopping() []fault {
	claimed := lifeline("ports of nodes", (*kit).nodeAddresses, corev1.ProtocolTCP, 10250)
	faults := []fault{
		{
			name: "pulse stops", excused: excuses{moves: true, routes: true, lost: true},
			inject: func(t *testing.T, k *kit, r *rand.Rand) { k.stopPulse(t, k.victim(r)) },
			check:  func(ctx context.Context, k *kit) error { return k.comesAndGoes(ctx, time.Second) },
		},
		{
			name: "an agent stops", gate: true, excused: excuses{routes: true},
			inject: func(t *testing.T, k *kit, r *rand.Rand) {
				k.deaf = k.victim(r)
				k.stopped(t, k.deaf, agent)
			},
		},
		{
			name: "no process reads the log of an agent",
			inject: func(t *testing.T, k *kit, r *rand.Rand) {
				n := k.victim(r)
				k.unread(t, n, agent)
				// What the agent warns of from now on finds no room.
				claimed.inject(t, k, r)
				if k.backend == nftables { // the kernel lets no other program change a table that has an owner
					return
				}
				if _, err := n.Exec(within(t, soon), "iptables", "-t", "nat", "-F", "FAIRLEAD-DISPATCH"); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "no process reads the logs of the controllers",
			inject: func(t *testing.T, k *kit, _ *rand.Rand) {
				k.onController(t, k.unread)
			},
			check: func(ctx context.Context, k *kit) error { return k.comesAndGoes(ctx, promptly) },
		},
		{
			name:   "the controllers stop",
			inject: func(t *testing.T, k *kit, _ *rand.Rand) { k.onController(t, k.stopped) },
		},
	}
	for _, program := range []string{"kube-apiserver", "etcd", "kube-controller-manager"} {
		faults = append(faults, fault{
			name: program + " stops",
			// Kubelets are asked through the API server.
			excused: excuses{unheard: program != "kube-controller-manager", unasked: program != "kube-controller-manager"},
			inject: func(t *testing.T, k *kit, _ *rand.Rand) {
				t.Cleanup(func() {
					if err := k.Signal(program, syscall.SIGCONT); err != nil {
						t.Error(err)
					}
				})
				if err := k.Signal(program, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			},
		})
	}
	return append(faults, fault{
		name: "a kubelet stops", excused: excuses{unasked: true},
		inject: func(t *testing.T, k *kit, r *rand.Rand) { k.stopped(t, k.victim(r), `^/usr/local/bin/.*kubelet --`) },
	})
}

// onController does something to the controllers, wherever they are.
func (k *kit) onController(t *testing.T, do func(*testing.T, *lab.Node, string)) {
	t.Helper()
	found := false
	for _, n := range k.Nodes() {
		if pids, err := processes(within(t, soon), n, controller); err != nil || len(pids) == 0 {
			continue
		}
		found = true
		do(t, n, controller)
	}
	if !found {
		t.Fatal("there is no controller")
	}
}

// unread has no process read what a process on the node says, and fills the pipe until nothing more goes in.
func (k *kit) unread(t *testing.T, n *lab.Node, pattern string) {
	t.Helper()
	ctx := within(t, soon)
	pids, err := processes(ctx, n, pattern)
	if err != nil || len(pids) != 1 {
		t.Fatalf("%s has %v that match %s, want one: %v", n.Name, pids, pattern, err)
	}
	reader, err := n.Exec(ctx, "ps", "-o", "ppid=", "-p", pids[0])
	if err != nil {
		t.Fatal(err)
	}
	stop(t, n, strings.TrimSpace(reader))
	fill := fmt.Sprintf("dd if=/dev/zero bs=4096 count=256 of=/proc/%s/fd/2 oflag=nonblock || :", pids[0])
	if _, err := n.Exec(ctx, "sh", "-c", fill); err != nil {
		t.Fatal(err)
	}
}

// comesAndGoes creates and deletes a Service that is announced, which is work for controllers, agents and pulse. A
// change of endpoints right after each must be in the kernels within that time.
func (k *kit) comesAndGoes(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errors.New("no address for a new Service"))
	defer cancel()
	s := product.WebService(webs, "passing", "layer2", corev1.ServiceExternalTrafficPolicyCluster)
	_, err := k.expose(ctx, s, 1)
	if err == nil {
		err = k.follow(ctx, limit)
	}
	err = errors.Join(err, client.IgnoreNotFound(k.API.Delete(ctx, s)))
	if err == nil {
		err = k.follow(ctx, limit)
	}
	return err
}
