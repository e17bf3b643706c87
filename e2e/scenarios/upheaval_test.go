package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// A node that loses its power is replaced by another within seconds over layer 2, and
// its routes leave the router by the hold time; back again, it takes part again. Nobody
// reads meanwhile that all is well on it.
func TestANodeDies(t *testing.T) {
	c := cluster(t)
	l2 := expose(t, c, product.WebService(webs, "dies-l2", "layer2", local, c.IPFamilies()...))
	bgp := expose(t, c, product.WebService(webs, "dies-bgp", "bgp", local))[0]
	for _, vip := range l2 {
		reply(t, c.Client, vip)
	}
	eventually(t, soon, func(context.Context) error { return nextHops(c, bgp, 3) })
	last := l2[len(l2)-1]
	owner, err := c.Answerer(within(t, soon), last)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := owner.Kill(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bootAgain(t, c, owner) })
	got := reply(t, c.Client, last)
	t.Logf("%s died; %s is served by pod %s again after %v", owner.Name, last, got.Pod, time.Since(began).Round(time.Millisecond))
	reply(t, c.Client, l2[0])
	eventually(t, soon, func(context.Context) error { return nextHops(c, bgp, 2) })
	t.Logf("its route left the router after %v (hold time 9 s)", time.Since(began).Round(time.Millisecond))
	reply(t, c.Client, bgp)
	for _, what := range []string{
		`nodeforwarding/` + owner.Name + ` jsonpath={.status.conditions[?(@.type=="Programmed")].status}`,
		`bgpsession/router.` + owner.Name + ` jsonpath={.status.state}`,
	} {
		object, said, _ := strings.Cut(what, " ")
		eventually(t, soon, func(ctx context.Context) error {
			got, err := c.Kubectl(ctx, "get", object, "-o", said)
			if err == nil && got != "Unknown" {
				err = fmt.Errorf("%s of the dead node is %q", object, got)
			}
			return err
		})
	}
}

// bootAgain starts a node that is powered off, and waits until it serves.
func bootAgain(t *testing.T, c *product.Cluster, n *lab.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	waitReady := func(ctx context.Context) error { return c.WaitReady(ctx) }
	for _, step := range []func(context.Context) error{n.Start, waitReady, c.LoadImage, c.WaitInstalled} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A machine that is rebooted without a cordon says nothing to the cluster before, and its speaker is told to stop
// as in an upgrade. No connection is lost that is opened meanwhile: its layer-2 addresses and its routes go to the
// others before its link does, whether systemd stops the kubelet first or all at one moment. Endpoints on it are
// left long before Kubernetes takes the node for dead.
func TestAMachineIsShutDown(t *testing.T) {
	c := cluster(t)
	const elsewhere = "not-shut-down"
	if err := c.DeployWeb(within(t, patience), elsewhere); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, c, &corev1.Namespace{ObjectMeta: name(elsewhere)}) })
	vips := expose(t, c, product.WebService(elsewhere, "shut-l2", "layer2", everyone, corev1.IPv4Protocol, corev1.IPv6Protocol))
	vips = append(vips, expose(t, c, product.WebService(elsewhere, "shut-bgp", "bgp", everyone))...)
	everywhere := expose(t, c, product.WebService(webs, "shut-everywhere", "bgp", everyone))[0]
	for order, together := range map[string]bool{"the kubelet first": false, "all at one moment": true} {
		if together && testing.Short() {
			continue // a reboot takes its time
		}
		t.Run(order, func(t *testing.T) { shutDown(t, c, elsewhere, vips, everywhere, together) })
	}
}

