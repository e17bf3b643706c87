package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
	"fairlead.dev/fairlead/e2e/product"
)

// Two nodes of which one does not reach the API server each take the other one for the next, and when the node
// dies that answers, one of them does within a second. This runs before others have nodes come last that flap.
func TestANodeDiesWhileTablesDiffer(t *testing.T) {
	c := cluster(t)
	vip := expose(t, c, product.WebService(webs, "differs", "layer2", local))[0]
	reply(t, c.Client, vip)
	stale := bystander(t, c, vip)
	owner, err := c.Answerer(within(t, soon), vip)
	if err != nil {
		t.Fatal(err)
	}
	server := c.ControlPlane.IPv4.String()
	// Both directions are cut: a node that only cannot reply still takes in what a watch has sent before the first
	// acknowledgement lacks.
	node := stale.IPv4.String()
	on(t, stale, "ip route add unreachable "+server, "ip route del unreachable "+server)
	on(t, c.ControlPlane, "ip route add unreachable "+node, "ip route del unreachable "+node)
	prefers := func(n *lab.Node, weight int32) v1beta1.PreferredNodeSelector {
		return v1beta1.PreferredNodeSelector{Weight: weight, Preference: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: n.Name}}}
	}
	create(t, c, &v1beta1.L2Advertisement{ObjectMeta: name("differs"), Spec: v1beta1.L2AdvertisementSpec{
		IPAddressPools: []string{"layer2"}, PreferredNodeSelectors: []v1beta1.PreferredNodeSelector{prefers(owner, 100), prefers(stale, 50)},
	}})
	// What comes after it tells which nodes know it.
	after := expose(t, c, product.WebService(webs, "differs-later", "layer2", local))[0]
	knows := func(ctx context.Context, n *lab.Node) (bool, error) {
		rules, err := n.Exec(ctx, "iptables-save", "-t", "nat")
		return strings.Contains(rules, after.String()+"/32"), err
	}
	for _, n := range c.Nodes() {
		if n != stale {
			eventually(t, soon, func(ctx context.Context) error {
				known, err := knows(ctx, n)
				if err == nil && !known {
					err = fmt.Errorf("%s has no rules for %s", n.Name, after)
				}
				return err
			})
		}
	}
	// Nodes say that tables differ once these have differed for 200 ms, and leave an address alone that has been new
	// for less than five seconds.
	time.Sleep(6 * time.Second)
	if known, err := knows(within(t, soon), stale); err != nil || known {
		t.Fatalf("%s knows of %s: %v, %v; its table is no other one", stale.Name, after, known, err)
	}
	stalled := probe.WatchStalls()
	defer stalled.Stop()
	began := time.Now()
	plugIn := unplugged(t, owner)
	reply(t, c.Client, vip)
	took := time.Since(began)
	t.Logf("%s died; %s was answered for after %v", owner.Name, vip, took.Round(time.Millisecond))
	if took > time.Second && !stalled.Since(began) {
		t.Errorf("%s was answered for %v after %s died, want a second at most", vip, took, owner.Name)
	}
	plugIn()
	on(t, c.ControlPlane, "ip route del unreachable "+node, "")
	on(t, stale, "ip route del unreachable "+server, "")
}
