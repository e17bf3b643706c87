package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Node is a machine that runs a kubelet and containerd. It has namespaces of
// every kind but user, and a root file system of its own.
type Node struct {
	*Machine
	lab    *Lab
	number int // from 1
}

func (l *Lab) newNode(number int) *Node {
	n := &Node{Machine: newMachine(nodeName(number), nodeAddresses(number), l.Families()), lab: l, number: number}
	n.inside = n.entering
	return n
}

// String returns the name of the node.
func (n *Node) String() string { return n.Name }

// entering gives a command that becomes the given one as a process of the node.
func (n *Node) entering(command []string) ([]string, error) {
	first, err := n.lab.procs.find(n.process("init"))
	if err != nil || !first.running() {
		return nil, fmt.Errorf("%s is powered off", n.Name)
	}
	enter := []string{"nsenter", "--target", strconv.Itoa(first.pid), "--all"}
	return n.lab.cgroups.joining(n.Name, false, append(enter, command...)...), nil
}

// process names a record of one of the node's processes.
func (n *Node) process(what string) string { return n.Name + "-" + what }

// boot makes the node's namespaces around its disk, starts containerd and
// waits until that answers.
func (n *Node) boot(ctx context.Context) error {
	if err := n.wireUp(ctx); err != nil {
		return err
	}
	if err := n.lab.cgroups.create(n.Name); err != nil {
		return err
	}
	script, err := files.ReadFile("files/boot.sh")
	if err != nil {
		return err
	}
	command := n.lab.cgroups.joining(n.Name, true, "bash", "-c", string(script), "boot",
		n.Name, n.lab.dir.state(n.Name), n.lab.dir.image("rootfs"), n.lab.dir.path("bin"))
	var first process
	err = namespaceOf(n.Name).do(func() (err error) {
		first, err = n.lab.procs.start(ctx, daemon{
			name: n.process("init"), command: command,
			namespaces: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := n.lab.procs.untilReady(ctx, first, func() error { return booted(first) }); err != nil {
		return err
	}
	containerd, err := n.start(ctx, "containerd", "containerd", "--config", "/etc/containerd/config.toml")
	if err != nil {
		return err
	}
	socket := fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", first.pid)
	return n.lab.procs.untilReady(ctx, containerd, func() error { return listens(ctx, socket) })
}

// booted tells whether the boot script has become the process that reaps.
func booted(p process) error {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
	if err == nil && string(name) != "pause\n" {
		err = errors.New("the boot script still runs")
	}
	return err
}

// wireUp makes the node's network: the LAN link, and unless the pod network does, routes to the pods of other
// nodes and masquerading for its own.
func (n *Node) wireUp(ctx context.Context) error {
	network := n.lab.options.PodNetwork
	if n.Name != n.lab.ControlPlane.Name { // which is on the LAN already
		if err := joinLAN(n.Name, nodeAddresses(n.number), network.families()); err != nil {
			return err
		}
	}
	ns := namespaceOf(n.Name)
	forwards4 := "1"
	if n.IPv4 == (netip.Addr{}) {
		forwards4 = "0" // as no node of IPv6 alone needs it
	}
	err := errors.Join(ns.sysctl(forwards4, "ipv4/ip_forward"),
		ns.sysctl("1", "ipv6/conf/all/forwarding", "bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"))
	if err != nil {
		return err
	}
	if err := routePods(n.Name, len(n.lab.nodes), n.number, network.routed()...); err != nil || network.own() {
		return err
	}
	rules, err := render("masquerade.nft", n.settings())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(string(rules))
	return ns.do(func() error { return runQuietly(cmd) })
}

// settings are what the node's configuration files are rendered with.
func (n *Node) settings() map[string]string {
	pods := podRanges(n.number)
	inOrder := ordered(n.lab.options, pods.v4.String(), pods.v6.String())
	settings := map[string]string{
		"Name": n.Name, "Number": strconv.Itoa(n.number), "DNS": n.lab.options.dnsService(), "PauseImage": pauseImage,
		"Pods4": "", "Pods6": pods.v6.String(), "PodRange4": podRange4, "PodRange6": podRange6,
		"FirstPods": inOrder[0], "AllPods": strings.Join(inOrder, `", "`),
		"Bridge": n.lab.options.PodNetwork.bridge(), "Flannel": n.lab.options.PodNetwork.flannel(), "PodNetworkUser": podNetworkUser,
	}
	if n.IPv4.IsValid() {
		settings["Pods4"] = pods.v4.String()
	}
	return settings
}

// install writes the node's disk as it is before the first boot.
func (n *Node) install(pkiDir string) error {
	contents := map[string][]byte{
		"hostname":    []byte(n.Name + "\n"),
		"hosts":       fmt.Appendf(nil, "127.0.0.1 localhost\n::1 localhost\n%s %s\n", n.Main(), n.Name),
		"resolv.conf": nil,
		"machine-id":  []byte(hash(n.Name)[:32] + "\n"),
	}
	templates := n.podNetworkFiles()
	templates["containerd/config.toml"] = "containerd.toml"
	templates["kubernetes/kubelet.yaml"] = "kubelet.yaml"
	for path, template := range templates {
		text, err := render(template, n.settings())
		if err != nil {
			return err
		}
		contents[path] = text
	}
	for path, file := range map[string]string{
		"kubernetes/ca.crt":          "ca.crt",
		"kubernetes/kubelet.conf":    n.Name + ".conf",
		"kubernetes/kubelet.crt":     n.Name + ".crt",
		"kubernetes/kubelet.key":     n.Name + ".key",
		"kubernetes/kube-proxy.conf": "kube-proxy.conf",

		"kubernetes/" + podNetworkUser + ".conf": podNetworkUser + ".conf",
	} {
		text, err := os.ReadFile(filepath.Join(pkiDir, file))
		if err != nil {
			return err
		}
		contents[path] = text
	}
	return writeFiles(n.lab.dir.state(n.Name, "upper", "etc"), contents)
}

func (n *Node) start(ctx context.Context, name string, command ...string) (process, error) {
	entering, err := n.entering(command)
	if err != nil {
		return process{}, err
	}
	return n.lab.procs.start(ctx, daemon{name: n.process(name), command: entering, env: n.environment()})
}

// startDaemons starts the pod network, the kubelet and, if the lab has it, kube-proxy.
func (n *Node) startDaemons(ctx context.Context) error {
	if err := n.startPodNetwork(ctx); err != nil {
		return err
	}
	_, err := n.start(ctx, "kubelet", "/usr/local/bin/"+n.lab.options.program("kubelet"), "--config=/etc/kubernetes/kubelet.yaml",
		"--kubeconfig=/etc/kubernetes/kubelet.conf", "--hostname-override="+n.Name,
		"--node-ip="+n.lab.options.list(nodeAddresses(n.number).v4.Addr().String(), n.IPv6.String()))
	if err != nil || n.lab.options.Proxy == "" {
		return err
	}
	return n.startProxy(ctx)
}

func (n *Node) startProxy(ctx context.Context) error {
	_, err := n.start(ctx, "kube-proxy", "kube-proxy", "--proxy-mode="+n.lab.options.Proxy, "--hostname-override="+n.Name,
		"--kubeconfig=/etc/kubernetes/kube-proxy.conf", "--cluster-cidr="+n.lab.options.list(podRange4, podRange6),
		"--healthz-bind-address=0.0.0.0:10256",
		// The connection tracking limits are the whole machine's: leave them.
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0")
	return err
}

// chooseLegacy makes the commands without a variant in their name those of legacy iptables. The
// choice is on the node's disk, which has not got what update-alternatives keeps.
func (n *Node) chooseLegacy(ctx context.Context) error {
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, action := range []string{"", "-save", "-restore"} {
			_, err := n.Exec(ctx, "ln", "--symbolic", "--force", "/usr/sbin/"+name+"-legacy"+action, "/etc/alternatives/"+name+action)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// importImage gives containerd the images of an archive.
func (n *Node) importImage(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return n.Run(ctx, Stdio{In: f}, "ctr", "--namespace=k8s.io", "images", "import", "--no-unpack", "-")
}

// Kill cuts the node's power: its link goes first, so that no process can say
// goodbye, then every process and all that its kernel knew. Its disk stays. An error says what is
// left of it.
func (n *Node) Kill(ctx context.Context) error {
	if err := removePort(n.Name); err != nil {
		return err
	}
	names, err := n.lab.procs.names(n.process(""))
	if err != nil {
		return err
	}
	return errors.Join(
		n.lab.procs.stop(ctx, syscall.SIGKILL, names...),
		namespaceOf(n.Name).remove(),
		n.lab.cgroups.remove(ctx, n.Name),
	)
}

// lastTerm is for how long a node that is shut down waits for its processes to end, before they are killed. With
// systemd it is a minute and a half.
const lastTerm = 6 * time.Second

// Shutdown does what systemd does when a machine reboots or is powered off: the kubelet, containerd and then all
// processes are asked to end, at one moment if together, those that do not are killed, and the link goes last. An error says
// what is left of the node.
func (n *Node) Shutdown(ctx context.Context, together bool) error {
	if !together {
		if err := n.lab.procs.stop(ctx, syscall.SIGTERM, n.process("kubelet"), n.process("containerd")); err != nil {
			return err
		}
	}
	// All but the first process and the one that asks, those of containers among them.
	if _, err := n.Exec(ctx, "sh", "-c", "kill -s TERM -- -1"); err != nil {
		return err
	}
	select {
	case <-time.After(lastTerm):
	case <-ctx.Done():
		return ctx.Err()
	}
	// It fails if all have ended.
	if _, err := n.Exec(ctx, "sh", "-c", "kill -s KILL -- -1 2>&- || :"); err != nil {
		return err
	}
	return n.Kill(ctx)
}

// Start brings a killed node back, up to its kubelet; see [Lab.WaitReady]. It is an error if the
// node is powered on or does not boot.
func (n *Node) Start(ctx context.Context) error {
	if n.running() {
		return fmt.Errorf("%s is powered on", n.Name)
	}
	if err := n.boot(ctx); err != nil {
		return err
	}
	return n.startDaemons(ctx)
}

// running tells whether the node is powered on.
func (n *Node) running() bool {
	first, err := n.lab.procs.find(n.process("init"))
	return err == nil && first.running()
}
