package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// rushEach is how many connections a second each of the two addresses of a Service gets.
const rushEach = 250

// instant is how the logs of programs tell a time, to the millisecond.
const instant = "15:04:05.000"

// rush opens 500 connections a second to a dual-stack Service over layer 2. What it returns
// ends that, and fails the test if a connection was not made or was cut: whatever happens
// meanwhile is to be no client's business. A machine that is so busy that it does not come to so
// many connections a second does not come to much else in time: there, what moves twice within
// two seconds has cost four of 1568, each after its connection was made.
func rush(t *testing.T, c *product.Cluster, name string, policy corev1.ServiceExternalTrafficPolicy) (vips []netip.Addr, end func()) {
	t.Helper()
	vips = expose(t, c, product.WebService(webs, name, "layer2", policy, corev1.IPv4Protocol, corev1.IPv6Protocol))
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	counts, began := make([]chan tally, len(vips)), time.Now()
	for i, vip := range vips {
		reply(t, c.Client, vip)
		counts[i] = make(chan tally, 1)
	}
	for i, vip := range vips {
		go func() { counts[i] <- flood(ctx, c.Client, vip, 80, rushEach) }()
	}
	return vips, func() {
		t.Helper()
		stop()
		wanted := int(time.Since(began).Seconds() * rushEach)
		for i, vip := range vips {
			count := <-counts[i]
			t.Logf("%s: %d requests of %d that were to be made, %d failed, %d held up, longest time without a reply %v; errors %v",
				vip, count.OK+count.Failed, wanted, count.Failed, count.Held, count.Longest, count.Errors)
			busy := count.OK+count.Failed+count.Held < wanted/2
			if count.OK < 500 || count.Failed > 0 && (!busy || tooMany(count)) {
				t.Errorf("%s: %d of %d requests failed, %d of them after their connections were made, at %d moments",
					vip, count.Failed, count.OK+count.Failed, len(count.Cut), moments(count.Cut))
				for _, lost := range count.Lost[:min(len(count.Lost), 20)] {
					t.Logf("%s: lost from %s to %s", vip, lost.From.Format(instant), lost.To.Format(instant))
				}
			}
		}
	}
}

// hold opens connections to the addresses and asks over each again and again. What it returns
// ends that, and fails the test if one did not last until then.
func hold(t *testing.T, c *product.Cluster, vips []netip.Addr) (end func()) {
	t.Helper()
	const each = 8
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	var held sync.WaitGroup
	for _, vip := range vips {
		for range each {
			held.Go(func() {
				if replies, err := holdOpen(ctx, c.Client, vip, 80); err != nil || replies == 0 {
					t.Errorf("%s: a connection ended after %d replies: %v", vip, replies, err)
				}
			})
		}
	}
	return func() {
		stop()
		held.Wait()
	}
}

// owners are the nodes to which the client sends what is for the addresses. It is looked up and
// not asked for: whoever makes the kernel ask anew has it forget the address for a moment, and
// over IPv6 a connection that is being made just then fails.
func owners(t *testing.T, c *product.Cluster, vips []netip.Addr) []*lab.Node {
	t.Helper()
	var found []*lab.Node
	for _, vip := range vips {
		eventually(t, patience, func(ctx context.Context) error {
			owner, err := c.Neighbor(ctx, vip)
			if err == nil {
				found = append(found, owner)
			}
			return err
		})
	}
	return found
}

// unmoved fails the test if other nodes answer than before.
func unmoved(t *testing.T, c *product.Cluster, vips []netip.Addr, before []*lab.Node, when string) {
	t.Helper()
	if now := owners(t, c, vips); !slices.Equal(now, before) {
		t.Errorf("%s and %s answered, and %s %s and %s", before[0].Name, before[1].Name, when, now[0].Name, now[1].Name)
	}
}

