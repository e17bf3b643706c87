package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// A node whose kernel answers for an address of another one, as kube-proxy in IPVS mode
// without strictARP makes it do, has clients reach either, and one that drops what comes from
// far away has them reach nobody. No log of the machines says so; the objects do, and take it
// back when it is put right as the guide says.
func TestWhatBreaksLayer2IsTold(t *testing.T) {
	c := cluster(t)
	s := product.WebService(webs, "silently", "layer2", everyone, corev1.IPv4Protocol, corev1.IPv6Protocol)
	vips := expose(t, c, s)
	for _, vip := range vips {
		reply(t, c.Client, vip)
	}
	had := owners(t, c, vips)
	others := make([]*lab.Node, len(vips))
	for i, vip := range vips {
		others[i] = bystander(t, c, vip)
	}
	far := had[0]
	// Not every kernel has dummy interfaces, as kube-proxy uses; it makes no difference here.
	on(t, others[0], "ip link add kube-ipvs0 type bridge", "ip link del kube-ipvs0")
	on(t, others[0], fmt.Sprintf("ip address add %s/32 dev kube-ipvs0", vips[0]), "")
	on(t, others[1], fmt.Sprintf("ip address add %s/128 dev eth0 nodad", vips[1]), fmt.Sprintf("ip address del %s/128 dev eth0", vips[1]))
	on(t, far, "ip link add uplink type bridge && ip link set uplink up && ip route add 192.0.0.8/32 dev uplink", "ip link del uplink")
	on(t, far, "sysctl -q -w net.ipv4.conf.eth0.rp_filter=1", "sysctl -q -w net.ipv4.conf.eth0.rp_filter=0")

	for i, vip := range vips {
		eventually(t, soon, func(ctx context.Context) error { return answered(ctx, c, vip, had[i], others[i]) })
	}
	for i, vip := range vips {
		eventually(t, patience, func(ctx context.Context) error {
			return says(ctx, c, vip, v1beta1.ConditionDoubted, "AddressAnsweredTwice", others[i].Name)
		})
		eventually(t, soon, func(ctx context.Context) error {
			return event(ctx, c, webs, "AddressAnsweredTwice", vip.String(), others[i].Name)
		})
		eventually(t, patience, func(ctx context.Context) error {
			return event(ctx, c, nodeEvents, "AddressOnInterface", "the kernel of node "+others[i].Name)
		})
	}
	eventually(t, patience, func(ctx context.Context) error {
		return says(ctx, c, vips[0], v1beta1.ConditionObstructed, "ReversePathFiltered", far.Name)
	})

	// As the guide says: strictARP, an address taken away, and a filter that only asks for some way back.
	on(t, others[0], "sysctl -q -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
		"sysctl -q -w net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0")
	on(t, others[1], fmt.Sprintf("ip address del %s/128 dev eth0", vips[1]), "")
	on(t, far, "sysctl -q -w net.ipv4.conf.eth0.rp_filter=2", "")
	for i, vip := range vips {
		eventually(t, soon, func(ctx context.Context) error { return answered(ctx, c, vip, had[i]) })
		for _, condition := range []string{v1beta1.ConditionDoubted, v1beta1.ConditionObstructed} {
			eventually(t, patience, func(ctx context.Context) error { return says(ctx, c, vip, condition, "") })
		}
		reply(t, c.Client, vip)
	}
}

// nodeEvents is the namespace of Events on Nodes.
const nodeEvents = "default"

// on runs a command on a node, and another one that undoes it, if there is one, when the
// test ends.
func on(t *testing.T, n interface {
	Exec(ctx context.Context, command ...string) (string, error)
}, command, undo string,
) {
	t.Helper()
	if _, err := n.Exec(within(t, soon), "sh", "-c", command); err != nil {
		t.Fatal(err)
	}
	if undo == "" {
		return
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_, _ = n.Exec(ctx, "sh", "-c", undo) // the test may have done so
	})
}

// bystander is a node that neither answers for an address nor is the next one to.
func bystander(t *testing.T, c *product.Cluster, vip netip.Addr) *lab.Node {
	t.Helper()
	var found *lab.Node
	eventually(t, soon, func(ctx context.Context) error {
		var object v1beta1.L2Address
		if err := c.API.Get(ctx, client.ObjectKey{Name: v1beta1.L2AddressName(vip)}, &object); err != nil {
			return err
		}
		nodes := c.Nodes()
		i := slices.IndexFunc(nodes, func(n *lab.Node) bool { return n.Name != object.Status.Node && n.Name != object.Status.RunnerUp })
		if object.Status.RunnerUp == "" || i < 0 {
			return fmt.Errorf("%s has no runner-up: %+v", vip, object.Status)
		}
		found = nodes[i]
		return nil
	})
	return found
}

// answered checks that the client, when it asks for an address, hears exactly these nodes.
func answered(ctx context.Context, c *product.Cluster, vip netip.Addr, want ...*lab.Node) error {
	got, err := c.Answerers(ctx, vip)
	if err != nil {
		return err
	}
	names := func(nodes []*lab.Node) (all []string) {
		for _, n := range nodes {
			all = append(all, n.Name)
		}
		slices.Sort(all)
		return all
	}
	if !slices.Equal(names(got), names(want)) {
		return fmt.Errorf("%v answer for %s, want %v", names(got), vip, names(want))
	}
	return nil
}

// says checks that a condition of the object of an address has a reason, and that its message names
// something; with no reason, that the condition is not there.
func says(ctx context.Context, c *product.Cluster, vip netip.Addr, condition, reason string, named ...string) error {
	var object v1beta1.L2Address
	if err := c.API.Get(ctx, client.ObjectKey{Name: v1beta1.L2AddressName(vip)}, &object); err != nil {
		return err
	}
	found := meta.FindStatusCondition(object.Status.Conditions, condition)
	switch {
	case found == nil && reason == "":
		return nil
	case found == nil:
		return fmt.Errorf("%s is not %s", vip, condition)
	case found.Reason != reason:
		return fmt.Errorf("%s is %s since %s for %s, want %q: %s", vip, condition, found.LastTransitionTime.Format(time.TimeOnly), found.Reason, reason, found.Message)
	}
	return mentions(found.Message, named...)
}

// event checks that there is an Event with a reason that names something.
func event(ctx context.Context, c *product.Cluster, namespace, reason string, named ...string) error {
	var events corev1.EventList
	if err := c.API.List(ctx, &events, client.InNamespace(namespace)); err != nil {
		return err
	}
	err := fmt.Errorf("no Event %s in namespace %s", reason, namespace)
	for _, e := range events.Items {
		if e.Reason != reason {
			continue
		}
		if err = mentions(e.Message, named...); err == nil {
			return nil
		}
	}
	return err
}

func mentions(text string, named ...string) error {
	for _, name := range named {
		if !strings.Contains(text, name) {
			return fmt.Errorf("this does not name %s: %s", name, text)
		}
	}
	return nil
}
