package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// unplugged has the link of a node be down until the function is called, or the test ends.
func unplugged(t *testing.T, n *lab.Node) (plugIn func()) {
	t.Helper()
	if err := n.Unplug(); err != nil {
		t.Fatal(err)
	}
	in := false
	plugIn = func() {
		if !in {
			in = true
			if err := n.Plug(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(plugIn)
	return plugIn
}

// sightings counts how often the client's neighbour table has another node for addresses.
type sightings struct {
	of    map[netip.Addr]*lab.Node
	moves map[netip.Addr]int
}

func (s *sightings) look(t *testing.T, c *product.Cluster, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for vip, before := range s.of {
			one, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, _ = product.Ask(one, c.Client, vip, 80) // so that the kernel looks after its entry
			cancel()
			if now, err := c.Neighbor(t.Context(), vip); err == nil && now != before {
				s.of[vip] = now
				s.moves[vip]++
			}
		}
	}
}

// A node of which the link goes down and comes up again and again takes its addresses back once, and not each time: switches freeze
// an address that moves five times in three minutes (EVPN). It is said on the address and on the node.
func TestANodeThatFlapsComesLast(t *testing.T) {
	c := cluster(t)
	seen := sightings{map[netip.Addr]*lab.Node{}, map[netip.Addr]int{}}
	vips := expose(t, c, product.WebService(webs, "flaps", "layer2", everyone, corev1.IPv4Protocol, corev1.IPv6Protocol))
	vips = append(vips, expose(t, c, product.WebService(webs, "flaps-too", "layer2", everyone))...)
	for _, vip := range vips {
		reply(t, c.Client, vip)
	}
	for i, owner := range owners(t, c, vips) {
		seen.of[vips[i]] = owner
	}
	node := seen.of[vips[0]]
	for range 6 {
		plugIn := unplugged(t, node)
		seen.look(t, c, 5*time.Second)
		plugIn()
		seen.look(t, c, 5*time.Second)
	}
	for _, vip := range vips {
		t.Logf("%s moved %d times", vip, seen.moves[vip])
		if seen.moves[vip] > 3 {
			t.Errorf("%s moved %d times in a minute", vip, seen.moves[vip])
		}
	}
	eventually(t, soon, func(ctx context.Context) error {
		now, err := c.Answerer(ctx, vips[0])
		if err == nil && now == node {
			err = fmt.Errorf("%s answers, of which the link flapped", now.Name)
		}
		return err
	})
	eventually(t, patience, func(ctx context.Context) error {
		return errors.Join(says(ctx, c, vips[0], v1beta1.ConditionAnswering, v1beta1.ReasonSuccessor, node.Name+" fell silent again and again"),
			event(ctx, c, nodeEvents, "Damped", node.Name))
	})
}

// With preempt: Never, a node that dies and comes back leaves its addresses where they are.
func TestANodeComesBackWithoutPreemption(t *testing.T) {
	c := cluster(t)
	const pool = "kept-where-it-is"
	create(t, c, &v1beta1.IPAddressPool{ObjectMeta: name(pool), Spec: v1beta1.IPAddressPoolSpec{
		Addresses: []string{"172.30.200.120-172.30.200.129", "fd00:30::200:120-fd00:30::200:129"}, AutoAssign: new(false),
	}})
	create(t, c, &v1beta1.L2Advertisement{ObjectMeta: name(pool), Spec: v1beta1.L2AdvertisementSpec{IPAddressPools: []string{pool}, Preempt: v1beta1.PreemptNever}})
	vips := expose(t, c, product.WebService(webs, pool, pool, everyone, corev1.IPv4Protocol, corev1.IPv6Protocol))
	for _, vip := range vips {
		reply(t, c.Client, vip)
	}
	first := owners(t, c, vips)[0]
	plugIn := unplugged(t, first)
	for _, vip := range vips {
		reply(t, c.Client, vip)
	}
	now := owners(t, c, vips)
	if now[0] == first {
		t.Fatalf("%s is unplugged and answers", first.Name)
	}
	plugIn()
	eventually(t, patience, func(ctx context.Context) error {
		return says(ctx, c, vips[0], v1beta1.ConditionAnswering, v1beta1.ReasonNotPreempted)
	})
	for i, vip := range vips {
		if after, err := c.Answerer(within(t, soon), vip); err != nil || after != now[i] {
			t.Errorf("%s came back, and %s answers for %s, want %s (%v)", first, after, vip, now[i], err)
		}
	}
}
