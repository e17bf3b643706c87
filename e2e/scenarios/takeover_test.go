package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// clock is how the log tells when something was: as the logs of the speakers do.
const clock = "15:04:05.000"

// flows are what goes on while who forwards changes: connections and UDP flows that last,
// and new ones all the time, of both families, from outside, from a node and from a pod.
type flows struct {
	t      *testing.T
	c      *product.Cluster
	ctx    context.Context
	stop   func()
	counts map[string]chan tally
	held   map[string]chan error
}

func begin(t *testing.T, c *product.Cluster) *flows {
	recordRouter(t, c)
	ctx, stop := context.WithCancel(t.Context())
	return &flows{t: t, c: c, ctx: ctx, stop: stop, counts: map[string]chan tally{}, held: map[string]chan error{}}
}

// recordRouter tells, of a test that fails, what became of the router's routes, next hops and
// neighbours meanwhile, and of its sessions: whatever changes there spreads connections anew.
func recordRouter(t *testing.T, c *product.Cluster) {
	var notices string
	var recording sync.WaitGroup
	recording.Go(func() {
		notices, _ = c.Router.Exec(t.Context(), "ip", "-timestamp", "monitor", "route", "nexthop", "neigh") // which the end of the test ends
	})
	t.Cleanup(func() {
		recording.Wait()
		if !t.Failed() {
			return
		}
		t.Log(notices)
	})
}

// trickle counts what becomes of one question after another.
func (f *flows) trickle(name string, ask func(ctx context.Context) error) {
	eventually(f.t, patience, func(ctx context.Context) error { // its own way is there
		if err := ask(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	count := make(chan tally, 1)
	f.counts[name] = count
	go func() { count <- trickle(f.ctx, ask) }()
}

// from begins flows from a machine to the web server's TCP and UDP ports.
func (f *flows) from(name string, from *lab.Machine, tcp, udp netip.AddrPort) {
	f.t.Helper()
	f.trickle(name+", new connections", func(ctx context.Context) error { return askOverTCP(ctx, from, tcp) })
	f.trickle(name+", new UDP flows", func(ctx context.Context) error { return askOverUDP(ctx, from, udp) })
	ask, end, err := keepAskingUDP(f.ctx, from, udp)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = end() })
	f.trickle(name+", one UDP flow", ask)
	held := make(chan error, 1)
	f.held[name+", one connection"] = held
	go func() {
		replies, err := holdOpen(f.ctx, from, tcp.Addr(), tcp.Port())
		if err != nil {
			err = fmt.Errorf("%s: it ended after %d replies: %w", time.Now().Format(clock), replies, err)
		}
		held <- err
	}()
}

// fromPod begins flows from a pod.
func (f *flows) fromPod(name string, pod netip.Addr, tcp, udp netip.AddrPort) {
	f.t.Helper()
	f.trickle(name+", new connections", func(ctx context.Context) error { return askFromPod(ctx, f.c, pod, "http", tcp) })
	f.trickle(name+", new UDP flows", func(ctx context.Context) error { return askFromPod(ctx, f.c, pod, "udp", udp) })
}

// end ends all, and fails the test if any was lost.
func (f *flows) end() {
	f.t.Helper()
	f.stop()
	var bad []error // told last: a long log may have nothing but its end
	for _, name := range slices.Sorted(maps.Keys(f.counts)) {
		count := <-f.counts[name]
		f.t.Logf("%s: %d served, %d lost, %d held up, the longest took %v", name, count.OK, count.Failed, count.Held, count.Longest)
		if count.OK < 100 {
			bad = append(bad, fmt.Errorf("%s: too few to tell", name))
		}
		if count.Failed > 0 {
			bad = append(bad, fmt.Errorf("%s: %d of %d are lost; they met %v", name, count.Failed, count.OK+count.Failed, count.Errors))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.held)) {
		if err := <-f.held[name]; err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, err := range bad {
		f.t.Error(err)
	}
}

// takeovers is an environment variable: with "all", each mode of kube-proxy and each of ours
// take over from each other.
const takeovers = "FAIRLEAD_TAKEOVERS"

// A user who comes from kube-proxy, or goes back to it, loses no connection, old or new: the
// commands of docs/replacing-kube-proxy.md are run as they stand there, with kube-proxy as
// the DaemonSet that kubeadm makes of it. A node that goes from one to the other also
// changes the mode of our own.
func TestKubeProxyIsReplacedAndComesBack(t *testing.T) {
	c := cluster(t)
	if err := lab.Built(lab.Proxy); err != nil {
		t.Skip(err)
	}
	page := readProxyPage(t, c)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := errors.Join(c.Install(ctx, 3), c.UninstallProxy(ctx)); err != nil {
			t.Error(err)
		}
	})
	ways := []struct{ theirs, ours string }{{"iptables", "nftables"}, {"nftables", "iptables"}}
	if os.Getenv(takeovers) == "all" {
		ways = append(ways, struct{ theirs, ours string }{"iptables", "iptables"}, struct{ theirs, ours string }{"nftables", "nftables"})
	}
	// All nodes at once: that one after another is nothing else is what an upgrade shows.
	if err := c.Install(within(t, 5*time.Minute), 3, "speaker.updateStrategy.maxUnavailable=100%"); err != nil {
		t.Fatal(err)
	}
	s := product.WebService(webs, "taken-over", "bgp", everyone, corev1.IPv4Protocol, corev1.IPv6Protocol)
	vips := expose(t, c, s)
	if err := c.API.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	for _, way := range ways {
		t.Run(way.theirs+" and "+way.ours, func(t *testing.T) {
			f := begin(t, c)
			defer f.stop()
			f.toAll(s, vips)
			if err := c.InstallProxy(within(t, 2*time.Minute), way.theirs); err != nil {
				t.Fatal(err)
			}
			page.run(t, "Back to kube-proxy", 0, "")
			eventually(t, patience, func(ctx context.Context) error { return toldOfOtherProxy(ctx, c) })
			page.run(t, "Back to kube-proxy", 1, "")
			eventually(t, patience, func(ctx context.Context) error { return rulesOfOurs(ctx, c, "") })
			page.run(t, "Back to kube-proxy", 2, "")
			page.run(t, "From kube-proxy to Fairlead", 1, way.ours)
			eventually(t, patience, func(ctx context.Context) error { return rulesOfOurs(ctx, c, way.ours) })
			page.run(t, "From kube-proxy to Fairlead", 2, "")
			eventually(t, patience, func(ctx context.Context) error { return noProxyRuns(ctx, c) })
			page.runOnNodes(t, "From kube-proxy to Fairlead", 3)
			f.end()
		})
	}
}

