package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/product"
)

// A restart of the speakers, one after another as in an upgrade, loses no request over BGP, and moves
// no route. Nor does it if all their pods are deleted by force, whose account is unknown from then on. For layer 2,
// see TestAnUpgradeUnderManyConnections.
func TestSpeakersRestartUnderLoad(t *testing.T) {
	c := cluster(t)
	vip := expose(t, c, product.WebService(webs, "restart-bgp", "bgp", local))[0]
	reply(t, c.Client, vip)
	for _, test := range []struct {
		name    string
		restart []string
		times   int // of a deletion by force, many a one asks before the API server has noticed
	}{
		{"one after another", []string{"rollout", "restart", "daemonset/fairlead-speaker"}, 1},
		{"all by force", []string{"delete", "pods", "-l", "app.kubernetes.io/component=speaker", "--force", "--grace-period=0"}, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			eventually(t, soon, func(context.Context) error { return nextHops(c, vip, 3) })
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done, changed := make(chan tally, 1), make(chan string, 1)
			go func() { done <- load(ctx, c.Client, vip, 80) }()
			go func() {
				changes, _ := c.Router.Exec(ctx, "ip", "-timestamp", "monitor", "route") // which stop ends
				changed <- changes
			}()
			seen := expose(t, c, product.WebService(webs, "seen", "bgp", local))[0]
			eventually(t, soon, func(context.Context) error { return nextHops(c, seen, 3) })
			for range test.times {
				replaceSpeakers(t, c, test.restart)
			}
			stop()
			count, routes := <-done, <-changed
			t.Logf("%d requests, %d failed, %d held up, longest wait %v", count.OK+count.Failed, count.Failed, count.Held, count.Longest)
			if tooMany(count) {
				t.Errorf("%d of %d requests failed while every speaker restarted; they met %v", count.Failed, count.OK+count.Failed, count.Errors)
			}
			if strings.Contains(routes, vip.String()+" ") || !strings.Contains(routes, seen.String()+" ") {
				t.Errorf("the route to %s moved, or the new one to %s was not noticed:\n%s", vip, seen, routes)
			}
		})
	}
}

// replaceSpeakers has kubectl replace all speakers, and waits until those that follow are ready.
func replaceSpeakers(t *testing.T, c *product.Cluster, kubectl []string) {
	t.Helper()
	before := speakers(t, c)
	if _, err := c.Kubectl(within(t, soon), append([]string{"-n", product.Namespace}, kubectl...)...); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Minute, func(context.Context) error {
		for uid, ready := range speakers(t, c) {
			if _, old := before[uid]; old || !ready {
				return fmt.Errorf("pod %s is one of before: %t, ready: %t", uid, old, ready)
			}
		}
		return c.WaitInstalled(within(t, patience))
	})
}

// speakers are the pods of the speakers, and whether they are ready, by UID.
func speakers(t *testing.T, c *product.Cluster) map[types.UID]bool {
	t.Helper()
	var pods corev1.PodList
	err := c.API.List(within(t, soon), &pods, client.InNamespace(product.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "speaker"})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[types.UID]bool, len(pods.Items))
	for _, pod := range pods.Items {
		all[pod.UID] = slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	}
	return all
}

// A container that is killed, as by the kernel for want of memory, comes back without
// a request lost.
func TestTheSpeakerIsKilled(t *testing.T) {
	c := cluster(t)
	vip := expose(t, c, product.WebService(webs, "killed", "layer2", local))[0]
	reply(t, c.Client, vip)
	owner, err := c.Answerer(within(t, soon), vip)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan tally)
	go func() { done <- load(ctx, c.Client, vip, 80) }()
	// The agent, not "speaker pulse", which answers.
	if out, err := owner.Exec(within(t, soon), "sh", "-c", `kill -9 $(pgrep -f '^/usr/local/bin/speaker --')`); err != nil {
		t.Fatalf("killing the speaker on %s: %v %s", owner.Name, err, out)
	}
	time.Sleep(6 * time.Second) // in which it would show
	stop()
	count := <-done
	t.Logf("%d requests, %d failed, %d held up, longest wait %v", count.OK+count.Failed, count.Failed, count.Held, count.Longest)
	if tooMany(count) {
		t.Errorf("%d of %d requests failed; they met %v", count.Failed, count.OK+count.Failed, count.Errors)
	}
	if now, err := c.Answerer(within(t, soon), vip); err != nil || now != owner {
		t.Errorf("the address moved from %s to %v (%v)", owner.Name, now, err)
	}
	if err := c.WaitInstalled(within(t, 3*time.Minute)); err != nil {
		t.Error(err)
	}
}

