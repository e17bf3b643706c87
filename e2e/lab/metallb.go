package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// MetalLB as its own build makes it: the programs, and the manifests that come with it.
const (
	metallbModule     = "go.universe.tf/metallb"
	metallbController = "metallb-controller"
	metallbSpeaker    = "metallb-speaker"
	// metallbRegistry is where the manifests have the images from.
	metallbRegistry = "quay.io/metallb/"
	// metallbNative are CRDs, webhooks, controller and speakers with its own BGP.
	metallbNative = "metallb-native.yaml"
	// metallbFRR has frr-k8s in the place of its own BGP.
	metallbFRR = "metallb-frr-k8s.yaml"
)

// frr-k8s and FRR, whose reload script is in a package of its own.
const (
	frrK8sModule = "github.com/metallb/frr-k8s"
	frrK8sImage  = metallbRegistry + "frr-k8s:" + FRRK8sVersion
	frrReloader  = "frr-reloader.sh"
	frrImage     = registry + "/frr:debian"
	frrBase      = "frr-base.tar"
	frrPackages  = "bash,frr,frr-pythontools,iproute2,procps,tini"
)

// MetalLBNamespace is where its manifests install it.
const MetalLBNamespace = "metallb-system"

// metallb is where its manifests are.
func (c cache) metallb(name string) string { return c.path("manifests", name) }

// metallbSteps copy the manifests out of the pinned modules. Those of the mode with FRR are changed where
// it cannot be had as it is: the image of FRR is Debian's, and frr-k8s is the newest that can be built, with
// its kind of configuration.
func metallbSteps(c cache, source string, parts []Part) ([]step, error) {
	pins, err := texts(filepath.Join(source, "modules", "metallb"), "go.mod", "go.sum")
	frrPins, err2 := texts(filepath.Join(source, "modules", "frr-k8s"), "go.mod", "go.sum")
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	var steps []step
	if wanted(MetalLB, parts) {
		steps = append(steps, step{name: metallbNative, output: c.metallb(metallbNative), stamp: hash(pins...), run: func(ctx context.Context) error {
			text, err := fromModule(ctx, source, "metallb", metallbModule, "config/manifests", metallbNative)
			return errors.Join(err, os.WriteFile(c.metallb(metallbNative), text, 0o644))
		}})
	}
	if wanted(FRRK8s, parts) {
		stamp := hash(slices.Concat(pins, frrPins, []string{frrK8sImage, frrImage})...)
		steps = append(steps, step{name: metallbFRR, output: c.metallb(metallbFRR), stamp: stamp, run: func(ctx context.Context) error {
			text, err := fromModule(ctx, source, "metallb", metallbModule, "config/manifests", metallbFRR)
			kind, err2 := fromModule(ctx, source, "frr-k8s", frrK8sModule, "config/crd/bases/frrk8s.metallb.io_frrconfigurations.yaml")
			reloader, err3 := fromModule(ctx, source, "frr-k8s", frrK8sModule, "cmd/reloader", frrReloader)
			text = regexp.MustCompile(`quay\.io/metallb/frr-k8s:\S+`).ReplaceAll(text, []byte(frrK8sImage))
			text = regexp.MustCompile(`quay\.io/frrouting/frr:\S+`).ReplaceAll(text, []byte(frrImage))
			return errors.Join(err, err2, err3,
				os.WriteFile(c.metallb(frrReloader), reloader, 0o755),
				os.WriteFile(c.metallb(metallbFRR), slices.Concat(text, []byte("\n"), kind), 0o644))
		}})
	}
	return steps, nil
}

// fromModule reads a file of a module that is pinned in one of our directories.
func fromModule(ctx context.Context, source, pinned, module string, file ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(source, "modules", pinned)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	var of struct{ Dir string }
	if err := json.Unmarshal(out, &of); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(append([]string{of.Dir}, file...)...))
}

// MetalLBManifests is the file that installs MetalLB in its native mode, once the part
// [MetalLB] is built. An error says that there is no cache.
func MetalLBManifests() (string, error) {
	c, err := openCache()
	if err != nil {
		return "", err
	}
	return c.metallb(metallbNative), nil
}

// InstallMetalLB installs MetalLB in its native mode by its own manifests, untouched, and waits until it is
// ready on every node. It needs the part [MetalLB] to be built, and a service proxy for
// ClusterIPs. An error is kubectl's, with what it printed.
func (l *Lab) InstallMetalLB(ctx context.Context) error {
	return l.installMetalLB(ctx, metallbNative, nil, "deployment/controller", "daemonset/speaker")
}

// InstallMetalLBWithFRR installs MetalLB in its default mode: frr-k8s, beside the speaker, has FRR of each node
// speak BGP. It needs the part [FRRK8s] besides. An error is as of InstallMetalLB.
func (l *Lab) InstallMetalLBWithFRR(ctx context.Context) error {
	return l.installMetalLB(ctx, metallbFRR, []string{"frr-k8s", "frr"},
		"deployment/controller", "daemonset/speaker", "deployment/frr-k8s-statuscleaner", "daemonset/frr-k8s-daemon")
}

func (l *Lab) installMetalLB(ctx context.Context, manifests string, besides []string, parts ...string) error {
	for _, image := range append([]string{metallbController, metallbSpeaker}, besides...) {
		if err := l.LoadImage(ctx, l.dir.image(image+".tar")); err != nil {
			return err
		}
	}
	if _, err := l.Kubectl(ctx, "apply", "-f", l.dir.metallb(manifests)); err != nil {
		return err
	}
	for _, what := range parts {
		if _, err := l.Kubectl(ctx, "-n", MetalLBNamespace, "rollout", "status", what, "--timeout=5m"); err != nil {
			return err
		}
	}
	return nil
}