// An upgrade replaces every pod of the DaemonSet, one after another. No address moves, and
// of 500 new connections a second none fails.
func TestAnUpgradeUnderManyConnections(t *testing.T) {
	c := cluster(t)
	vips, end := rush(t, c, "upgraded", local)
	before := owners(t, c, vips)
	if _, err := c.Kubectl(within(t, patience), "-n", product.Namespace, "rollout", "restart", "daemonset/fairlead-speaker"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitInstalled(within(t, 2*patience)); err != nil {
		t.Fatal(err)
	}
	end()
	unmoved(t, c, vips, before, "now")
}

// The agents of all nodes are killed at once, as by a bad release. Pulse goes on: no address
// moves and no connection fails, before they are back and when they are.
func TestEverySpeakerIsKilled(t *testing.T) {
	c := cluster(t)
	vips, end := rush(t, c, "all-killed", everyone)
	before, began := owners(t, c, vips), agentStarts(t, c)
	for _, n := range c.Nodes() {
		// The agent, not "speaker pulse".
		if out, err := n.Exec(within(t, soon), "sh", "-c", `kill -9 $(pgrep -f '^/usr/local/bin/speaker --')`); err != nil {
			t.Fatalf("killing the speaker on %s: %v %s", n.Name, err, out)
		}
	}
	unmoved(t, c, vips, before, "without agents")
	eventually(t, 2*patience, func(context.Context) error { // or the pods are ready because nobody knows yet
		if now := agentStarts(t, c); now < began+len(c.Nodes()) {
			return fmt.Errorf("agents were started %d times before they were killed, and %d times now", began, now)
		}
		return nil
	})
	if err := c.WaitInstalled(within(t, 2*patience)); err != nil {
		t.Error(err)
	}
	end()
	unmoved(t, c, vips, before, "now")
}

// agentStarts is how often kubelets have started agents again, as the API server knows.
func agentStarts(t *testing.T, c *product.Cluster) int {
	t.Helper()
	counts, err := c.Kubectl(within(t, patience), "-n", product.Namespace, "get", "pods", "-l", "app.kubernetes.io/component=speaker", "-o",
		`jsonpath={range .items[*].status.containerStatuses[?(@.name=="speaker")]}{.restartCount}{"\n"}{end}`)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for count := range strings.FieldsSeq(counts) {
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("restarts of the agents: %v", err)
		}
		total += n
	}
	return total
}

// A node that is to be switched off is drained by the label of Kubernetes, or by an autoscaler's taint, and back by
// taking that off: its addresses move twice, and no connection fails, not even one that is open
// at that moment: the other node knows nothing of it, and hands it over to the one that does.
// The object of the address tells who has it. So for the node with the IPv4 address, and for
// that with the IPv6 address, and for both policies.
func TestADrainedNodeHandsOver(t *testing.T) {
	c := cluster(t)
	for name, policy := range map[string]corev1.ServiceExternalTrafficPolicy{"drained": everyone, "drained-local": local} {
		vips, end := rush(t, c, name, policy)
		over := hold(t, c, vips)
		for i, drained := range owners(t, c, vips) {
			drain(t, c, drained, vips, i, []mark{byOperator, byAutoscaler}[i])
		}
		over()
		end()
	}
}

// drain has a node hand over its addresses, of which one is vips[had], and take them back.
func drain(t *testing.T, c *product.Cluster, drained *lab.Node, vips []netip.Addr, had int, by mark) {
	t.Helper()
	for _, known := range holdPorts(t, c, vips[had]) {
		if err := known.abort(); err != nil {
			t.Error(err)
		}
	}
	back := leaveOut(t, c, drained, by)
	eventually(t, patience, func(ctx context.Context) error {
		for i, vip := range vips {
			owner, err := c.Neighbor(ctx, vip)
			if err != nil {
				return err
			}
			if owner == drained {
				return fmt.Errorf("%s is drained and the client has it for %s", owner.Name, vips[i])
			}
			if err := toldOf(ctx, c, vip, owner); err != nil {
				return err
			}
		}
		return nil
	})
	// The drained node knows connections from these ports that have ended.
	again := holdPorts(t, c, vips[had])
	back()
	eventually(t, patience, func(ctx context.Context) error {
		owner, err := c.Neighbor(ctx, vips[had])
		if err == nil && owner != drained {
			err = fmt.Errorf("the client has %s for %s, want %s, which is back", owner.Name, vips[had], drained.Name)
		}
		if err == nil {
			err = toldOf(ctx, c, vips[had], drained)
		}
		return err
	})
	for _, h := range again {
		if err := errors.Join(h.ask(answerPatience), h.abort()); err != nil {
			t.Errorf("%s is back, and a connection to %s from %s hangs: %v", drained.Name, vips[had], h.conn.LocalAddr(), err)
		}
	}
}

