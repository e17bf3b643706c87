package released

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
	"fairlead.dev/fairlead/e2e/product"
)

// TestReleases publishes two releases, installs the first by the commands of the quick start, beside kube-proxy and in
// place of it, and upgrades it to the second and back.
func TestReleases(t *testing.T) {
	before, after := versions(t)
	old, next := checkout(t, before), checkout(t, after)
	for _, dir := range []string{old, next} {
		run(t, dir, "make", "release", "REGISTRY="+ours+"/team", architecture)
	}
	page, s := quickStart(t, old), newSite(t)
	for _, s.dir = range []string{next, old} {
		s.must(t, page.commands["From a registry"][0][1])
	}

	install := page.commands["From a registry"]
	s.firstService(t, page, install[1])
	s.must(t, "helm uninstall fairlead --namespace fairlead-system --wait")
	if err := s.StopProxy(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Nodes() { // so that it is pulled again
		if _, err := n.Exec(within(t, soon), "ctr", "--namespace=k8s.io", "images", "rm", image(before)); err != nil {
			t.Fatal(err)
		}
	}
	s.firstService(t, page, install[2])
	s.upgrade(t, before, after)
}

// versions are the one that is released now, and the minor version after it.
func versions(t *testing.T) (now, next string) {
	t.Helper()
	root, err := lab.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(text), "%d.%d.", &major, &minor); err != nil {
		t.Fatalf("VERSION is %q: %v", text, err)
	}
	return strings.TrimSpace(string(text)), fmt.Sprintf("%d.%d.0", major, minor+1)
}

// image is the name by which nodes know the image of a version.
func image(version string) string { return ours + "/team/fairlead:" + version }

// quickStartPage has the blocks of commands below each heading, each a list of commands, and the pool on a LAN.
type quickStartPage struct {
	commands map[string][][]string
	pool     string
}

func quickStart(t *testing.T, root string) quickStartPage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/install/quick-start.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := quickStartPage{commands: map[string][][]string{}}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		for _, block := range regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(body, -1) {
			joined := strings.ReplaceAll(block, "\\\n", " ")
			page.commands[heading] = append(page.commands[heading], strings.Split(strings.TrimSpace(joined), "\n"))
		}
		if yaml := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(body); yaml != nil && heading == "A pool" {
			page.pool = strings.ReplaceAll(yaml[1], "192.168.1.240-192.168.1.250", "172.30.200.150-172.30.200.159")
		}
	}
	if n := len(page.commands["From a registry"]); n != 3 || !strings.Contains(page.pool, "172.30.200.150") || len(page.commands["A Service"]) != 1 {
		t.Fatalf("the page has %d blocks of commands about a registry, or no pool, or no Service: %v", n, page.commands)
	}
	return page
}

