package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

const (
	local    = corev1.ServiceExternalTrafficPolicyLocal
	everyone = corev1.ServiceExternalTrafficPolicyCluster
)

// An address on the nodes' own network is answered for by one node, and the pod sees
// the client under policy Local and a node under policy Cluster. The addresses of a
// dual-stack Service do so each for itself.
func TestLayer2ServesAndKeepsTheClientsAddress(t *testing.T) {
	c := cluster(t)
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{local, everyone} {
		s := product.WebService(webs, "l2-"+strings.ToLower(string(policy)), "layer2", policy, c.IPFamilies()...)
		vips := expose(t, c, s)
		for i, family := range s.Spec.IPFamilies {
			t.Run(string(policy)+" "+string(family), func(t *testing.T) {
				vip, us := vips[i], c.Client.Like(vips[i])
				// The Service that had the address before may still be in the rules of a node.
				eventually(t, soon, func(ctx context.Context) error {
					got, err := product.FirstReply(ctx, c.Client, vip, 80)
					if err == nil && (got.Source == us) != (policy == local) {
						err = fmt.Errorf("under policy %s the pod saw %s, the client is %s", policy, got.Source, us)
					}
					return err
				})
				servedByOne(t, c, vip)
			})
		}
	}
}

// servedByOne checks that one node answers for an address, that the client sends its
// packets there, and that an Event says so.
func servedByOne(t *testing.T, c *product.Cluster, vip netip.Addr) {
	t.Helper()
	owner, err := c.Answerer(within(t, soon), vip)
	if err != nil {
		t.Fatal(err)
	}
	// An earlier Service may have had the address on another node.
	eventually(t, soon, func(ctx context.Context) error {
		seen, err := c.Neighbor(ctx, vip)
		if err == nil && seen != owner {
			err = fmt.Errorf("the client sends to %s, %s answers", seen.Name, owner.Name)
		}
		return err
	})
	reason := "AnsweringARP"
	if vip.Is6() {
		reason = "AnsweringNDP"
	}
	eventually(t, soon, func(ctx context.Context) error {
		events, err := c.Kubectl(ctx, "-n", webs, "get", "events", "--field-selector=reason="+reason)
		if err == nil && !strings.Contains(events, fmt.Sprintf("node %s answers for %s on eth0", owner.Name, vip)) {
			err = fmt.Errorf("no Event tells that %s answers for %s:\n%s", owner.Name, vip, events)
		}
		return err
	})
}

// By BGP every node that can serve announces, and the router spreads connections over
// them, in both families.
func TestBGPServesFromEveryNode(t *testing.T) {
	c := cluster(t)
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{local, everyone} {
		t.Run(string(policy), func(t *testing.T) {
			s := product.WebService(webs, "bgp-"+strings.ToLower(string(policy)), "bgp", policy, c.IPFamilies()...)
			vips := expose(t, c, s)
			for _, vip := range vips {
				eventually(t, soon, func(context.Context) error { return nextHops(c, vip, 3) })
				pods := map[string]bool{}
				// Chance leaves one pod out of 100 once in 10^17 times.
				for n := 0; n < 30 || len(pods) < 3 && n < 100; n++ {
					got := reply(t, c.Client, vip)
					pods[got.Pod] = true
					if preserved := got.Source == c.Client.Like(vip); preserved != (policy == local) {
						t.Fatalf("under policy %s the pod saw %s, the client is %s", policy, got.Source, c.Client.Like(vip))
					}
				}
				if len(pods) != 3 {
					t.Errorf("100 connections to %s reached %d pods of 3", vip, len(pods))
				}
			}
		})
	}
}

// nextHops checks the route that the router has in its kernel.
func nextHops(c *product.Cluster, vip netip.Addr, want int) error {
	hops, err := c.Router.Routes(netip.PrefixFrom(vip, vip.BitLen()))
	if err == nil && len(hops) != want {
		err = fmt.Errorf("the router has %d next hops to %s, want %d: %v", len(hops), vip, want, hops)
	}
	return err
}

