package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// theirs is what a user of MetalLB has: what the samples say, in MetalLB's kinds.
const theirs = `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: lan, namespace: metallb-system}
spec: {addresses: [172.30.200.100-172.30.200.119, "fd00:30::200:100-fd00:30::200:119"]}
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: routed, namespace: metallb-system}
spec: {addresses: [203.0.113.192/27], autoAssign: false}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: lan, namespace: metallb-system}
spec: {ipAddressPools: [lan]}
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: routed, namespace: metallb-system}
spec: {ipAddressPools: [routed], peers: [tor]}
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: tor, namespace: metallb-system}
spec: {myASN: 64500, peerASN: 64512, peerAddress: 172.30.0.200, holdTime: 9s}
`

// A user of MetalLB comes to Fairlead, and goes back: the commands of
// docs/migrating-from-metallb.md are run as they stand there, in a cluster in which the
// real MetalLB announces and kube-proxy forwards. Every Service keeps its address, and who
// asks goes on getting replies, by layer 2 and by BGP; what is under way while traffic
// changes to another node may break, since that node does not know the connection.
func TestMetalLBIsReplacedAndComesBack(t *testing.T) {
	c := cluster(t)
	if err := lab.Built(lab.MetalLB); err != nil {
		t.Skip(err)
	}
	becomeTheirs(t, c)
	page := readPage(t, c)
	services := []*corev1.Service{
		theirService("by-layer2", "lan"), theirService("by-bgp", "routed"),
		theirService("both-families", "lan", corev1.IPv4Protocol, corev1.IPv6Protocol),
	}
	given := map[string][]netip.Addr{}
	for _, s := range services {
		given[s.Name] = expose(t, c, s)
		for _, vip := range given[s.Name] {
			reply(t, c.Client, vip)
		}
	}
	kept := func(when string) {
		t.Helper()
		for _, s := range services {
			now, err := c.Addresses(within(t, soon), client.ObjectKeyFromObject(s), 1)
			if err != nil || !slices.Equal(now, given[s.Name]) {
				t.Errorf("%s: %s has %v (%v), had %v", when, s.Name, now, err, given[s.Name])
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	counts := map[string]chan tally{}
	for _, s := range services {
		for _, vip := range given[s.Name] {
			name, count := fmt.Sprintf("%s at %s", s.Name, vip), make(chan tally, 1)
			counts[name] = count
			go func() { count <- load(ctx, c.Client, vip, 80) }()
		}
	}

	page.step(t, "Translate")
	page.step(t, "Save")
	page.step(t, "Stop MetalLB's controller")
	if err := c.Install(within(t, 5*time.Minute), 3, "forwarding.mode=none", "speaker.boundedLoad=false"); err != nil {
		t.Fatal(err)
	}
	page.step(t, "Apply")
	page.step(t, "Compare")
	kept("with Fairlead's controller")
	page.step(t, "Prepare")
	for _, n := range c.Nodes() {
		page.step(t, "Node by node", "NODE="+n.Name)
		eventually(t, 2*time.Minute, func(ctx context.Context) error { return speaksTo(ctx, c, n, true) })
	}
	kept("without MetalLB")

	page.step(t, "Swap the controllers")
	page.step(t, "Prepare the way back")
	for _, n := range c.Nodes() {
		page.step(t, "Go back node by node", "NODE="+n.Name)
		eventually(t, 4*time.Minute, func(ctx context.Context) error { return speaksTo(ctx, c, n, false) })
	}
	uninstall(t, c)
	page.step(t, "Remove the label")
	kept("with MetalLB again")
	for _, s := range services {
		if err := c.API.Get(within(t, soon), client.ObjectKeyFromObject(s), s); err != nil || len(s.Status.Conditions) > 0 {
			t.Errorf("%s: MetalLB serves it, and Fairlead has left %v (%v)", s.Name, s.Status.Conditions, err)
		}
	}

	stop()
	for name, count := range counts {
		got := <-count
		t.Logf("%s: %d replies, %d failed, %d held up, longest wait %v; they met %v", name, got.OK, got.Failed, got.Held, got.Longest, got.Errors)
		if tooManyBut(got, 2*len(c.Nodes())) { // each node changes hands twice
			t.Errorf("%s: %d of %d requests failed; they met %v", name, got.Failed, got.OK+got.Failed, got.Errors)
		}
	}
}

// becomeTheirs makes the lab one in which MetalLB announces and kube-proxy forwards, and
// Fairlead was never there but for its CRDs. When the test ends it is as before.
func becomeTheirs(t *testing.T, c *product.Cluster) {
	t.Helper()
	kinds := []client.Object{&v1beta1.IPAddressPool{}, &v1beta1.L2Advertisement{}, &v1beta1.BGPAdvertisement{}, &v1beta1.BGPPeer{}}
	forget := func(ctx context.Context) {
		for _, kind := range kinds {
			if err := c.API.DeleteAllOf(ctx, kind); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		manifests, err := lab.MetalLBManifests()
		if err == nil { // MetalLB goes, and its objects
			_, err = c.Kubectl(ctx, "delete", "--ignore-not-found", "--timeout=3m", "-f", manifests)
		}
		if err != nil {
			t.Error(err)
		}
		forget(ctx)
		if _, err := c.Kubectl(ctx, "label", "nodes", "--all", "fairlead.dev/metallb-"); err != nil {
			t.Error(err)
		}
		for _, again := range []func() error{
			func() error { return c.Install(ctx, 3) },
			func() error { return c.StopProxy(ctx) },
			func() error {
				return c.Sample(ctx, "pool.yaml", "l2advertisement.yaml", "bgpadvertisement.yaml", "bgppeer.yaml")
			},
		} {
			if err := again(); err != nil {
				t.Error(err)
			}
		}
	})
	forget(within(t, time.Minute))
	if err := c.StartProxy(within(t, 3*time.Minute), "iptables"); err != nil {
		t.Fatal(err)
	}
	uninstall(t, c)
	if err := c.InstallMetalLB(within(t, 6*time.Minute)); err != nil {
		t.Fatal(err)
	}
	// Its webhooks are ready a little later than it is.
	eventually(t, 3*time.Minute, func(context.Context) error { return c.Apply(within(t, soon), theirs) })
}

// uninstall removes Fairlead as its users do, those too that forget --no-hooks on the way back to MetalLB.
func uninstall(t *testing.T, c *product.Cluster) {
	t.Helper()
	if _, err := c.Helm(within(t, 3*time.Minute), 3, "uninstall", product.Release, "--namespace", product.Namespace, "--wait"); err != nil {
		t.Fatal(err)
	}
}

// theirService asks for its pool as users of MetalLB do.
func theirService(name, pool string, families ...corev1.IPFamily) *corev1.Service {
	s := product.WebService(webs, name, pool, everyone, families...)
	s.Annotations = map[string]string{"metallb.io/address-pool": pool}
	return s
}

// speaksTo tells whether the router holds a session with the node's speaker, ours or
// MetalLB's, and has the node among the next hops.
func speaksTo(ctx context.Context, c *product.Cluster, n *lab.Node, ours bool) error {
	// Both speak from the node's address. Only one of the two pods is there.
	pods := &corev1.PodList{}
	if err := c.API.List(ctx, pods, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		switch mine := pod.Namespace == product.Namespace && strings.HasPrefix(pod.Name, "fairlead-speaker"); {
		case mine && !ours, pod.Namespace == lab.MetalLBNamespace && pod.Labels["component"] == "speaker" && ours:
			return fmt.Errorf("%s is still there", pod.Name)
		}
	}
	text, err := c.Router.VTYSH(ctx, "show bgp ipv4 unicast neighbors "+n.IPv4.String()+" routes")
	if err != nil {
		return err
	}
	if !strings.Contains(text, "203.0.113.") {
		return fmt.Errorf("%s announces nothing to the router: %s", n.Name, text)
	}
	return nil
}

// guide is the page that tells how to move, and where its commands are run.
type guide struct {
	cluster *product.Cluster
	steps   map[string]string // the commands by the first words of the step, in bold
	dir     string
}

// stepOf is a numbered step that begins with words in bold, with its one block of commands.
var stepOf = regexp.MustCompile("(?ms)^\\d+\\. \\*\\*([^*]+)\\*\\*(?:[^`]|`[^`])*?^ *```sh\n(.*?)^ *```$")

func readPage(t *testing.T, c *product.Cluster) guide {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Root, "docs", "migrating-from-metallb.md"))
	if err != nil {
		t.Fatal(err)
	}
	g := guide{cluster: c, steps: map[string]string{}, dir: t.TempDir()}
	for _, found := range stepOf.FindAllStringSubmatch(string(text), -1) {
		g.steps[found[1]] = found[2]
	}
	return g
}

// step runs the commands of a step, with these variables.
func (g guide) step(t *testing.T, name string, variables ...string) {
	t.Helper()
	commands, ok := g.steps[name]
	if !ok {
		t.Fatalf("the page has no step %q with commands", name)
	}
	t.Logf("%s: %s %s", time.Now().Format(clock), name, strings.Join(variables, " "))
	out, err := shell(within(t, 5*time.Minute), g.cluster, g.dir, strings.Join(append(variables, commands), "\n"), filepath.Join(g.cluster.Root, "bin"))
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