// firstService installs by these commands and goes on by those of the page until a request is served. It undoes all
// but the installation.
func (s site) firstService(t *testing.T, page quickStartPage, install []string) {
	t.Helper()
	began := time.Now()
	pool := filepath.Join(t.TempDir(), "pool.yaml")
	if err := os.WriteFile(pool, []byte(page.pool), 0o644); err != nil {
		t.Fatal(err)
	}
	rest := page.commands["A Service"][0]
	last := len(rest) - 1
	commands := slices.Concat(install, []string{"kubectl apply -f " + pool}, rest[:last])
	for _, command := range commands {
		s.must(t, command)
	}
	var answer string
	err := lab.Until(within(t, patience), func() (err error) {
		answer, err = s.try(t.Context(), rest[last])
		return err
	})
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d commands from a published release to %q, in %v", len(commands)+1, answer, took.Round(time.Millisecond))
	if took > 5*time.Minute {
		t.Errorf("it took %v", took)
	}
	if err := s.WaitInstalled(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	s.must(t, "kubectl delete service/web deployment/web\nkubectl delete -f "+pool)
}

// upgrade goes from the release that is installed to the next and back, with the controller before the speakers and
// then behind them, under 500 new connections a second. None is lost, no address moves and no route goes.
func (s site) upgrade(t *testing.T, before, after string) {
	if err := s.Sample(within(t, soon), "pool.yaml", "l2advertisement.yaml", "bgpadvertisement.yaml", "bgppeer.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeployWeb(within(t, patience), "webs"); err != nil {
		t.Fatal(err)
	}
	const every, longest = 8 * time.Millisecond, 8 * time.Second
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	onLAN, routed := s.serve(t, "layer2", "layer2", both...), s.serve(t, "bgp", "bgp", both...)
	owners := map[netip.Addr]*lab.Node{}
	for _, vip := range onLAN {
		owner, err := s.Answerer(within(t, soon), vip)
		if err != nil {
			t.Fatal(err)
		}
		owners[vip] = owner
	}
	for _, vip := range routed {
		if err := lab.Until(within(t, soon), func() error { return s.routed(vip) }); err != nil {
			t.Fatal(err)
		}
	}
	vips := slices.Concat(onLAN, routed)
	stalls := probe.WatchStalls()
	defer stalls.Stop()
	var asked []*probe.Probe
	for _, vip := range vips {
		asked = append(asked, probe.Start(t.Context(), every, longest, func(ctx context.Context) error {
			began := time.Now()
			err := s.ask(ctx, vip)
			if err != nil && stalls.Since(began) {
				err = nil // that says nothing of the Service
			}
			return err
		}))
	}
	ended, moved := make(chan struct{}), make(chan []error, 1)
	go func() { moved <- s.watch(ended, owners, routed, stalls) }()

	const command = "helm upgrade fairlead oci://" + theirs + "/charts/fairlead --namespace fairlead-system --reset-then-reuse-values" +
		" --set speaker.updateStrategy.type="
	for i, step := range []struct{ name, command, controller, speaker string }{
		{"the controller goes ahead", command + "OnDelete --version " + after, after, before},
		{"the speakers follow", command + "RollingUpdate --version " + after, after, after},
		{"the controller goes back", command + "OnDelete --version " + before, before, after},
		{"all is rolled back", "helm rollback fairlead 1 --namespace fairlead-system", before, before},
	} {
		began := time.Now()
		s.must(t, step.command)
		s.runs(t, "controller", step.controller)
		s.runs(t, "speaker", step.speaker)
		s.serve(t, fmt.Sprintf("step-%d", i), "layer2")
		t.Logf("%s: %v", step.name, time.Since(began).Round(time.Millisecond))
	}

	close(ended)
	if errs := <-moved; errs != nil {
		t.Error(errors.Join(errs...))
	}
	for i, p := range asked {
		all := p.End()
		t.Logf("%s: %d questions, %d lost, longest gap %v", vips[i], len(all), probe.Lost(all), probe.Gap(all))
		if len(all) < 1000 || probe.Lost(all) > 0 {
			t.Errorf("%s: %d of %d new connections were lost", vips[i], probe.Lost(all), len(all))
		}
	}
}

// serve creates a Service in a pool and waits until it is served at all of its addresses.
func (s site) serve(t *testing.T, name, pool string, families ...corev1.IPFamily) (vips []netip.Addr) {
	t.Helper()
	service := product.WebService("webs", name, pool, corev1.ServiceExternalTrafficPolicyLocal, families...)
	if err := s.API.Create(within(t, soon), service); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(within(t, soon), func() (err error) {
		vips, err = s.Addresses(t.Context(), client.ObjectKeyFromObject(service), max(1, len(families)))
		return err
	})
	for _, vip := range vips {
		if err == nil {
			_, err = product.FirstReply(within(t, soon), s.Client, vip, 80)
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return vips
}

// routed is an error if the router has not got a route by each node.
func (s site) routed(vip netip.Addr) error {
	hops, err := s.Router.Routes(netip.PrefixFrom(vip, vip.BitLen()))
	if err == nil && len(hops) != len(s.Nodes()) {
		err = fmt.Errorf("the router has %s by %v alone", vip, hops)
	}
	return err
}

// watch returns what was wrong until the end: another node that answers for an address on the LAN, or a route that
// went. On a machine that was held up, as by much else, nodes may have been silent for longer than others wait.
func (s site) watch(ended <-chan struct{}, owners map[netip.Addr]*lab.Node, routed []netip.Addr, stalls *probe.Stalls) (wrong []error) {
	const aftermath = 10 * time.Second
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-ended:
			return wrong
		case <-ticks.C:
		}
		var now []error
		for _, vip := range routed {
			now = append(now, s.routed(vip))
		}
		for vip, owner := range owners {
			if other, err := s.Neighbor(context.Background(), vip); err == nil && other != owner {
				now = append(now, fmt.Errorf("%s: %s answers for %s, and %s did", time.Now().Format(time.TimeOnly), other.Name, vip, owner.Name))
			}
		}
		if errors.Join(now...) != nil && !stalls.Since(time.Now().Add(-aftermath)) {
			wrong = append(wrong, now...)
		}
	}
}

// runs waits until all pods of a component run that version and are ready.
func (s site) runs(t *testing.T, component, version string) {
	t.Helper()
	want, ctx := image(version), within(t, patience)
	err := lab.Until(ctx, func() error {
		var pods corev1.PodList
		err := s.API.List(ctx, &pods, client.InNamespace(product.Namespace), client.MatchingLabels{"app.kubernetes.io/component": component})
		if err == nil && len(pods.Items) == 0 {
			err = fmt.Errorf("there is no %s", component)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if image := pod.Spec.Containers[0].Image; image != want || !ready || pod.DeletionTimestamp != nil {
				err = fmt.Errorf("%s has %s, ready %v; want %s", pod.Name, image, ready, want)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ask asks over a connection of its own, which ends with a reset, as the client would run out of ports if each rested
// for a minute.
func (s site) ask(ctx context.Context, vip netip.Addr) error {
	over := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.Client.Dial(ctx, network, address)
		if tcp, is := conn.(*net.TCPConn); is {
			err = errors.Join(err, tcp.SetLinger(0))
		}
		return conn, err
	}}
	_, err := lab.Get(ctx, &http.Client{Transport: over}, "http://"+netip.AddrPortFrom(vip, 80).String()+"/hostname")
	return err
}
