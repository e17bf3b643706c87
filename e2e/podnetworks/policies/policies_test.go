// Package policies tries the NetworkPolicies of another program, kube-router, together with Fairlead's forwarding.
package policies

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

const (
	webs   = "webs"
	others = "others"
)

// admit is a policy that has the web servers answer some addresses alone.
const admit = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: admit, namespace: webs}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress:
  - from:
    - ipBlock: {cidr: %s}
    - ipBlock: {cidr: %s}
`

// TestNetworkPolicies has policies refuse the client and other pods, in both families, under both traffic policies and in both
// modes. Our rules come before those of kube-router, which moves its own to the front only once a policy or a pod
// changes, and after them. What a policy refuses never reaches a pod, and what it admits does.
func TestNetworkPolicies(t *testing.T) {
	c := start(t)
	var vips, locals, clusterIPs []netip.Addr
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster} {
		all, internal := expose(t, c, policy)
		if vips = append(vips, all...); locals == nil {
			locals = all
		}
		clusterIPs = append(clusterIPs, internal...)
	}
	everybody(t, c, vips)
	for i, mode := range []string{"iptables", "nftables", "iptables"} {
		apply(t, c, "192.0.2.0/24", "2001:db8:ffff::/48")
		nobody(t, c, vips)
		if err := c.Install(t.Context(), 3, "forwarding.mode="+mode); err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(i, " ", mode, ", our rules are the newest"), func(t *testing.T) { refused(t, c, vips, clusterIPs) })
		apply(t, c, c.Client.IPv4.String()+"/32", c.Client.IPv6.String()+"/128")
		everybody(t, c, locals)
		apply(t, c, "192.0.2.0/24", "2001:db8:ffff::/48")
		nobody(t, c, vips)
		t.Run(fmt.Sprint(i, " ", mode, ", the policy is the newest"), func(t *testing.T) { refused(t, c, vips, clusterIPs) })
	}
}

func start(t *testing.T) *product.Cluster {
	t.Helper()
	ctx := t.Context()
	c, err := product.Start(ctx, lab.Options{PodNetwork: lab.KubeRouter, Progress: t.Output()})
	if errors.Is(err, product.ErrMachine) {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("down: %v", err)
		}
	})
	lab.Keep(t)
	if err == nil {
		err = c.Sample(ctx, "pool.yaml", "l2advertisement.yaml")
	}
	if err == nil {
		err = errors.Join(c.DeployWeb(ctx, webs), c.DeployWeb(ctx, others))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// expose creates a Service of the web servers and returns its VIPs and ClusterIPs.
func expose(t *testing.T, c *product.Cluster, policy corev1.ServiceExternalTrafficPolicy) (vips, clusterIPs []netip.Addr) {
	t.Helper()
	s := product.WebService(webs, strings.ToLower(string(policy)), "layer2", policy, corev1.IPv4Protocol, corev1.IPv6Protocol)
	if err := c.API.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) (err error) {
		vips, err = c.Addresses(ctx, client.ObjectKeyFromObject(s), 2)
		return err
	})
	if err := c.API.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	for _, a := range s.Spec.ClusterIPs {
		clusterIPs = append(clusterIPs, netip.MustParseAddr(a))
	}
	return vips, clusterIPs
}

func apply(t *testing.T, c *product.Cluster, v4, v6 string) {
	t.Helper()
	if err := c.Apply(t.Context(), fmt.Sprintf(admit, v4, v6)); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := lab.Until(ctx, func() error { return ask(ctx) }); err != nil {
		t.Fatal(err)
	}
}

// everybody waits until the client is answered.
func everybody(t *testing.T, c *product.Cluster, vips []netip.Addr) {
	t.Helper()
	for _, vip := range vips {
		eventually(t, func(ctx context.Context) error { return asked(ctx, c, vip) })
	}
}

// nobody waits until the client is not answered any more, as the policy has come to every node.
func nobody(t *testing.T, c *product.Cluster, vips []netip.Addr) {
	t.Helper()
	for _, vip := range vips {
		eventually(t, func(ctx context.Context) error {
			for range tries {
				if asked(ctx, c, vip) == nil {
					return fmt.Errorf("the client is answered at %s", vip)
				}
			}
			return nil
		})
	}
}

// tries is how often what a policy refuses is tried: chance sends it to another pod each time.
const tries = 12

func asked(ctx context.Context, c *product.Cluster, vip netip.Addr) error {
	one, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	_, err := product.Ask(one, c.Client, vip, 80)
	return err
}

// refused fails the test if a pod answers the client or another pod.
func refused(t *testing.T, c *product.Cluster, vips, clusterIPs []netip.Addr) {
	t.Helper()
	for _, vip := range vips {
		answers := 0
		for range tries {
			if asked(t.Context(), c, vip) == nil {
				answers++
			}
		}
		if answers > 0 {
			t.Errorf("of %d connections of the client to %s %d came past the policy", tries, vip, answers)
		}
	}
	for _, a := range clusterIPs {
		out, err := c.Kubectl(t.Context(), "-n", others, "exec", "daemonset/"+product.Web, "--", "sh", "-c", fmt.Sprintf(
			"for i in 1 2 3 4 5 6; do curl -s -m 1 http://%s/hostname && echo; done; :", netip.AddrPortFrom(a, 80)))
		if err != nil || out != "" {
			t.Errorf("a pod of another namespace asks %s and is answered: %q, %v", a, out, err)
		}
	}
}