// holdPorts opens a few connections to an address, from the same ports each time, and asks over each.
func holdPorts(t *testing.T, c *product.Cluster, vip netip.Addr) (all []*held) {
	t.Helper()
	const first, few = 20_000, 8 // which the client's kernel takes for no other connection
	for port := range few {
		h, err := newHeld(t.Context(), c.Client, first+port, netip.AddrPortFrom(vip, 80))
		if err == nil {
			err = h.ask(answerPatience)
		}
		if err != nil {
			t.Fatalf("a connection to %s from port %d: %v", vip, first+port, err)
		}
		all = append(all, h)
	}
	return all
}

// A mark on a Node by which it is to announce nothing.
type mark struct{ verb, on, off string } // for kubectl

var (
	byOperator   = mark{"label", "node.kubernetes.io/exclude-from-external-load-balancers=", "node.kubernetes.io/exclude-from-external-load-balancers-"}
	byAutoscaler = mark{"taint", "ToBeDeletedByClusterAutoscaler=0:NoSchedule", "ToBeDeletedByClusterAutoscaler-"} // about to delete it
)

// leaveOut has a node announce nothing, until back is called or the test ends.
func leaveOut(t *testing.T, c *product.Cluster, n *lab.Node, by mark) (back func()) {
	t.Helper()
	change := func(to string) {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if _, err := c.Kubectl(ctx, by.verb, "--overwrite", "node", n.Name, to); err != nil {
			t.Error(err)
		}
	}
	back = sync.OnceFunc(func() { change(by.off) })
	t.Cleanup(back)
	change(by.on)
	return back
}

// toldOf checks that the object of an address says that the node answers for it.
func toldOf(ctx context.Context, c *product.Cluster, vip netip.Addr, owner *lab.Node) error {
	var object v1beta1.L2Address
	if err := c.API.Get(ctx, client.ObjectKey{Name: v1beta1.L2AddressName(vip)}, &object); err != nil {
		return err
	}
	s := object.Status
	if s.Node != owner.Name || !slices.Equal(s.Interfaces, []string{"eth0"}) || len(s.Services) != 1 || s.RunnerUp == "" || s.RunnerUp == owner.Name {
		return fmt.Errorf("%s answers for %s, and its L2Address says %+v", owner.Name, vip, s)
	}
	return nil
}

// A link that flaps leaves the address with one node, and clients sending there, in the end. Whether that is the node with the
// link, or that comes last for a while, depends on how many of its absences the others noticed. For IPv6 it needs the groups of
// the address to be joined again.
func TestALinkFlaps(t *testing.T) {
	c := cluster(t)
	vips := expose(t, c, product.WebService(webs, "flapping", "layer2", everyone, corev1.IPv4Protocol, corev1.IPv6Protocol))
	for _, vip := range vips {
		reply(t, c.Client, vip)
		owner, err := c.Answerer(within(t, patience), vip)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := owner.Plug(); err != nil {
				t.Error(err)
			}
		})
		// Shorter and longer than it takes to notice.
		for pause := 50 * time.Millisecond; pause < time.Second; pause *= 2 {
			if err := owner.Unplug(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
			if err := owner.Plug(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
		}
		var now *lab.Node
		eventually(t, soon, func(ctx context.Context) (err error) {
			now, err = c.Answerer(ctx, vip)
			return err
		})
		reply(t, c.Client, vip)
		eventually(t, patience, func(ctx context.Context) error {
			sends, err := c.Neighbor(ctx, vip)
			if err == nil && sends != now {
				err = fmt.Errorf("the client sends for %s to %s, want %s", vip, sends.Name, now.Name)
			}
			return err
		})
	}
}
