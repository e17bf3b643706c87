package failover

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// contestant is one load balancer with its service proxy.
type contestant struct {
	name    string
	proxy   string // the kube-proxy of the lab; "": none
	bfd     bool   // it does BFD
	install func(ctx context.Context, c *product.Cluster) error
	// The DaemonSet that announces, and what its processes are called, for pkill -f; and those of
	// FRR where FRR speaks BGP for it. That has one session with an address, whatever the port.
	namespace, daemon, processes, frrDaemon, frr string
	// The API group of its kinds, the version of its BGPPeers, and the namespace in their metadata.
	group, peerVersion, within string
}

func fairlead() contestant {
	return contestant{
		name: "fairlead", bfd: true, namespace: product.Namespace, daemon: "fairlead-speaker", processes: "^/usr/local/bin/speaker",
		group: "fairlead.dev", peerVersion: "v1beta1",
		install: func(ctx context.Context, c *product.Cluster) error {
			// Here one node dies again and again.
			if err := errors.Join(c.LoadImage(ctx), c.Install(ctx, 3, "speaker.hello.damping=0s")); err != nil {
				return err
			}
			if err := c.Sample(ctx, "pool.yaml", "l2advertisement.yaml", "bgpadvertisement.yaml", "bgppeer.yaml"); err != nil {
				return err
			}
			// To all peers: there will be others.
			_, err := c.Kubectl(ctx, "patch", "bgpadvertisement.fairlead.dev", "bgp", "--type=merge", "-p", `{"spec":{"peers":null}}`)
			return err
		},
	}
}

// metallb is MetalLB as one of its manifests installs it.
func metallb(name, objects string, install func(l *lab.Lab, ctx context.Context) error) contestant {
	return contestant{
		name: name, proxy: "iptables", namespace: lab.MetalLBNamespace, daemon: "speaker", processes: "^/metallb-speaker",
		group: "metallb.io", peerVersion: "v1beta2", within: ", namespace: metallb-system",
		install: func(ctx context.Context, c *product.Cluster) error {
			if err := install(c.Lab, ctx); err != nil {
				return err
			}
			// Its webhooks are ready a little later than it is.
			return lab.Until(ctx, func() error { return c.Apply(ctx, objects) })
		},
	}
}

func native() contestant { return metallb("metallb", metallbObjects, (*lab.Lab).InstallMetalLB) }

// withFRR is MetalLB in its default mode. By default FRR tries again only every two minutes to connect; what is
// measured does not depend on that, but each pulled cable would take so long.
func withFRR() contestant {
	c := metallb("metallb-frr-k8s", strings.Replace(metallbObjects, "holdTime: 9s", "holdTime: 9s, connectTime: 5s", 1), (*lab.Lab).InstallMetalLBWithFRR)
	c.bfd, c.frrDaemon, c.frr = true, "frr-k8s-daemon", "^/usr/lib/frr/(watchfrr|zebra|bgpd|bfdd|staticd) "
	return c
}

// metallbObjects are what our samples say, in MetalLB's kinds. A keepalive time is refused in its
// native mode.
const metallbObjects = `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: layer2, namespace: metallb-system}
spec: {addresses: [172.30.200.10-172.30.200.99]}
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: bgp, namespace: metallb-system}
spec: {addresses: [203.0.113.0/24], autoAssign: false, avoidBuggyIPs: true}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: layer2, namespace: metallb-system}
spec: {ipAddressPools: [layer2]}
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: bgp, namespace: metallb-system}
spec: {ipAddressPools: [bgp]}
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: router, namespace: metallb-system}
spec: {myASN: 64500, peerASN: 64512, peerAddress: 172.30.0.200, holdTime: 9s}
`

// object is the manifest of an object of the contestant's kinds.
func (c contestant) object(version, kind, name, spec string) string {
	return fmt.Sprintf("---\n{apiVersion: %s/%s, kind: %s, metadata: {name: %s%s}, spec: {%s}}\n", c.group, version, kind, name, c.within, spec)
}

// namespace is where the web servers that are asked run.
const namespace = "failover"

