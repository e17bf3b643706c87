package lab

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// kubernetesVersionFlags set what a Kubernetes program says of its version; a
// kubelet that says v0.0.0 is refused by the API server.
func kubernetesVersionFlags(version string) string {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(
			flags,
			"-X "+pkg+".gitVersion="+version,
			"-X "+pkg+".gitMajor="+parts[0],
			"-X "+pkg+".gitMinor="+parts[1],
			"-X "+pkg+".gitTreeState=clean",
		)
	}
	return strings.Join(flags, " ")
}

// olderPrograms are those of the older Kubernetes, in a directory of their own. Its clients and its test image are the newest's.
func olderPrograms() (all []program) {
	const kubernetes = "k8s.io/kubernetes/"
	for name, pkg := range map[string]string{
		"kube-apiserver":          kubernetes + "cmd/kube-apiserver",
		"kube-controller-manager": kubernetes + "cmd/kube-controller-manager",
		"kube-scheduler":          kubernetes + "cmd/kube-scheduler",
		"kubelet":                 kubernetes + "cmd/kubelet",
		"e2e.test":                kubernetes + "test/e2e",
		"ginkgo":                  "github.com/onsi/ginkgo/v2/ginkgo",
	} {
		all = append(all, program{
			name: path.Join(string(OlderKubernetes), name), module: string(OlderKubernetes), pkg: pkg, tests: name == "e2e.test",
			ldflags: kubernetesVersionFlags(OlderKubernetesVersion), part: OlderKubernetes,
		})
	}
	return all
}

// program is the file below bin of a program that may be the older Kubernetes'.
func (o Options) program(name string) string {
	older := path.Join(string(OlderKubernetes), name)
	if o.Older && slices.ContainsFunc(olderPrograms(), func(p program) bool { return p.name == older }) {
		return older
	}
	return name
}

// nameImages gives the nodes' images the names that tests of the older Kubernetes ask for. Of nginx they want that it runs.
func (l *Lab) nameImages(ctx context.Context) error {
	if !l.options.Older {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range l.nodes {
		group.Go(func() error {
			for name, image := range map[string]string{
				"e2e-test-images/agnhost:2.52":               AgnhostImage,
				"e2e-test-images/nginx:1.14-4":               AgnhostImage,
				"e2e-test-images/busybox:1.36.1-1":           busyboxImage,
				"e2e-test-images/" + invalidPackets + ":1.2": invalidPacketsImage,
				"build-image/distroless-iptables:v0.6.13":    iptablesImage,
				"pause:3.10": pauseImage,
			} {
				if _, err := n.Exec(ctx, "ctr", "--namespace=k8s.io", "images", "tag", "--force", image, registry+"/"+name); err != nil {
					return fmt.Errorf("name %s on %s: %w", image, n.Name, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}