// Addresses survive the controller's restart and the loss of its leader; deletion and
// a change of type free them.
func TestAddressesSurviveTheController(t *testing.T) {
	c := cluster(t)
	s := product.WebService(webs, "kept", "layer2", everyone)
	before := expose(t, c, s)[0]
	_, err := c.Kubectl(within(t, 3*time.Minute), "-n", product.Namespace, "delete", "pod", "--wait=false", "-l", "app.kubernetes.io/component=controller")
	if err != nil {
		t.Fatal(err)
	}
	other := product.WebService(webs, "later", "layer2", everyone)
	create(t, c, other)
	eventually(t, 3*time.Minute, func(ctx context.Context) error { _, err := c.Addresses(ctx, key(other), 1); return err })
	after, err := c.Addresses(t.Context(), key(s), 1)
	if err != nil || after[0] != before {
		t.Fatalf("the address was %s and is %v (%v)", before, after, err)
	}
	if err := c.WaitInstalled(within(t, 3*time.Minute)); err != nil {
		t.Fatal(err)
	}

	if _, err := c.Kubectl(t.Context(), "-n", webs, "patch", "service", "kept", "--type=merge", "-p", `{"spec":{"type":"ClusterIP"}}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, func(ctx context.Context) error {
		var now corev1.Service
		err := c.API.Get(ctx, key(s), &now)
		if err == nil && len(now.Status.LoadBalancer.Ingress)+len(now.Status.Conditions) > 0 {
			err = fmt.Errorf("of type ClusterIP it still has %+v", now.Status)
		}
		return err
	})
	taker := product.WebService(webs, "taker", "layer2", everyone)
	taker.Annotations["fairlead.dev/addresses"] = before.String()
	if got := expose(t, c, taker)[0]; got != before {
		t.Errorf("the freed address %s was asked for and %s given", before, got)
	}
}

// With the API server stopped, everything that was announced stays, and a node's
// death is answered all the same, in both families.
func TestTheAPIServerIsGone(t *testing.T) {
	c := cluster(t)
	vips := expose(t, c, product.WebService(webs, "no-api", "layer2", everyone, corev1.IPv4Protocol, corev1.IPv6Protocol))
	for _, vip := range vips {
		reply(t, c.Client, vip)
	}
	const server = "kube-apiserver"
	if err := c.Signal(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Signal(server, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
		eventually(t, patience, func(ctx context.Context) error { _, err := c.Kubectl(ctx, "get", "--raw", "/readyz"); return err })
		// The leader may have lost its lease. Another one leads, before the next test begins.
		expose(t, c, product.WebService(webs, "api-is-back", "layer2", everyone))
	}()
	for _, vip := range vips {
		takenOver(t, c, vip)
	}
	for _, n := range c.Nodes() {
		if rules, err := n.Exec(within(t, soon), "iptables-save", "-t", "nat"); err != nil || !strings.Contains(rules, vips[0].String()+"/32") {
			t.Errorf("%s lost its rules (%v)", n.Name, err)
		}
	}
}

// takenOver unplugs the node that answers for an address until another one does and every
// new flow is answered, and plugs it in again until one node answers. That need not be the same: one that tests before
// this one have unplugged, too, comes last for a while.
func takenOver(t *testing.T, c *product.Cluster, vip netip.Addr) {
	t.Helper()
	owner, err := c.Answerer(within(t, soon), vip)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := owner.Plug(); err != nil {
			t.Error(err)
		}
	})
	if err := owner.Unplug(); err != nil {
		t.Fatal(err)
	}
	reply(t, c.Client, vip)
	now, err := c.Answerer(within(t, soon), vip)
	if err != nil || now == owner {
		t.Errorf("%s is unplugged and %v answers for %s (%v)", owner.Name, now, vip, err)
	}
	// Kubernetes cannot know that the pod on the dead node is one, and new flows leave it.
	const inARow = 60
	eventually(t, soon, func(ctx context.Context) error {
		for i := range inARow {
			one, cancel := context.WithTimeout(ctx, time.Second)
			_, err := product.Ask(one, c.Client, vip, 80)
			cancel()
			if err != nil {
				return fmt.Errorf("after %d requests in a row: %w", i, err)
			}
		}
		return nil
	})
	if err := owner.Plug(); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, func(ctx context.Context) error {
		_, err := c.Answerer(ctx, vip)
		return err
	})
}

// tooMany tells whether more requests failed than the lab itself loses: now and then a
// single SYN, one in some thousand, for which nobody is known to be at fault. A takeover,
// a withdrawn route or rules that are gone for seconds would be far more. On a busy machine
// there are fewer requests, but not fewer such moments.
func tooMany(c tally) bool { return tooManyBut(c, 0) }

// tooManyBut is [tooMany] where so many changes of who announces may each break the request
// under way, and leave two unanswered, each for its second.
func tooManyBut(c tally, changes int) bool {
	const anyway = 3
	return c.OK < 100 || c.Failed > max(anyway+3*changes, c.OK/200)
}
