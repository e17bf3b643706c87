package scenarios

import (
	"context"
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

// clock is how the log tells when something was: as the logs of the speakers do.
const clock = "15:04:05.000"

// flow is one connection that lasts as long as the test, and a load of new ones beside it.
type flow struct {
	name string
	from *lab.Machine
	to   netip.AddrPort
}

// begin starts the flow; what it returns ends it, and fails the test if the connection
// died or requests were lost.
func (f flow) begin(ctx context.Context, t *testing.T) (end func()) {
	held, loaded := make(chan error, 1), make(chan product.Count, 1)
	replies := 0
	go func() {
		var err error
		replies, err = product.Hold(ctx, f.from, f.to.Addr(), f.to.Port())
		if err != nil {
			err = fmt.Errorf("at %s: %w", time.Now().Format(clock), err)
		}
		held <- err
	}()
	go func() { loaded <- product.Load(ctx, f.from, f.to.Addr(), f.to.Port()) }()
	return func() {
		if err := <-held; err != nil {
			t.Errorf("%s: the connection ended after %d replies: %v", f.name, replies, err)
		}
		count := <-loaded
		t.Logf("%s: %d replies on one connection, %d on new ones, %d failed, %d held up, longest wait %v",
			f.name, replies, count.OK, count.Failed, count.Held, count.Longest)
		if replies < 100 || count.OK < 100 {
			t.Errorf("%s: too few replies to tell", f.name)
		}
		if tooMany(count) {
			t.Errorf("%s: %d of %d requests failed; they met %v", f.name, count.Failed, count.OK+count.Failed, count.Errors)
		}
	}
}

// A user who comes from kube-proxy, changes the backend, or goes back to kube-proxy loses
// no connection and no request: each step of docs/replacing-kube-proxy.md is taken here,
// both ways, with connections open and new ones all the time. They do not go to the address
// that layer 2 announces: what becomes of that while speakers restart is another question,
// which TestAnUpgradeUnderManyConnections asks.
func TestKubeProxyIsReplacedAndComesBack(t *testing.T) {
	c := cluster(t)
	s := product.WebService(webs, "taken-over", "layer2", everyone)
	vip := expose(t, c, s)[0]
	reply(t, c.Client, vip)
	if err := c.API.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var ends []func()
	for _, f := range []flow{ // each begins once its own way is there
		{"from outside to a NodePort", c.Client, netip.AddrPortFrom(c.Node(2).IPv4, uint16(s.Spec.Ports[0].NodePort))},
		{"from a node to the ClusterIP", c.Node(1).Machine, netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), 80)},
	} {
		answers(t, f.name, f.from, f.to.Addr(), f.to.Port())
		ends = append(ends, f.begin(ctx, t))
	}
	mode := func(mode string) {
		t.Helper()
		t.Logf("%s: mode %s", time.Now().Format(clock), mode)
		if err := c.Install(within(t, 5*time.Minute), 3, "forwarding.mode="+mode); err != nil {
			t.Fatal(err)
		}
	}

	// Back to kube-proxy: it comes, ours goes once it is there.
	if err := c.StartProxy(within(t, 3*time.Minute), "iptables"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Minute, func(ctx context.Context) error { return toldOfOtherProxy(ctx, c) })
	mode("none")
	eventually(t, 3*time.Minute, func(ctx context.Context) error { return rulesOfOurs(ctx, c, false) })
	// And away from it.
	mode("iptables")
	eventually(t, 3*time.Minute, func(ctx context.Context) error { return rulesOfOurs(ctx, c, true) })
	if err := c.StopProxy(within(t, 3*time.Minute)); err != nil {
		t.Fatal(err)
	}
	// Between our own two.
	mode("nftables")
	eventually(t, 3*time.Minute, func(ctx context.Context) error { return rulesOfOurs(ctx, c, false) })
	mode("iptables")
	eventually(t, 3*time.Minute, func(ctx context.Context) error { return rulesOfOurs(ctx, c, true) })

	stop()
	for _, end := range ends {
		end()
	}
}

// toldOfOtherProxy looks for the Event by which every node says that kube-proxy's rules
// are in its kernel.
func toldOfOtherProxy(ctx context.Context, c *product.Cluster) error {
	var events corev1.EventList
	if err := c.API.List(ctx, &events); err != nil {
		return err
	}
	told := map[string]bool{}
	for _, e := range events.Items {
		if e.Reason == "OtherProxy" {
			told[e.InvolvedObject.Name] = true
		}
	}
	for _, n := range c.Nodes() {
		if !told[n.Name] {
			return fmt.Errorf("no Event of %s tells that kube-proxy is there", n.Name)
		}
	}
	return nil
}

// rulesOfOurs tells whether our iptables rules are on every node, or on none.
func rulesOfOurs(ctx context.Context, c *product.Cluster, wanted bool) error {
	for _, n := range c.Nodes() {
		out, err := n.Exec(ctx, "sh", "-c", "iptables-nft-save -t nat; ip6tables-nft-save -t nat; iptables-legacy-save -t nat 2>/dev/null || true")
		if err != nil {
			return fmt.Errorf("%s: %w: %s", n.Name, err, out)
		}
		if has := strings.Contains(out, "FAIRLEAD-DISPATCH"); has != wanted {
			return fmt.Errorf("%s: iptables rules of ours are there: %t, want %t", n.Name, has, wanted)
		}
	}
	return nil
}