// shutDown shuts down the node that answers for the first of the addresses, which lead to pods of a namespace, and
// boots it again. The last address is one of BGP. Those of everywhere are on the node, too.
func shutDown(t *testing.T, c *product.Cluster, namespace string, vips []netip.Addr, everywhere netip.Addr, together bool) {
	bgp := vips[len(vips)-1]
	eventually(t, patience, func(context.Context) error { return nextHops(c, bgp, 3) })
	for _, vip := range vips {
		reply(t, c.Client, vip)
	}
	node := owners(t, c, vips[:1])[0]
	keepPodsOff(t, c, namespace, node)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	counts := make([]chan tally, len(vips))
	for i, vip := range vips {
		counts[i] = make(chan tally, 1)
		go func() { counts[i] <- floodWithin(ctx, c.Client, vip, 80, 20, 900*time.Millisecond) }()
	}
	time.Sleep(2 * time.Second) // of service as ever
	began := time.Now()
	t.Cleanup(func() { bootAgain(t, c, node) })
	if err := node.Shutdown(within(t, soon), together); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s was off after %v", node.Name, time.Since(began).Round(time.Millisecond))
	if err := nextHops(c, bgp, 2); err != nil {
		t.Error(err)
	}
	time.Sleep(3 * time.Second) // in which it would show
	stop()
	for i, vip := range vips {
		count := <-counts[i]
		t.Logf("%s: %d served, %d failed, %d held up, longest time without a reply %v; errors %v",
			vip, count.OK, count.Failed, count.Held, count.Longest, count.Errors)
		if tooMany(count) {
			t.Errorf("%s: %d of %d connections were lost", vip, count.Failed, count.OK+count.Failed)
		}
	}
	const inARow = 60
	eventually(t, soon, func(ctx context.Context) error {
		for i := range inARow {
			one, cancel := context.WithTimeout(ctx, time.Second)
			_, err := product.Ask(one, c.Client, everywhere, 80)
			cancel()
			if err != nil {
				return fmt.Errorf("after %d requests in a row: %w", i, err)
			}
		}
		return nil
	})
}

// keepPodsOff moves the web servers of a namespace off a node.
func keepPodsOff(t *testing.T, c *product.Cluster, namespace string, n *lab.Node) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":`+
		`{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"NotIn","values":[%q]}]}]}}}}}}}`, n.Name)
	if _, err := c.Kubectl(within(t, soon), "-n", namespace, "patch", "daemonset", product.Web, "--type=merge", "-p", patch); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(within(t, patience), "-n", namespace, "rollout", "status", "daemonset/"+product.Web); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "-n", namespace, "get", "pods", "-o", "name", "--field-selector=spec.nodeName="+n.Name)
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("still on %s: %s", n.Name, out)
		}
		return err
	})
}

// An uninstall is no restart: routes are withdrawn and answers end at once, instead of
// being kept for a speaker that never comes back, and no status shows an address. What users wrote stays, and so does
// the forwarding of the node, which "speaker cleanup" removes. It is the last test,
// since nothing is installed after it.
func TestUninstallHandsOver(t *testing.T) {
	c := cluster(t)
	bgp := expose(t, c, product.WebService(webs, "uninstalled-bgp", "bgp", local))[0]
	l2 := expose(t, c, product.WebService(webs, "uninstalled-l2", "layer2", local))[0]
	reply(t, c.Client, l2)
	// The node that died before this test may still be starting its pods.
	eventually(t, 3*time.Minute, func(context.Context) error { return nextHops(c, bgp, 3) })
	began := time.Now()
	if _, err := c.Helm(within(t, 3*time.Minute), 3, "uninstall", product.Release, "--namespace", product.Namespace); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, func(context.Context) error { return nextHops(c, bgp, 0) })
	t.Logf("no route %v after helm uninstall began", time.Since(began).Round(time.Millisecond))
	eventually(t, soon, func(ctx context.Context) error {
		one, cancel := context.WithTimeout(ctx, 5*time.Second) // arping gives up after two
		defer cancel()
		if owner, err := c.Answerer(one, l2); err == nil {
			return errors.New(owner.Name + " still answers for " + l2.String())
		}
		return nil
	})
	pools, err := c.Kubectl(within(t, soon), "get", "ipaddresspools", "-o", "name")
	if err != nil || !strings.Contains(pools, "layer2") {
		t.Errorf("the pools went with the release (%v): %s", err, pools)
	}
	var services corev1.ServiceList
	if err := c.API.List(within(t, soon), &services); err != nil {
		t.Fatal(err)
	}
	rules, err := c.Node(1).Exec(within(t, soon), "iptables-save", "-t", "nat")
	for _, s := range services.Items {
		if len(s.Status.LoadBalancer.Ingress)+len(s.Status.Conditions) > 0 {
			t.Errorf("%s looks as if it were served: %+v", s.Name, s.Status)
		}
		if s.Name == "uninstalled-bgp" && !strings.Contains(rules, s.Spec.ClusterIP) {
			t.Errorf("the uninstall removed forwarding (%v)", err)
		}
	}
}
