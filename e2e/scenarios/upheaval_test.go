package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/product"
)

// A node that loses its power is replaced by another within seconds over layer 2, and
// its routes leave the router by the hold time; back again, it takes part again. Nobody
// reads meanwhile that all is well on it.
func TestANodeDies(t *testing.T) {
	c := cluster(t)
	l2 := expose(t, c, product.WebService(webs, "dies-l2", "layer2", local, corev1.IPv4Protocol, corev1.IPv6Protocol))
	bgp := expose(t, c, product.WebService(webs, "dies-bgp", "bgp", local))[0]
	for _, vip := range l2 {
		reply(t, c.Client, vip)
	}
	eventually(t, soon, func(context.Context) error { return nextHops(c, bgp, 3) })
	owner, err := c.Answerer(within(t, soon), l2[1])
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := owner.Kill(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := owner.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.LoadImage(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitInstalled(ctx); err != nil {
			t.Fatal(err)
		}
	})
	got := reply(t, c.Client, l2[1])
	t.Logf("%s died; %s is served by pod %s again after %v", owner.Name, l2[1], got.Pod, time.Since(began).Round(time.Millisecond))
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

// An uninstall is no restart: routes are withdrawn and answers end at once, instead of
// being kept for a speaker that never comes back. What users wrote stays, and so does
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
	rules, err := c.Node(1).Exec(within(t, soon), "iptables-save", "-t", "nat")
	if err != nil || !strings.Contains(rules, bgp.String()) {
		t.Errorf("the uninstall removed forwarding (%v)", err)
	}
}