// toAll begins flows to every kind of address of a Service.
func (f *flows) toAll(s *corev1.Service, vips []netip.Addr) {
	f.t.Helper()
	node := f.c.Node(2)
	var pods corev1.PodList
	if err := f.c.API.List(f.t.Context(), &pods, client.InNamespace(webs)); err != nil || len(pods.Items) == 0 {
		f.t.Fatalf("%d pods: %v", len(pods.Items), err)
	}
	tcp, udp := s.Spec.Ports[0], s.Spec.Ports[1]
	for i, family := range s.Spec.IPFamilies {
		of := func(what string) string { return fmt.Sprintf("%s, %s", what, family) }
		at := netip.AddrPortFrom
		nodeIP, clusterIP := []netip.Addr{node.IPv4, node.IPv6}[i], netip.MustParseAddr(s.Spec.ClusterIPs[i])
		pod := netip.MustParseAddr(pods.Items[0].Status.PodIPs[i].IP)
		f.from(of("from outside to the VIP"), f.c.Client, at(vips[i], uint16(tcp.Port)), at(vips[i], uint16(udp.Port)))
		f.from(of("from outside to a NodePort"), f.c.Client, at(nodeIP, uint16(tcp.NodePort)), at(nodeIP, uint16(udp.NodePort)))
		f.from(of("from a node to the ClusterIP"), f.c.Node(1).Machine, at(clusterIP, uint16(tcp.Port)), at(clusterIP, uint16(udp.Port)))
		f.fromPod(of("from a pod to the ClusterIP"), pod, at(clusterIP, uint16(tcp.Port)), at(clusterIP, uint16(udp.Port)))
	}
}

// proxyPage is docs/replacing-kube-proxy.md: its commands by the headings.
type proxyPage struct {
	c        *product.Cluster
	commands map[string][]string
}

// commandsOf is a block of commands, or a heading.
var commandsOf = regexp.MustCompile("(?ms)^## ([^\n]+)$|^ *```sh\n(.*?)^ *```$")

