package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// An address that is for a second network card is answered for as soon as a node has one, the
// client learns a new hardware address of it at once, and another node's card takes over when it
// is pulled out. Nobody asks anew: the client is told, in both families.
func TestNetworkCardsComeAndGo(t *testing.T) {
	c := cluster(t)
	const pool, card = "cards", "eth1"
	create(t, c, &v1beta1.IPAddressPool{ObjectMeta: name(pool), Spec: v1beta1.IPAddressPoolSpec{
		Addresses: []string{"172.30.200.110-172.30.200.119", "fd00:30::200:110-fd00:30::200:119"}, AutoAssign: new(false),
	}})
	create(t, c, &v1beta1.L2Advertisement{ObjectMeta: name(pool), Spec: v1beta1.L2AdvertisementSpec{
		IPAddressPools: []string{pool}, Interfaces: []string{card},
	}})
	vips := expose(t, c, product.WebService(webs, pool, pool, everyone, corev1.IPv4Protocol, corev1.IPv6Protocol))
	for _, vip := range vips {
		if _, err := product.FirstReply(within(t, 2*time.Second), c.Client, vip, 80); err == nil {
			t.Fatalf("%s is served, and no node has the interface that it is for", vip)
		}
	}

	first, second := c.Node(2), c.Node(3)
	learns := func(what string, n *lab.Node) {
		t.Helper()
		began := time.Now()
		for _, vip := range vips {
			eventually(t, soon, func(ctx context.Context) error { return sendsTo(ctx, c, vip, n, card) })
			reply(t, c.Client, vip)
		}
		t.Logf("%s: the client sends there after %v", what, time.Since(began).Round(time.Millisecond))
	}
	plug(t, first, card)
	for _, vip := range vips {
		reply(t, c.Client, vip)
	}
	learns("a card is plugged in", first)
	on(t, first, "ip link set "+card+" address 02:00:00:00:00:99", "")
	learns("its hardware address changes", first)
	plug(t, second, card)
	on(t, first, "ip link del "+card, "")
	learns("it is pulled out", second)
}

// plug gives a node a card for the time of the test.
func plug(t *testing.T, n *lab.Node, card string) {
	t.Helper()
	if err := n.AddLink(card); err != nil {
		t.Fatal(err)
	}
	on(t, n, "true", "ip link del "+card)
}

// sendsTo checks that the client has the hardware address of a node's interface for an address.
func sendsTo(ctx context.Context, c *product.Cluster, vip netip.Addr, n *lab.Node, link string) error {
	mac, err := n.Exec(ctx, "cat", "/sys/class/net/"+link+"/address")
	if err != nil {
		return err
	}
	seen, err := c.Client.Exec(ctx, "ip", "neighbour", "show", vip.String(), "dev", "eth0")
	if err == nil && !strings.Contains(seen, strings.TrimSpace(mac)) {
		err = fmt.Errorf("the client sends for %s to %q, want %s of %s", vip, seen, mac, n.Name)
	}
	return err
}