// Under policy Local a node announces only while it has an endpoint; with none
// anywhere nobody does, and a client is refused by no node but finds nobody.
func TestOnlyNodesWithEndpointsAnnounce(t *testing.T) {
	c := cluster(t)
	const namespace = "moving"
	if err := c.DeployWeb(within(t, 3*time.Minute), namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, c, &corev1.Namespace{ObjectMeta: name(namespace)}) })
	vip := expose(t, c, product.WebService(namespace, "web", "bgp", local))[0]
	onNodes := func(selector string) {
		t.Helper()
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":%s}}}}`, selector)
		if _, err := c.Kubectl(within(t, soon), "-n", namespace, "patch", "daemonset", "web", "--type=merge", "-p", patch); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 3*time.Minute, func(context.Context) error { return nextHops(c, vip, 3) })
	onNodes(`{"kubernetes.io/hostname":"node2"}`)
	eventually(t, 3*time.Minute, func(context.Context) error {
		hops, err := c.Router.Routes(netip.PrefixFrom(vip, vip.BitLen()))
		if err == nil && !slices.Equal(hops, []netip.Addr{c.Node(2).Like(vip)}) {
			err = fmt.Errorf("next hops %v, want node2 alone (%s)", hops, c.Node(2).Like(vip))
		}
		return err
	})
	if got := reply(t, c.Client, vip); got.Source != c.Client.Like(vip) {
		t.Errorf("the pod saw %s", got.Source)
	}
	onNodes(`{"kubernetes.io/hostname":"nowhere"}`)
	eventually(t, 3*time.Minute, func(context.Context) error { return nextHops(c, vip, 0) })
	onNodes(`null`)
	eventually(t, 3*time.Minute, func(context.Context) error { return nextHops(c, vip, 3) })
}

// A node that is to be left out, by its label or by an autoscaler's taint, leaves the router's routes, and comes back when that
// goes, while 500 connections a second are opened. Each is made: the node forwards for as long as
// the router may send there. One that is open at the very moment when the router spreads flows anew
// may come to a node that does not know it, as ever with ECMP.
func TestANodeIsLeftOutOfBGP(t *testing.T) {
	c := cluster(t)
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{local, everyone} {
		t.Run(string(policy), func(t *testing.T) {
			vips := expose(t, c, product.WebService(webs, "left-out-"+strings.ToLower(string(policy)), "bgp", policy, corev1.IPv4Protocol, corev1.IPv6Protocol))
			reach := func(hops int) {
				t.Helper()
				for _, vip := range vips {
					eventually(t, soon, func(context.Context) error { return nextHops(c, vip, hops) })
				}
			}
			reach(3)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			counts := make([]chan tally, len(vips))
			for i, vip := range vips {
				reply(t, c.Client, vip)
				counts[i] = make(chan tally, 1)
				go func() { counts[i] <- flood(ctx, c.Client, vip, 80, rushEach) }()
			}
			changes := 0
			for i, n := range c.Nodes() {
				back := leaveOut(t, c, n, []mark{byOperator, byAutoscaler}[i%2])
				reach(2)
				back()
				reach(3)
				changes += 2
			}
			stop()
			for i, vip := range vips {
				count := <-counts[i]
				t.Logf("%s: %d served, %d failed, %d held up, longest time without a reply %v; errors %v",
					vip, count.OK, count.Failed, count.Held, count.Longest, count.Errors)
				if moments := moments(count.Cut); count.OK < 100 || count.Failed > len(count.Cut) || moments > changes {
					t.Errorf("%s: of %d connections %d failed, %d of them after they were made, at %d moments; the router spread flows anew %d times",
						vip, count.OK+count.Failed, count.Failed, len(count.Cut), moments, changes)
				}
			}
		})
	}
}

