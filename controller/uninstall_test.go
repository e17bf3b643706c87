package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/controller/leasefence"
	"fairlead.dev/fairlead/internal/serve/secure"
	"fairlead.dev/fairlead/internal/testenv/testlog"
)

// Once Fairlead is uninstalled, no Service looks as if it were served: neither the controller that led nor the one that stood
// by writes addresses again. What Services of others have stays, and all of it where no controller ran.
func TestUninstallClearsStatuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.pool(t, "p", "192.0.2.0/24", "2001:db8::/64")
	theirs := c.service(t, "theirs", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("example.com/other") })
	theirs.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.99"}}
	if err := c.Status().Update(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	ours := []*corev1.Service{c.service(t, "refused", func(s *corev1.Service) {
		s.Annotations = map[string]string{"fairlead.dev/addresses": "198.51.100.1"}
	})}
	for i := range 40 {
		ours = append(ours, c.service(t, fmt.Sprintf("ours-%d", i), func(s *corev1.Service) { s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack) }))
	}

	stop := c.leads(t)
	for _, s := range ours[1:] {
		until(t, c, s, "served", func(s *corev1.Service) bool { return len(ips(s)) > 0 })
	}
	c.refused(t, ours[0], "RequestOutsidePools")
	stop()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = defaultNamespace, leaseName
	until(t, c, lease, "given back", func(l *coordinationv1.Lease) bool { return ptr.Deref(l.Spec.HolderIdentity, "") == "" })
	update(t, c, lease, func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = new("killed"), new(int32(1))
	})
	c.uninstall(t, false, "a controller was killed")
	for _, s := range ours[1:] {
		c.holds(t, s, ips(s)...)
	}
	update(t, c, lease, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") })
	c.uninstall(t, true, "Services keep their addresses")
	for _, s := range ours { // which another load balancer has by now, and nothing of ours
		had := ips(s)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || !slices.Equal(ips(s), had) || len(s.Status.Conditions) > 0 {
			t.Errorf("%s had %v, and is left with %+v (%v)", s.Name, had, s.Status, err)
		}
	}

	c.leads(t)
	c.leads(t)
	until(t, c, lease, "held", func(l *coordinationv1.Lease) bool { return ptr.Deref(l.Spec.HolderIdentity, "") != "" })
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan error, 1)
	go func() { // conflicts
		var err error
		for i := 0; ctx.Err() == nil && err == nil; i++ {
			err = c.Patch(ctx, ours[i%len(ours)].DeepCopy(), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"i":"%d"}}}`, i)))
		}
		changed <- err
	}()
	c.uninstall(t, true, `"addressesCleared":true`)
	cancel()
	// Controllers that are installed next wait for as long as it says.
	until(t, c, lease, "about to run out", func(l *coordinationv1.Lease) bool { return *l.Spec.LeaseDurationSeconds <= 10 })
	if err := <-changed; err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	var now corev1.ServiceList
	if err := c.List(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	for _, s := range now.Items {
		switch {
		case s.Name == "theirs" && len(s.Status.LoadBalancer.Ingress) == 0:
			t.Error("the uninstall took the address of another class")
		case s.Name != "theirs" && len(s.Status.LoadBalancer.Ingress)+len(s.Status.Conditions) > 0:
			t.Errorf("%s looks as if it were served: %+v", s.Name, s.Status)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || !strings.Contains(ptr.Deref(lease.Spec.HolderIdentity, ""), "uninstall") {
		t.Errorf("another controller leads before it is removed (%v): %+v", err, lease.Spec)
	}
}

// leads runs a controller that may lose its lease, as a container that is not restarted.
func (c *cluster) leads(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	o := options{
		namespace: defaultNamespace, metrics: secure.Options{Address: "0"}, probeAddress: "0", leaderElect: true,
		lease: leasefence.Lease{Duration: 5 * time.Second, Renew: 3 * time.Second, Retry: 500 * time.Millisecond},
	}
	logger := testlog.New(t)
	go func() {
		defer close(done)
		if err := control(ctx, c.controller, o, prometheus.NewRegistry(), logger); err != nil {
			logger.Info("the controller ended", "error", err)
		}
	}()
	return stop
}

// uninstall runs the chart's hook, which succeeds or does not, and says this.
func (c *cluster) uninstall(t *testing.T, succeeds bool, says string) {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0], "uninstall")
	program.Env = append(os.Environ(), runMain+"=1", "KUBECONFIG="+c.kubeconfig, "POD_NAMESPACE="+defaultNamespace)
	if said, err := program.CombinedOutput(); (err == nil) != succeeds || !strings.Contains(string(said), says) {
		t.Fatalf("uninstall says %s (%v), want %q", said, err, says)
	}
}
