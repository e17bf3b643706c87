// Package onenode tries a cluster of one node, which is the control plane, too.
package onenode

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
	"fairlead.dev/fairlead/internal/addr"
)

const (
	webs  = "webs"
	local = corev1.ServiceExternalTrafficPolicyLocal
	value = "speaker.ignoreExcludeLB"
	// soon is more than what does happen at once takes on a busy machine.
	soon = 30 * time.Second
)

// TestOneNodeIsTheControlPlane gives the node what kubeadm gives to the control plane: a taint, which Fairlead tolerates, and the label that
// excludes it from load balancers. The chart's notes and an Event of each Service name the value that has the label ignored. With it layer 2 and BGP
// serve under both policies, also while all pods of Fairlead are replaced, and the node can be drained.
func TestOneNodeIsTheControlPlane(t *testing.T) {
	c := start(t)
	kubectl(t, c, "label", "node", "node1", "node-role.kubernetes.io/control-plane=", corev1.LabelNodeExcludeBalancers+"=")
	kubectl(t, c, "taint", "node", "node1", "node-role.kubernetes.io/control-plane:NoSchedule")
	if err := c.Install(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	notes, err := c.Helm(t.Context(), 3, "get", "notes", product.Release, "--namespace", product.Namespace)
	if err != nil || !strings.Contains(notes, "Every node has the label "+corev1.LabelNodeExcludeBalancers) || !strings.Contains(notes, value) {
		t.Errorf("the notes do not say that no node announces: %v:\n%s", err, notes)
	}
	kubectl(t, c, "taint", "node", "node1", "node-role.kubernetes.io/control-plane-") // as the pods of users need it
	err = errors.Join(c.Sample(t.Context(), "pool.yaml", "l2advertisement.yaml", "bgpadvertisement.yaml", "bgppeer.yaml"), c.DeployWeb(t.Context(), webs))
	if err != nil {
		t.Fatal(err)
	}
	all := expose(t, c)
	for _, s := range all {
		told(t, c, s)
		reaches(t, c, s, c.Node(1).IPv4, uint16(s.Spec.Ports[0].NodePort))
	}
	if err := c.Install(t.Context(), 3, value+"=true"); err != nil {
		t.Fatal(err)
	}
	served(t, c, all)
	replaced(t, c, all)
	kubectl(t, c, "drain", "node1", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=1m")
	served(t, c, all) // by a DaemonSet, as Fairlead's speaker is
	kubectl(t, c, "uncordon", "node1")
	if err := c.WaitInstalled(t.Context()); err != nil {
		t.Error(err)
	}
}

func start(t *testing.T) *product.Cluster {
	t.Helper()
	ctx := t.Context()
	c, err := product.Up(ctx, lab.Options{Nodes: 1, ControlPlaneOnNode: true, Progress: t.Output()}, lab.Helm3)
	product.EndWith(t, err)
	if err == nil {
		err = c.LoadImage(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func kubectl(t *testing.T, c *product.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// exposed is a Service with its addresses, one of each family.
type exposed struct {
	*corev1.Service
	vips []netip.Addr
}

func (s exposed) routed() bool { return strings.HasPrefix(s.Name, "bgp") }

// expose creates a Service for each way to announce and each policy.
func expose(t *testing.T, c *product.Cluster) (all []exposed) {
	t.Helper()
	for _, pool := range []string{"layer2", "bgp"} {
		for _, policy := range []corev1.ServiceExternalTrafficPolicy{local, corev1.ServiceExternalTrafficPolicyCluster} {
			s := exposed{Service: product.WebService(webs, pool+"-"+strings.ToLower(string(policy)), pool, policy, c.IPFamilies()...)}
			if err := c.API.Create(t.Context(), s.Service); err != nil {
				t.Fatal(err)
			}
			eventually(t, func(ctx context.Context) (err error) {
				s.vips, err = c.Addresses(ctx, client.ObjectKeyFromObject(s.Service), len(addr.Families()))
				return err
			})
			all = append(all, s)
		}
	}
	return all
}

// told fails the test if an address is announced, or no Event says why it is not.
func told(t *testing.T, c *product.Cluster, s exposed) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		events, err := c.Kubectl(ctx, "-n", webs, "get", "events", "-o", "jsonpath={.items[*].message}",
			"--field-selector=reason=NoServingNode,involvedObject.name="+s.Name)
		if err == nil && (!strings.Contains(events, s.vips[0].String()) || !strings.Contains(events, value)) {
			err = fmt.Errorf("no Event of %s names %s: %q", s.Name, value, events)
		}
		return err
	})
	for _, vip := range s.vips {
		if s.routed() {
			if hops, err := c.Router.Routes(addr.HostPrefix(vip)); err != nil || len(hops) > 0 {
				t.Errorf("the excluded node announces %s: %v, %v", vip, hops, err)
			}
		} else if nodes, err := c.Answerers(t.Context(), vip); err == nil && len(nodes) > 0 {
			t.Errorf("%v answers for %s, and is excluded", nodes, vip)
		}
	}
}

// served fails the test if the client does not reach a Service by each of its addresses.
func served(t *testing.T, c *product.Cluster, all []exposed) {
	t.Helper()
	for _, s := range all {
		for _, vip := range s.vips {
			reaches(t, c, s, vip, 80)
		}
	}
}

// reaches fails the test if the client is not served there, or the pod does not see what the policy has it see.
func reaches(t *testing.T, c *product.Cluster, s exposed, to netip.Addr, port uint16) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		got, err := product.FirstReply(ctx, c.Client, to, port)
		if err == nil && (got.Source == c.Client.Like(to)) != (s.Spec.ExternalTrafficPolicy == local) {
			err = fmt.Errorf("%s: the pod saw %s of the client", s.Name, got.Source)
		}
		return err
	})
}

// replaced fails the test if a request is lost while all pods of Fairlead are replaced.
func replaced(t *testing.T, c *product.Cluster, all []exposed) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	lost := make(chan error, len(all))
	for _, s := range all {
		go func() {
			for ctx.Err() == nil {
				one, end := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				_, err := product.Ask(one, c.Client, s.vips[0], 80)
				end()
				if err != nil {
					lost <- fmt.Errorf("%s at %s: %w", s.Name, time.Now().Format("15:04:05.000"), err)
					return
				}
				time.Sleep(20 * time.Millisecond) // a client has some 28,000 ports, each of which rests for a minute
			}
			lost <- nil
		}()
	}
	kubectl(t, c, "-n", product.Namespace, "rollout", "restart", "daemonset/fairlead-speaker", "deployment/fairlead-controller")
	err := c.WaitInstalled(t.Context())
	stop()
	for range all {
		err = errors.Join(err, <-lost)
	}
	if err != nil {
		t.Error(err)
	}
}

// eventually fails the test if the question has no good answer soon.
func eventually(t *testing.T, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, stop := context.WithTimeoutCause(t.Context(), soon, fmt.Errorf("not within %v", soon))
	defer stop()
	if err := lab.Until(ctx, func() error { return ask(ctx) }); err != nil {
		t.Error(err)
	}
}