// bench takes the figures of one contestant.
type bench struct {
	contestant
	Options
	dir     string // for what lasts as long as the bench
	results *figures.Results
	tell    func(format string, args ...any)
	*product.Cluster
}

// run brings up a lab with the contestant, takes its figures, and takes the lab down.
func (b *bench) run(ctx context.Context) (err error) {
	b.Cluster, err = product.Up(ctx, lab.Options{
		Proxy: b.proxy, BFD: true, ManyServices: b.title == BGP().title && b.Many > 0, Progress: os.Stderr,
	}, b.parts...)
	if err != nil {
		return err
	}
	installing, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not installed within 10 minutes"))
	defer cancel()
	if err := errors.Join(b.install(installing, b.Cluster), b.DeployWeb(installing, namespace)); err != nil {
		return err
	}
	b.tell("installed")
	if err := b.take(ctx, b); err != nil {
		return err
	}
	return lab.Down(ctx)
}

// add takes in one figure and tells it.
func (b *bench) add(m measure, value float64) {
	b.results.Add(b.name, 0, m, value)
	b.tell("%s: %.1f", m, value)
}

// took is add for a time.
func (b *bench) took(m measure, d time.Duration) { b.add(m, figures.Milliseconds(d)) }

// service is a Service of the web servers that asks both contestants for the pool.
func (b *bench) service(name, pool string, policy corev1.ServiceExternalTrafficPolicy) *corev1.Service {
	s := product.WebService(namespace, name, pool, policy, corev1.IPv4Protocol)
	s.Annotations["metallb.io/address-pool"] = pool
	return s
}

// given creates a Service, and gives its address and when a watch showed it.
func (b *bench) given(ctx context.Context, s *corev1.Service) (vip netip.Addr, at time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no address within a minute"))
	defer cancel()
	seen, err := b.API.Watch(ctx, &corev1.ServiceList{}, client.InNamespace(namespace))
	if err != nil {
		return vip, at, err
	}
	defer seen.Stop()
	if err := b.API.Create(ctx, s); err != nil {
		return vip, at, err
	}
	for event := range seen.ResultChan() {
		if now, ok := event.Object.(*corev1.Service); ok && now.Name == s.Name && len(now.Status.LoadBalancer.Ingress) > 0 {
			vip, err := netip.ParseAddr(now.Status.LoadBalancer.Ingress[0].IP)
			return vip, time.Now(), err
		}
	}
	return vip, at, fmt.Errorf("%s: %w", s.Name, context.Cause(ctx))
}

// processesOf returns the numbers of those processes of a node whose command line matches. It is an error if there
// is none.
func processesOf(ctx context.Context, n *lab.Node, pattern string) ([]string, error) {
	out, err := n.Exec(ctx, "pgrep", "-f", pattern)
	return strings.Fields(out), err
}

// signal sends a signal to those processes of a node whose command line matches.
func signal(ctx context.Context, n *lab.Node, name, pattern string) error {
	processes, err := processesOf(ctx, n, pattern)
	if err != nil {
		return err
	}
	_, err = n.Exec(ctx, append([]string{"kill", "-s", name, "--"}, processes...)...)
	return err
}

// killing ends all processes of a node whose command line matches.
func killing(ctx context.Context, n *lab.Node, pattern string) func() error {
	return func() error { return signal(ctx, n, "KILL", pattern) }
}

// daemons are the DaemonSets that announce.
func (b *bench) daemons() []string {
	if b.frrDaemon == "" {
		return []string{b.daemon}
	}
	return []string{b.daemon, b.frrDaemon}
}

// ready waits until what announces is ready on every node.
func (b *bench) ready(ctx context.Context) error {
	for _, daemon := range b.daemons() {
		if _, err := b.Kubectl(ctx, "-n", b.namespace, "rollout", "status", "daemonset/"+daemon, "--timeout=5m"); err != nil {
			return err
		}
	}
	return nil
}

// restart restarts what announces, one node after another, and waits until it is ready.
func (b *bench) restart(ctx context.Context) error {
	for _, daemon := range b.daemons() {
		if _, err := b.Kubectl(ctx, "-n", b.namespace, "rollout", "restart", "daemonset/"+daemon); err != nil {
			return err
		}
	}
	return b.ready(ctx)
}
