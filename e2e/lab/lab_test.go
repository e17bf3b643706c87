package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// webManifest is a web server on every node behind a Service of both families.
const webManifest = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: ` + AgnhostImage + `
        args: [netexec, --http-port=8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
`

// TestLab starts a whole lab with the real kube-proxy, so that what fails is
// the lab and not Fairlead, uses every part of it and takes it down.
func TestLab(t *testing.T) {
	requireLab(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	down := func() {
		if err := Down(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("down: %v", err)
		}
	}
	t.Cleanup(down)
	Keep(t)
	l, err := Up(ctx, Options{Proxy: "iptables", BFD: true, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	mustApply(ctx, t, l, webManifest)
	if _, err := l.Kubectl(ctx, "rollout", "status", "daemonset/web", "--timeout=3m"); err != nil {
		t.Fatal(err)
	}

	t.Run("services", func(t *testing.T) { testServices(ctx, t, l) })
	t.Run("router", func(t *testing.T) { testRouter(ctx, t, l) })
	t.Run("capture", func(t *testing.T) { testCapture(ctx, t, l) })
	t.Run("load image", func(t *testing.T) { testLoadImage(ctx, t, l) })
	t.Run("helm", func(t *testing.T) { testHelm(ctx, t, l) })
	t.Run("cable", func(t *testing.T) { testCable(ctx, t, l) })
	t.Run("power", func(t *testing.T) { testPower(ctx, t, l) })
	t.Run("proxy", func(t *testing.T) { testProxy(ctx, t, l) })
	t.Run("commands", func(t *testing.T) { testCommands(ctx, t, l) })

	spaces := networkNamespaces(t)
	down()
	checkGone(t, spaces)
	down() // once more does nothing
}

func requireLab(t *testing.T) {
	t.Helper()
	if missing := Missing(); len(missing) > 0 {
		t.Skip(errors.Join(missing...))
	}
	if err := Built(Proxy, Helm3); err != nil {
		t.Skip(err)
	}
	if _, err := Open(); err == nil {
		t.Skip("a lab is up, and there can be one only: run lab down")
	}
}

func mustApply(ctx context.Context, t *testing.T, l *Lab, manifests string) {
	t.Helper()
	if err := l.Apply(ctx, manifests); err != nil {
		t.Fatal(err)
	}
}

// testServices reaches the web Service from a pod, a node and the client.
func testServices(ctx context.Context, t *testing.T, l *Lab) {
	out, err := l.Kubectl(ctx, "get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[*]}")
	if err != nil {
		t.Fatal(err)
	}
	clusterIPs := strings.Fields(out)
	if len(clusterIPs) != 2 {
		t.Fatalf("ClusterIPs = %q, want two", clusterIPs)
	}
	pod, err := l.Kubectl(ctx, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		t.Fatal(err)
	}
	curl := []string{"curl", "--silent", "--show-error", "--fail", "--max-time", "3"}
	from := map[string]func(url string) (string, error){
		"client": func(url string) (string, error) { return l.Client.Get(ctx, url) },
		"node":   func(url string) (string, error) { return l.Node(1).Exec(ctx, append(curl, url)...) },
		"pod": func(url string) (string, error) {
			return l.Kubectl(ctx, append(append([]string{"exec", pod, "--"}, curl...), url)...)
		},
	}
	nodePorts := []string{
		netip.AddrPortFrom(l.Node(2).IPv4, 30080).String(),
		netip.AddrPortFrom(l.Node(2).IPv6, 30080).String(),
	}
	for _, ip := range clusterIPs {
		service := netip.AddrPortFrom(netip.MustParseAddr(ip), 80).String()
		reachable(ctx, t, "pod", service, from["pod"])
		reachable(ctx, t, "node", service, from["node"])
	}
	for _, nodePort := range nodePorts {
		for who, get := range from {
			reachable(ctx, t, who, nodePort, get)
		}
	}
	reachable(ctx, t, "pod", "web.default.svc.cluster.local:80", from["pod"])
}

// reachable waits until a web pod answers: each kube-proxy learns of it by itself.
func reachable(ctx context.Context, t *testing.T, who, server string, get func(url string) (string, error)) {
	t.Helper()
	err := patiently(ctx, "the name of a web pod", func() error {
		body, err := get("http://" + server + "/hostname")
		if err == nil && !strings.HasPrefix(body, "web-") {
			err = fmt.Errorf("%q answers", body)
		}
		return err
	})
	if err != nil {
		t.Errorf("%s → %s: %v", who, server, err)
	}
}

func testRouter(ctx context.Context, t *testing.T, l *Lab) {
	running, err := l.Router.VTYSH(ctx, "show running-config")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"router bgp 64512", "remote-as 64500", "listen range fd00:30::/64", "nodes bfd"} {
		if !strings.Contains(running, want) {
			t.Errorf("the router's configuration lacks %q", want)
		}
	}
	for _, prefix := range []string{"203.0.113.7/32", "2001:db8:113::7/128"} {
		prefix := netip.MustParsePrefix(prefix)
		hops := []netip.Addr{l.Node(1).IPv4, l.Node(2).IPv4}
		if prefix.Addr().Is6() {
			hops = []netip.Addr{l.Node(1).IPv6, l.Node(2).IPv6}
		}
		_, err := l.Router.Exec(ctx, "ip", "route", "add", prefix.String(),
			"nexthop", "via", hops[0].String(), "nexthop", "via", hops[1].String())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := l.Router.Routes(prefix); err != nil || !slices.Equal(got, hops) {
			t.Errorf("Routes(%s) = %v, %v, want %v", prefix, got, err, hops)
		}
	}
	if got, err := l.Router.Routes(netip.MustParsePrefix("203.0.113.8/32")); err != nil || len(got) != 0 {
		t.Errorf("Routes to nowhere = %v, %v", got, err)
	}
}

func testCapture(ctx context.Context, t *testing.T, l *Lab) {
	capture, err := l.Client.Capture(ctx, "dst port 30080 and tcp[tcpflags] == tcp-syn")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := connect(ctx, l.Client, netip.AddrPortFrom(l.Node(1).IPv4, 30080), 30*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	// A SYN that is not answered within a second is sent again.
	asking := func() int {
		from := map[string]bool{}
		for _, found := range regexp.MustCompile(`(\S+) > \S+: Flags`).FindAllStringSubmatch(strings.Join(capture.Lines(), "\n"), -1) {
			from[found[1]] = true
		}
		return len(from)
	}
	err = patiently(ctx, "the packets of both", func() error {
		if got := asking(); got < 2 {
			return fmt.Errorf("packets of %d connections", got)
		}
		return nil
	})
	if lines := capture.Stop(); err != nil || asking() != 2 {
		t.Errorf("captured %q, %v; want the packets of two connections", lines, err)
	}
	if _, err := l.Client.Capture(ctx, "no such filter"); err == nil || !strings.Contains(err.Error(), "syntax error") {
		t.Errorf("Capture with a wrong filter = %v, want tcpdump's syntax error", err)
	}
}

// connect makes a connection within the time and ends it.
func connect(ctx context.Context, from *Machine, to netip.AddrPort, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

func patiently(ctx context.Context, what string, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return until(ctx, what, condition)
}

func testLoadImage(ctx context.Context, t *testing.T, l *Lab) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	image := Image{Name: "lab.local/test:1", Texts: map[string]string{"/etc/motd": "hello"}}
	if err := image.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := l.LoadImage(ctx, archive); err != nil {
		t.Fatal(err)
	}
	for _, n := range l.Nodes() {
		names, err := n.Exec(ctx, "ctr", "--namespace=k8s.io", "images", "list", "--quiet")
		if err != nil || !strings.Contains(names, image.Name) {
			t.Errorf("%s has images %q, %v; want %s", n.Name, names, err, image.Name)
		}
	}
}

func testHelm(ctx context.Context, t *testing.T, l *Lab) {
	for _, version := range []int{3, 4} {
		out, err := l.Helm(ctx, version, "list", "--all-namespaces", "--short")
		if err != nil || out != "" {
			t.Errorf("helm %d list = %q, %v; want none", version, out, err)
		}
	}
}

// kubeletPort answers on every address of a node, with no Service needed.
const kubeletPort = 10250

// testCable pulls the cable of a node and puts it back.
func testCable(ctx context.Context, t *testing.T, l *Lab) {
	kubelet := netip.AddrPortFrom(l.Node(2).IPv6, kubeletPort)
	if err := connect(ctx, l.Client, kubelet, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := l.Node(2).Unplug(); err != nil {
		t.Fatal(err)
	}
	if err := connect(ctx, l.Client, kubelet, time.Second); err == nil {
		t.Error("an unplugged node answers")
	}
	if err := l.Node(2).Plug(); err != nil {
		t.Fatal(err)
	}
	err := patiently(ctx, "node2 to answer", func() error { return connect(ctx, l.Client, kubelet, time.Second) })
	if err != nil {
		t.Error(err)
	}
}

// testPower cuts a node's power and brings it back: its pod serves again.
func testPower(ctx context.Context, t *testing.T, l *Lab) {
	node := l.Node(3)
	if err := node.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Exec(ctx, "true"); err == nil || !strings.Contains(err.Error(), "powered off") {
		t.Errorf("Exec on a dead node = %v", err)
	}
	if err := connect(ctx, l.Client, netip.AddrPortFrom(node.IPv4, kubeletPort), time.Second); err == nil {
		t.Error("a dead node answers")
	}
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitReady(ctx, node.Name); err != nil {
		t.Fatal(err)
	}
	err := patiently(ctx, "the web pod of "+node.Name, func() error {
		ip, err := l.Kubectl(ctx, "get", "pods", "-l", "app=web",
			"--field-selector=spec.nodeName="+node.Name, "-o", "jsonpath={.items[0].status.podIP}")
		if err != nil {
			return err
		}
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err = l.ControlPlane.Get(attempt, "http://"+ip+":8080/hostname")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// testProxy exchanges kube-proxy's mode: without one no NodePort answers.
func testProxy(ctx context.Context, t *testing.T, l *Lab) {
	for _, n := range l.Nodes() {
		nodePort := netip.AddrPortFrom(n.IPv4, 30080)
		if err := patiently(ctx, "kube-proxy", func() error { return connect(ctx, l.Client, nodePort, time.Second) }); err != nil {
			t.Error(err)
		}
	}
	if err := l.StopProxy(ctx); err != nil {
		t.Fatal(err)
	}
	nodePort := netip.AddrPortFrom(l.Node(1).IPv6, 30080)
	if err := connect(ctx, l.Client, nodePort, time.Second); err == nil {
		t.Error("a NodePort answers without kube-proxy")
	}
	if err := l.StartProxy(ctx, "nftables"); err != nil {
		t.Fatal(err)
	}
	if err := patiently(ctx, "kube-proxy", func() error { return connect(ctx, l.Client, nodePort, time.Second) }); err != nil {
		t.Error(err)
	}
	if err := l.StartProxy(ctx, "ipvs"); err == nil || !strings.Contains(err.Error(), "ipvs") {
		t.Errorf("StartProxy(ipvs) = %v", err)
	}
}

func testCommands(ctx context.Context, t *testing.T, l *Lab) {
	for _, m := range l.Machines() {
		_, err := m.Exec(ctx, "sh", "-c", "echo what went wrong >&2; exit 3")
		if err == nil || !strings.Contains(err.Error(), "what went wrong") || !strings.Contains(err.Error(), m.Name) {
			t.Errorf("a failing command on %s: %v; want its standard error", m.Name, err)
		}
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		began := time.Now()
		if _, err := m.Exec(short, "sleep", "60"); err == nil || time.Since(began) > 30*time.Second {
			t.Errorf("a command beyond its deadline on %s: %v after %v", m.Name, err, time.Since(began))
		}
		cancel()
	}
	if _, err := l.Client.Dial(ctx, "tcp", "node1:22"); err == nil {
		t.Error("Dial took a name")
	}
	if _, err := Up(ctx, Options{}); err == nil || !strings.Contains(err.Error(), "lab down") {
		t.Errorf("a second Up = %v, want the advice to run lab down", err)
	}
}
