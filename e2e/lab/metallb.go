package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
)

// MetalLBNamespace is where its manifests install it.
const MetalLBNamespace = "metallb-system"

func (c cache) metallb() string { return c.path("manifests", metallbNative) }

// metallbManifest copies the manifests out of the pinned module.
func metallbManifest(c cache, source string) (step, error) {
	dir := filepath.Join(source, "modules", "metallb")
	inputs, err := texts(dir, "go.mod", "go.sum")
	if err != nil {
		return step{}, err
	}
	return step{
		name: metallbNative, output: c.metallb(), stamp: hash(inputs...),
		run: func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", metallbModule)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOWORK=off")
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", cmd, err, out)
			}
			var module struct{ Dir string }
			if err := json.Unmarshal(out, &module); err != nil {
				return err
			}
			text, err := os.ReadFile(filepath.Join(module.Dir, "config", "manifests", metallbNative))
			if err != nil {
				return err
			}
			return os.WriteFile(c.metallb(), text, 0o644)
		},
	}, nil
}

// MetalLBManifests is the file that installs MetalLB in its native mode, once the part
// [MetalLB] is built. An error says that there is no cache.
func MetalLBManifests() (string, error) {
	c, err := openCache()
	if err != nil {
		return "", err
	}
	return c.metallb(), nil
}

// InstallMetalLB installs MetalLB by its own manifests, untouched, and waits until it is
// ready on every node. It needs the part [MetalLB] to be built, and a service proxy for
// ClusterIPs. An error is kubectl's, with what it printed.
func (l *Lab) InstallMetalLB(ctx context.Context) error {
	for _, program := range []string{metallbController, metallbSpeaker} {
		if err := l.LoadImage(ctx, l.dir.image(program+".tar")); err != nil {
			return err
		}
	}
	if _, err := l.Kubectl(ctx, "apply", "-f", l.dir.metallb()); err != nil {
		return err
	}
	for _, what := range []string{"deployment/controller", "daemonset/speaker"} {
		if _, err := l.Kubectl(ctx, "-n", MetalLBNamespace, "rollout", "status", what, "--timeout=5m"); err != nil {
			return err
		}
	}
	return nil
}
