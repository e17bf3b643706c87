package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/internal/testenv/testlog"
)

// A controller that leads gives addresses, and ends, while the pipe of its log is full and nothing reads it: it would
// go on to renew its lease from another goroutine, so that no other one took over.
func TestALogThatNobodyReadsStopsNoPass(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.pool(t, "unread", "192.0.2.0/24")
	for name, signal := range map[string]syscall.Signal{"asked to": syscall.SIGTERM, "by a fault": syscall.SIGQUIT} {
		t.Run(name, func(t *testing.T) {
			program := exec.Command(os.Args[0], "--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-level=debug",
				"--leader-elect-lease-duration="+hasty.Duration.String(), "--leader-elect-renew-deadline="+hasty.Renew.String(),
				"--leader-elect-retry-period="+hasty.Retry.String())
			program.Env = append(os.Environ(), runMain+"=1", "KUBECONFIG="+c.kubeconfig)
			program.Stderr = testlog.Unread(t)
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				_ = program.Wait() // it was killed, or says so by its status
				close(ended)
			}()
			t.Cleanup(func() { _ = program.Process.Kill() })
			for _, address := range []string{"192.0.2.7", "192.0.2.8"} {
				c.holds(t, c.service(t, "unread-"+address[len(address)-1:], func(s *corev1.Service) { s.Spec.LoadBalancerIP = address }), address)
			}
			began := time.Now()
			if err := program.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
				t.Logf("it ended after %s", time.Since(began))
			case <-time.After(5 * time.Second):
				t.Errorf("it does not end after %v", signal)
			}
		})
	}
}