// The speaker forwards in place of kube-proxy: ClusterIP by name from a pod, NodePort
// from outside, UDP, and refusal where there are no endpoints.
func TestForwardingInPlaceOfKubeProxy(t *testing.T) {
	c := cluster(t)
	s := product.WebService(webs, "all-ways", "layer2", everyone)
	vip := expose(t, c, s)[0]
	reply(t, c.Client, vip)

	var now corev1.Service
	if err := c.API.Get(t.Context(), key(s), &now); err != nil {
		t.Fatal(err)
	}
	nodePort := uint16(now.Spec.Ports[0].NodePort)
	clusterIP := netip.MustParseAddr(now.Spec.ClusterIP)
	for _, n := range c.Nodes() {
		// Each node learns of the Service by itself: that one answers says nothing of the others.
		answers(t, "NodePort on "+n.Name, c.Client, n.Main(), nodePort)
		answers(t, "ClusterIP from "+n.Name, n.Machine, clusterIP, 80)
		answers(t, "VIP from "+n.Name, n.Machine, vip, 80)
	}
	eventually(t, soon, func(ctx context.Context) error { // names resolve as soon as CoreDNS is ready
		out, err := c.Kubectl(ctx, "-n", webs, "exec", "daemonset/web", "--", "curl", "-sS", "-m", "2", "http://all-ways.webs.svc.cluster.local/hostname")
		if err == nil && !strings.HasPrefix(out, "web-") {
			err = fmt.Errorf("a pod asked by name and got %q", out)
		}
		return err
	})
	eventually(t, soon, func(ctx context.Context) error { // a datagram may be lost
		got, err := askUDP(ctx, c, vip)
		if err == nil && !strings.HasPrefix(got, "web-") {
			err = fmt.Errorf("asked by UDP and got %q", got)
		}
		return err
	})
	for _, n := range c.Nodes() {
		rules, err := n.Exec(within(t, soon), map[bool]string{true: "iptables-save", false: "ip6tables-save"}[vip.Is4()])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(rules, "KUBE-SVC") || !strings.Contains(rules, "FAIRLEAD-") {
			t.Errorf("%s: somebody else forwards, or nobody does", n.Name)
		}
	}
}

// answers fails the test if nobody replies at that address soon.
func answers(t *testing.T, what string, from *lab.Machine, address netip.Addr, port uint16) {
	t.Helper()
	if _, err := product.FirstReply(within(t, soon), from, address, port); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// askUDP sends "hostname" to the web server's UDP port and waits a second for the reply.
func askUDP(ctx context.Context, c *product.Cluster, vip netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := c.Client.Dial(ctx, "udp", netip.AddrPortFrom(vip, 81).String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("hostname\n")); err != nil {
		return "", err
	}
	buffer := make([]byte, 256)
	n, err := conn.Read(buffer)
	return string(buffer[:n]), err
}

// A Service without endpoints refuses at once: a client must not wait for a timeout.
func TestNoEndpointsRefuses(t *testing.T) {
	c := cluster(t)
	s := product.WebService(webs, "empty", "layer2", everyone)
	s.Spec.Selector = map[string]string{"app": "nobody"}
	expose(t, c, s)
	var now corev1.Service
	if err := c.API.Get(t.Context(), key(s), &now); err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]struct {
		from string
		addr netip.AddrPort
	}{
		"ClusterIP from a node":    {"node1", netip.AddrPortFrom(netip.MustParseAddr(now.Spec.ClusterIP), 80)},
		"NodePort from the client": {"client", netip.AddrPortFrom(c.Node(1).Main(), uint16(now.Spec.Ports[0].NodePort))},
	} {
		from, err := c.Machine(at.from)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, soon, func(ctx context.Context) error {
			one, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			conn, err := from.Dial(one, "tcp", at.addr.String())
			if err == nil {
				_ = conn.Close()
				return fmt.Errorf("%s: somebody answered", what)
			}
			if !strings.Contains(err.Error(), "refused") {
				return fmt.Errorf("%s: %w, want to be refused", what, err)
			}
			return nil
		})
	}
}
