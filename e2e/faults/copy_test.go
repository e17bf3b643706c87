package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/command"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// asPulse makes the test binary the pulse of a copy.
const asPulse = "FAIRLEAD_TEST_COPY_PULSE"

// copied has a node of a second cluster, which was cloned from this one, at the place of the control plane: it has the key of
// hellos, the name of a node, and the pools. It begins with addresses of layer 2 that the first cluster answers for, and does not answer for them.
func copied(t *testing.T, k *kit, r *rand.Rand) {
	var key corev1.Secret
	if err := k.API.Get(within(t, soon), client.ObjectKey{Namespace: product.Namespace, Name: "fairlead-hello"}, &key); err != nil {
		t.Fatal(err)
	}
	name, at := k.victim(r).Name, filepath.Join(t.TempDir(), "pulse.sock")
	// Its machine was switched on a minute ago.
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		t.Fatal(err)
	}
	pulse := exec.CommandContext(t.Context(), "unshare", "--time", fmt.Sprintf("--boottime=%d", min(0, 60-up.Sec)), "--fork", "--kill-child",
		os.Args[0], "--node-name="+name, "--socket="+at)
	pulse.Env, pulse.Stderr = append(os.Environ(), asPulse+"=1"), t.Output()
	if err := k.ControlPlane.Inside(pulse.Start); err != nil {
		t.Fatal(err)
	}
	agent, ended := socket.NewClient(at, testlog.New(t)), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		_ = agent.Run(ctx) // always nil
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = pulse.Process.Kill()
		_ = pulse.Wait() // it was killed
	})
	table := api.Table{
		Node: name, NodeAddrs: []netip.Addr{k.ControlPlane.IPv4}, Serving: true,
		Key: view.Secret(key.Data[v1beta1.HelloSecretKey]), Claims: map[netip.Addr]desired.Candidacy{},
	}
	for _, a := range k.layer2 {
		table.Claims[a] = desired.Candidacy{Candidates: []string{name}}
	}
	k.beside = func(ctx context.Context) error {
		state, err := agent.Apply(ctx, table)
		for _, a := range k.layer2 {
			if c, told := state.Contested[a]; err == nil && (!told || !c.Withheld) {
				err = fmt.Errorf("the copy does not tell that another cluster answers for %s: %+v", a, state.Contested)
			}
		}
		return err
	}
	wait := within(t, soon)
	if err := lab.Until(wait, func() error { return k.beside(wait) }); err != nil {
		t.Fatal(err)
	}
}

// asCopy is pulse, until it is told to stop, or killed.
func asCopy() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := command.Run(ctx, os.Args[1:], os.Stderr); err != nil {
		panic(err)
	}
}