func readProxyPage(t *testing.T, c *product.Cluster) proxyPage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Root, "docs", "replacing-kube-proxy.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := proxyPage{c: c, commands: map[string][]string{}}
	heading := ""
	for _, found := range commandsOf.FindAllStringSubmatch(string(text), -1) {
		if found[1] != "" {
			heading = found[1]
			continue
		}
		page.commands[heading] = append(page.commands[heading], found[2])
	}
	return page
}

// block is one of the blocks below a heading, from 0.
func (p proxyPage) block(t *testing.T, heading string, n int) string {
	t.Helper()
	all := p.commands[heading]
	if n >= len(all) {
		t.Fatalf("the page has %d blocks of commands below %q, want %d or more", len(all), heading, n+1)
	}
	return all[n]
}

// shell runs a script as the administrator would type it: in that directory, with the lab's kubectl, and with
// what is in the other directories. It stops at the first command that fails.
func shell(ctx context.Context, c *product.Cluster, dir, script string, programs ...string) (string, error) {
	path := slices.Concat([]string{lab.Programs()}, programs, []string{os.Getenv("PATH")})
	return c.ControlPlane.Exec(ctx, "env", "--chdir="+dir, "KUBECONFIG="+c.Kubeconfig(), "PATH="+strings.Join(path, ":"), "sh", "-euc", script)
}

// run runs a block where the checkout is, with the mode in place of the page's unless it is "".
func (p proxyPage) run(t *testing.T, heading string, n int, mode string) {
	t.Helper()
	commands := p.block(t, heading, n)
	if mode != "" {
		const pages = "forwarding.mode=iptables"
		if !strings.Contains(commands, pages) {
			t.Fatalf("block %d below %q does not set %s", n, heading, pages)
		}
		commands = strings.ReplaceAll(commands, pages, "forwarding.mode="+mode)
	}
	began := time.Now()
	script := fmt.Sprintf("export HELM_CACHE_HOME=%[1]s HELM_CONFIG_HOME=%[1]s HELM_DATA_HOME=%[1]s\nhelm() { helm3 \"$@\"; }\n%[2]s", t.TempDir(), commands)
	out, err := shell(within(t, 5*time.Minute), p.c, p.c.Root, script)
	if err != nil {
		t.Fatalf("block %d below %q: %v\n%s", n, heading, err, out)
	}
	t.Logf("%s: block %d below %q, %v", began.Format(clock), n, heading, time.Since(began).Round(time.Millisecond))
}

// runOnNodes runs a block on each node.
func (p proxyPage) runOnNodes(t *testing.T, heading string, n int) {
	t.Helper()
	image, err := p.c.Kubectl(within(t, soon), "-n", "kube-system", "get", "daemonset", "kube-proxy", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, node := range p.c.Nodes() {
		if out, err := node.Exec(within(t, 2*time.Minute), "env", "IMAGE="+image, "sh", "-euc", p.block(t, heading, n)); err != nil {
			t.Fatalf("block %d below %q: %v\n%s", n, heading, err, out)
		}
	}
	t.Logf("%s: block %d below %q, on all nodes, %v", began.Format(clock), n, heading, time.Since(began).Round(time.Millisecond))
}

// noProxyRuns tells whether kube-proxy's pods are gone.
func noProxyRuns(ctx context.Context, c *product.Cluster) error {
	var pods corev1.PodList
	if err := c.API.List(ctx, &pods, client.MatchingLabels{"k8s-app": "kube-proxy"}); err != nil {
		return err
	}
	if len(pods.Items) > 0 {
		return fmt.Errorf("%d pods of kube-proxy are there", len(pods.Items))
	}
	return nil
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

// rulesOfOurs tells whether our rules on every node are those of a mode, "" for none.
func rulesOfOurs(ctx context.Context, c *product.Cluster, mode string) error {
	const look = `iptables-nft-save -t nat; ip6tables-nft-save -t nat; iptables-legacy-save -t nat 2>/dev/null || true; nft list tables`
	for _, n := range c.Nodes() {
		out, err := n.Exec(ctx, "sh", "-c", look)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", n.Name, err, out)
		}
		for of, sign := range map[string]string{"iptables": "FAIRLEAD-DISPATCH", "nftables": " fairlead\n"} {
			if has := strings.Contains(out, sign); has != (of == mode) {
				return fmt.Errorf("%s: rules of ours in mode %s are there: %t, want those of mode %q", n.Name, of, has, mode)
			}
		}
	}
	return nil
}
