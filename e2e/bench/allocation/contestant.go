package allocation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"fairlead.dev/fairlead/e2e/bench/objects"
	"fairlead.dev/fairlead/e2e/bench/process"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// contestant is one controller.
type contestant struct {
	name      string
	namespace string // of its own, and of its pools if they have any
	pools     schema.GroupVersionResource
	scoped    bool // pools are in the namespace
	ours      bool
	command   func(ctx context.Context, kubeconfig string) *exec.Cmd
}

// fairlead is this checkout's controller as the chart starts it.
func (r *run) fairlead() contestant {
	const namespace = "fairlead-system"
	return contestant{
		name: "fairlead", namespace: namespace, ours: true,
		pools: schema.GroupVersionResource{Group: "fairlead.dev", Version: "v1beta1", Resource: "ipaddresspools"},
		command: func(ctx context.Context, kubeconfig string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, r.controller, "--metrics-bind-address=0", "--health-probe-bind-address=0")
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+namespace)
			return cmd
		},
	}
}

// metallbPod is the pod that MetalLB's controller believes to be in.
const metallbPod = "controller"

// metallb is MetalLB's as its manifests start it, but without webhooks: nothing of what is
// measured passes through them.
func (r *run) metallb() contestant {
	return contestant{
		name: "metallb", namespace: lab.MetalLBNamespace, scoped: true,
		pools: schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"},
		command: func(ctx context.Context, kubeconfig string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, filepath.Join(r.Bin, "metallb-controller"), "--port=0", "--log-level=info",
				"--namespace="+lab.MetalLBNamespace, "--webhook-mode=disabled", "--disable-cert-rotation")
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "METALLB_POD_NAME="+metallbPod)
			return cmd
		},
	}
}

// place is an API server with a controller.
type place struct {
	contestant
	services   *objects.Set
	api        dynamic.Interface
	kubeconfig string
	running    *process.Running
}

// open starts an API server that knows the contestant's kinds, and the contestant, until
// the test ends.
func (r *run) open(ctx context.Context, tb testing.TB, c contestant) (*place, error) {
	server, err := objects.Serve(tb)
	if err != nil {
		return nil, err
	}
	p := &place{contestant: c, kubeconfig: filepath.Join(r.dir, c.name+".kubeconfig")}
	if err := apiserver.WriteKubeconfig(server.Config, p.kubeconfig); err != nil {
		return nil, err
	}
	if !c.ours {
		manifests, err := lab.MetalLBManifests()
		if err != nil {
			return nil, err
		}
		if _, err := envtest.InstallCRDs(server.Config, envtest.CRDInstallOptions{Paths: []string{manifests}, ErrorIfPathMissing: true}); err != nil {
			return nil, fmt.Errorf("install MetalLB's CRDs: %w", err)
		}
	}
	if p.api, err = dynamic.NewForConfig(server.Config); err != nil {
		return nil, err
	}
	if p.services, err = objects.New(ctx, server.Config); err != nil {
		return nil, err
	}
	if err := p.furnish(ctx); err != nil {
		return nil, err
	}
	p.running, err = process.Start(tb, c.name, c.command(ctx, p.kubeconfig), func(start func()) { start() })
	return p, err
}

// furnish makes the namespace that the controller runs in, and the pod that MetalLB's looks
// for to find itself.
func (p *place) furnish(ctx context.Context) error {
	core := func(kind, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}}
	}
	_, err := p.api.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Create(ctx, core("Namespace", p.namespace), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod := core("Pod", metallbPod)
	pod.Object["spec"] = map[string]any{"containers": []any{map[string]any{"name": "controller", "image": "controller"}}}
	_, err = p.api.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(p.namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// pool creates a pool of these addresses.
func (p *place) pool(ctx context.Context, name, addresses string) error {
	pool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": p.pools.GroupVersion().String(), "kind": "IPAddressPool",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"addresses": []any{addresses}},
	}}
	_, err := p.ofPools().Create(ctx, pool, metav1.CreateOptions{})
	return err
}

func (p *place) ofPools() dynamic.ResourceInterface {
	if p.scoped {
		return p.api.Resource(p.pools).Namespace(p.namespace)
	}
	return p.api.Resource(p.pools)
}
