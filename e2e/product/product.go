// Package product puts Fairlead into the lab as a user does, by its image and its
// chart, and looks at it from outside: what the client gets, what the router sees,
// what the API server says. The demo, the scenarios and the benchmarks share it.
package product

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/internal/addr"
)

// Where Fairlead is installed, and the release's name.
const (
	Namespace = "fairlead-system"
	Release   = "fairlead"
)

// Image is the archive that make image writes, below the checkout.
const Image = "build/image.tar"

// Cluster is a lab and a client of its API server.
type Cluster struct {
	*lab.Lab
	API client.WithWatch
	// Root is the checkout that image, chart and samples come from.
	Root string
}

// New connects to the API server of a lab that is up. It is an error if this is no checkout or
// the lab has no kubeconfig.
func New(l *lab.Lab) (*Cluster, error) {
	root, err := lab.Checkout()
	if err != nil {
		return nil, err
	}
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &Cluster{Lab: l, API: api, Root: root}, nil
}

// LoadImage gives the image of this checkout to every node. It is an error if the image is not built.
func (c *Cluster) LoadImage(ctx context.Context) error {
	archive := filepath.Join(c.Root, Image)
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not there: run make image", Image)
	}
	return c.Lab.LoadImage(ctx, archive)
}

// Install installs the chart with the Helm of that major version, 3 or 4, and waits
// until every part is ready. Values are as for helm --set. An error is Helm's or kubectl's.
func (c *Cluster) Install(ctx context.Context, helm int, values ...string) error {
	args := []string{
		"upgrade", "--install", Release, filepath.Join(c.Root, "charts/fairlead"),
		"--namespace", Namespace, "--create-namespace",
		"--set", "image.tag=dev", "--set", "image.pullPolicy=Never",
		// The size of the connection table is the whole machine's: leave it.
		"--set", "forwarding.conntrack.maxPerCore=0",
		"--set", "apiServer.host=" + c.ControlPlane.Main().String(), "--set", "apiServer.port=6443",
	}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	if _, err := c.Helm(ctx, helm, args...); err != nil {
		return err
	}
	return c.WaitInstalled(ctx)
}

// WaitInstalled waits until the controller and every speaker are ready. It is an error if they
// are not within five minutes.
func (c *Cluster) WaitInstalled(ctx context.Context) error {
	for _, what := range []string{"daemonset/fairlead-speaker", "deployment/fairlead-controller"} {
		if _, err := c.Kubectl(ctx, "-n", Namespace, "rollout", "status", what, "--timeout=5m"); err != nil {
			return err
		}
	}
	return nil
}

// Sample applies a file of config/samples. An error is kubectl's.
func (c *Cluster) Sample(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := c.Kubectl(ctx, "apply", "-f", filepath.Join(c.Root, "config/samples", name)); err != nil {
			return err
		}
	}
	return nil
}

// IPFamilies are those that Services of the cluster may have.
func (c *Cluster) IPFamilies() []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, f := range c.Families() {
		families = append(families, map[addr.Family]corev1.IPFamily{addr.IPv4: corev1.IPv4Protocol, addr.IPv6: corev1.IPv6Protocol}[f])
	}
	return families
}

// Addresses are the addresses of a LoadBalancer Service; an error while it has fewer
// than wanted.
func (c *Cluster) Addresses(ctx context.Context, key client.ObjectKey, wanted int) ([]netip.Addr, error) {
	var s corev1.Service
	if err := c.API.Get(ctx, key, &s); err != nil {
		return nil, err
	}
	var found []netip.Addr
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(ingress.IP); err == nil {
			found = append(found, a)
		}
	}
	if len(found) < wanted {
		return found, fmt.Errorf("the Service %s has %d addresses of %d: %s", key, len(found), wanted, conditions(&s))
	}
	return found, nil
}

func conditions(s *corev1.Service) string {
	text := "no condition says why"
	for _, condition := range s.Status.Conditions {
		text = fmt.Sprintf("%s=%s: %s", condition.Type, condition.Status, condition.Message)
	}
	return text
}
