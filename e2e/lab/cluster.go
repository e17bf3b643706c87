package lab

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig is the administrator's file. Its server answers on the LAN only:
// run what uses it on a machine of the lab, or take [Lab.RESTConfig].
func (l *Lab) Kubeconfig() string { return l.pkiFile("admin.conf") }

// RESTConfig is the administrator's configuration for clients in this process,
// whose connections it makes from the control plane. An error says that the kubeconfig cannot be read.
func (l *Lab) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.Dial = l.ControlPlane.Dial
	config.QPS = -1 // no limit: a test must not wait for its own client
	return config, nil
}

// ServerCertificate are the files of the API server's certificate and of its key, for what answers in its place.
func (l *Lab) ServerCertificate() (certificate, key string) {
	return l.pkiFile("apiserver.crt"), l.pkiFile("apiserver.key")
}

// Kubectl runs kubectl as the administrator and gives its standard output. An error has its
// standard error.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := l.RunKubectl(ctx, Stdio{Out: &out}, args...)
	return out.String(), err
}

// RunKubectl runs kubectl as the administrator with the given streams. An error is as of [Machine.Run].
func (l *Lab) RunKubectl(ctx context.Context, stdio Stdio, args ...string) error {
	command := []string{l.dir.bin("kubectl"), "--kubeconfig=" + l.Kubeconfig(), "--cache-dir=" + l.dir.state("kubectl")}
	return l.ControlPlane.Run(ctx, stdio, append(command, args...)...)
}

// Apply applies manifests. An error has kubectl's standard error.
func (l *Lab) Apply(ctx context.Context, manifests string) error {
	return l.RunKubectl(ctx, Stdio{In: strings.NewReader(manifests)}, "apply", "-f", "-")
}

// Helm runs Helm of that major version, 3 or 4, as the administrator. An error has its standard error.
func (l *Lab) Helm(ctx context.Context, version int, args ...string) (string, error) {
	if version != 3 && version != 4 {
		return "", fmt.Errorf("the lab has Helm 3 and 4, not %d", version)
	}
	dir := l.dir.state("helm")
	command := []string{
		"env", "KUBECONFIG=" + l.Kubeconfig(),
		"HELM_CACHE_HOME=" + dir, "HELM_CONFIG_HOME=" + dir, "HELM_DATA_HOME=" + dir,
		l.dir.bin(fmt.Sprintf("helm%d", version)),
	}
	return l.ControlPlane.Exec(ctx, append(command, args...)...)
}

// LoadImage gives the images of an archive, as docker save or buildah make it,
// to every node that runs. An error is that of the first node that failed.
func (l *Lab) LoadImage(ctx context.Context, archive string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range l.nodes {
		if n.running() {
			group.Go(func() error { return n.importImage(ctx, archive) })
		}
	}
	return group.Wait()
}

// Signal sends a signal to one of the lab's programs and its children, by the name
// that its log has: kube-apiserver, etcd, node1-kubelet and so on. It is an error if no such
// program was started.
func (l *Lab) Signal(program string, signal syscall.Signal) error {
	found, err := l.procs.find(program)
	if err != nil {
		return fmt.Errorf("signal %s: %w", program, err)
	}
	return found.signal(signal)
}

// WaitReady waits until the nodes, all with no name given, are Ready. It is an error if they are
// not within ten minutes.
func (l *Lab) WaitReady(ctx context.Context, nodes ...string) error {
	args := []string{"wait", "--for=condition=Ready", "--timeout=10m"}
	if len(nodes) == 0 {
		args = append(args, "nodes", "--all")
	}
	for _, n := range nodes {
		args = append(args, "node/"+n)
	}
	_, err := l.Kubectl(ctx, args...)
	return err
}

// registerNodes makes the Node objects, so that each has its pod ranges before
// its kubelet asks.
func (l *Lab) registerNodes(ctx context.Context) error {
	var manifests [][]byte
	for _, n := range l.nodes {
		text, err := render("node.yaml", n.settings())
		if err != nil {
			return err
		}
		manifests = append(manifests, text)
	}
	return l.Apply(ctx, string(bytes.Join(manifests, []byte("---\n"))))
}

func (l *Lab) installCoreDNS(ctx context.Context) error {
	text, err := render("coredns.yaml", map[string]string{"Image": CoreDNSImage, "DNS": l.options.dnsService()})
	if err != nil {
		return err
	}
	return l.Apply(ctx, string(text))
}

// waitForCoreDNS waits until names resolve, which takes what forwards Services.
func (l *Lab) waitForCoreDNS(ctx context.Context) error {
	_, err := l.Kubectl(ctx, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=10m")
	return err
}
