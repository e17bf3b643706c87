package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Part is what a lab can do without. It is built if it is named.
type Part string

const (
	// Conformance are the end-to-end tests of Kubernetes, for [Lab.RunE2E].
	Conformance Part = "conformance"
	// MetalLB is the real one, to compare with, to come from and to go back to; see
	// [Lab.InstallMetalLB].
	MetalLB Part = "metallb"
	// FRRK8s is what MetalLB's default mode has besides, see [Lab.InstallMetalLBWithFRR].
	FRRK8s Part = "frr-k8s"
	// Proxy is the real kube-proxy, its program and its image, for [Options] and [Lab.InstallProxy].
	Proxy Part = "proxy"
	// Helm3 is the Helm of major version 3. That of version 4 every lab has.
	Helm3 Part = "helm3"
	// FlannelPart is for the pod networks [Flannel] and [FlannelHostGW].
	FlannelPart Part = "flannel"
	// KubeRouterPart is for the pod network [KubeRouter].
	KubeRouterPart Part = "kube-router"
	// OlderKubernetes is the oldest Kubernetes that is supported, with its end-to-end tests, for [Options] of a lab that runs it
	// in place of the newest. It is also the directory of its module and of its programs.
	OlderKubernetes Part = "kubernetes-1.31"
)

// Parts are all of them.
func Parts() []Part {
	return []Part{Conformance, MetalLB, FRRK8s, Proxy, Helm3, FlannelPart, KubeRouterPart, OlderKubernetes}
}

// program is one Go program of a pinned module.
type program struct {
	name    string // file under bin
	module  string // directory under modules, "" for this module
	pkg     string
	ldflags string
	tags    string
	tests   bool // the program is the compiled tests of pkg
	cgo     bool // some of it is C
	part    Part // "" for what every lab needs
}

func programs() []program {
	const kubernetes = "k8s.io/kubernetes/cmd/"
	const containerd = "github.com/containerd/containerd/v2/"
	const plugins = "github.com/containernetworking/plugins/plugins/"
	var all []program
	for _, name := range []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl",
	} {
		all = append(all, program{name: name, module: "kubernetes", pkg: kubernetes + name, ldflags: kubernetesVersionFlags(KubernetesVersion)})
	}
	for _, name := range []string{"containerd", "ctr", "containerd-shim-runc-v2"} {
		all = append(all, program{
			name: name, module: "containerd", pkg: containerd + "cmd/" + name,
			ldflags: "-X " + containerd + "version.Version=" + ContainerdVersion,
			tags:    "no_btrfs no_devmapper no_zfs",
		})
	}
	return append(
		append(all, olderPrograms()...),
		program{name: "agnhost", module: "kubernetes", pkg: "k8s.io/kubernetes/test/images/agnhost", ldflags: kubernetesVersionFlags(KubernetesVersion)},
		program{name: "kube-proxy", module: "kubernetes", pkg: kubernetes + "kube-proxy", ldflags: kubernetesVersionFlags(KubernetesVersion), part: Proxy},
		program{
			name: "e2e.test", module: "kubernetes", pkg: "k8s.io/kubernetes/test/e2e", tests: true,
			ldflags: kubernetesVersionFlags(KubernetesVersion), part: Conformance,
		},
		program{name: "ginkgo", module: "kubernetes", pkg: "github.com/onsi/ginkgo/v2/ginkgo", part: Conformance},
		program{name: invalidPackets, module: "kubernetes", pkg: "k8s.io/kubernetes/test/images/" + invalidPackets, part: Conformance},
		program{name: "etcd", module: "etcd", pkg: "go.etcd.io/etcd/server/v3"},
		program{name: "cni/bridge", module: "cni", pkg: plugins + "main/bridge"},
		program{name: "cni/loopback", module: "cni", pkg: plugins + "main/loopback"},
		program{name: "cni/host-local", module: "cni", pkg: plugins + "ipam/host-local"},
		program{name: "cni/portmap", module: "cni", pkg: plugins + "meta/portmap"},
		program{name: "coredns", module: "coredns", pkg: "fairlead.dev/fairlead/e2e/lab/modules/coredns"},
		program{name: "helm4", module: "helm4", pkg: "helm.sh/helm/v4/cmd/helm"},
		program{name: "helm3", module: "helm3", pkg: "helm.sh/helm/v3/cmd/helm", part: Helm3},
		program{name: metallbController, module: "metallb", pkg: metallbModule + "/controller", part: MetalLB},
		program{name: metallbSpeaker, module: "metallb", pkg: metallbModule + "/speaker", part: MetalLB},
		program{name: "frr-k8s", module: "frr-k8s", pkg: frrK8sModule + "/cmd/frr-k8s-controller", part: FRRK8s},
		program{name: "statuscleaner", module: "frr-k8s", pkg: frrK8sModule + "/cmd/statuscleaner", part: FRRK8s},
		program{name: "frr-metrics", module: "frr-k8s", pkg: frrK8sModule + "/cmd/metrics", part: FRRK8s},
		program{name: "frr-status", module: "frr-k8s", pkg: frrK8sModule + "/cmd/status", part: FRRK8s},
		program{name: "flanneld", module: "flannel", pkg: "github.com/flannel-io/flannel", cgo: true, part: FlannelPart},
		program{
			name: "kube-router", module: "kube-router", pkg: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", part: KubeRouterPart,
		},
		program{name: "pause", pkg: "fairlead.dev/fairlead/e2e/lab/cmd/pause"},
	)
}

// step makes one file or directory of the cache. Its stamp is a hash of all
// that decides the result; the step is skipped while the stamp is the same.
type step struct {
	name   string
	output string
	stamp  string
	run    func(ctx context.Context) error
}

// Build makes what is missing or out of date in the cache: all programs from
// their pinned modules, the nodes' root file system and the images, and the parts that
// are named. It tells progress, one line a step with the seconds it took. An error names the step
// that failed, with its output.
func Build(ctx context.Context, progress io.Writer, parts ...Part) error {
	c, steps, err := buildSteps(parts)
	if err != nil {
		return err
	}
	for _, dir := range []string{c.bin("cni"), c.bin(string(OlderKubernetes)), c.path("images"), c.path("manifests"), c.path("stamps")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	say := newTeller(progress)
	for _, s := range steps {
		if s.done(c) {
			continue
		}
		if _, err := Open(); err == nil {
			return fmt.Errorf("%s must be built, but a lab that uses it is up: run lab down", s.name)
		}
		took := newTeller(progress)
		done := took.every(tellEvery, s.name)
		err := s.run(ctx)
		done()
		if err != nil {
			return fmt.Errorf("build %s: %w", s.name, err)
		}
		if err := os.WriteFile(c.stamp(stampName(s.name)), []byte(s.stamp), 0o644); err != nil {
			return err
		}
		took.tell("built %s", s.name)
	}
	say.tell("all built in %s", c)
	return nil
}

// Built tells whether Build has nothing to do; its error names the first thing
// that is missing or out of date.
func Built(parts ...Part) error {
	c, steps, err := buildSteps(parts)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if !s.done(c) {
			return fmt.Errorf("the lab is not built: %s is missing or out of date in %s: run make lab-build, for tests make test-build", s.name, c)
		}
	}
	return nil
}

func (s step) done(c cache) bool {
	stamp, err := os.ReadFile(c.stamp(stampName(s.name)))
	if err != nil || string(stamp) != s.stamp {
		return false
	}
	_, err = os.Stat(s.output)
	return err == nil
}

func stampName(step string) string { return strings.ReplaceAll(step, "/", "-") }

func buildSteps(parts []Part) (c cache, steps []step, err error) {
	if c, err = openCache(); err != nil {
		return c, nil, err
	}
	root, err := Checkout()
	if err != nil {
		return c, nil, err
	}
	source := filepath.Join(root, "e2e", "lab") // which has the pinned modules
	for _, p := range programs() {
		if !wanted(p.part, parts) {
			continue
		}
		s, err := p.step(c, source)
		if err != nil {
			return c, nil, err
		}
		steps = append(steps, s)
	}
	base, err := baseSteps(c, parts)
	if err != nil {
		return c, nil, err
	}
	manifests, err := metallbSteps(c, source, parts)
	if err != nil {
		return c, nil, err
	}
	steps = append(append(steps, base...), manifests...)
	return c, append(steps, imageSteps(c, steps, parts)...), nil
}

func wanted(part Part, parts []Part) bool { return part == "" || slices.Contains(parts, part) }

func (p program) step(c cache, source string) (step, error) {
	dir := filepath.Join(source, "modules", p.module)
	pins := []string{"go.mod", "go.sum"}
	switch p.module {
	case "":
		dir = filepath.Join(source, "cmd", p.name)
		pins = []string{"main.go"}
	case "coredns":
		pins = append(pins, "main.go")
	}
	inputs, err := texts(dir, pins...)
	if err != nil {
		return step{}, err
	}
	return step{
		name: p.name, output: c.bin(p.name), stamp: hash(append([]string{runtime.Version(), p.pkg, p.ldflags, p.tags}, inputs...)...),
		run: func(ctx context.Context) error {
			build := []string{"build"}
			if p.tests {
				build = []string{"test", "-c", "-vet=off"} // it would type-check all packages below once more
			}
			cmd := exec.CommandContext(ctx, "go", append(build, "-trimpath", "-buildvcs=false",
				"-tags", p.tags, "-ldflags", "-s -w "+p.ldflags, "-o", c.bin(p.name), p.pkg)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "CGO_ENABLED="+map[bool]string{false: "0", true: "1"}[p.cgo], "GOWORK=off")
			return runQuietly(cmd)
		},
	}, nil
}

func texts(dir string, names ...string) ([]string, error) {
	var all []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, string(text))
	}
	return all, nil
}

func imageSteps(c cache, earlier []step, parts []Part) []step {
	stamps := make(map[string]string, len(earlier))
	for _, s := range earlier {
		stamps[s.name] = s.stamp
	}
	archives := []struct {
		name, programs string // separated by spaces
		part           Part
		image          Image
	}{
		{"pause.tar", "pause", "", Image{Name: pauseImage, Entrypoint: []string{"/pause"}}},
		{"coredns.tar", "coredns", "", Image{Name: CoreDNSImage, Entrypoint: []string{"/coredns"}}},
		{"agnhost.tar", "agnhost", "", Image{
			Name: AgnhostImage, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"},
			Base: c.image("base.tar"),
			// Tests of Kubernetes expect one try of wget, and a second name.
			Texts: map[string]string{"/etc/wgetrc": "tries = 1\n"},
			Links: map[string]string{"/agnhost-2": "agnhost"},
		}},
		{invalidPackets + ".tar", invalidPackets, Conformance, Image{Name: invalidPacketsImage, Entrypoint: []string{"/" + invalidPackets}}},
		{"kube-proxy.tar", "kube-proxy", Proxy, Image{
			Name: kubeProxyImage, Base: c.image("base.tar"), Entrypoint: []string{"/usr/local/bin/kube-proxy"},
			Links: map[string]string{"/usr/local/bin/kube-proxy": "/kube-proxy"},
		}},
		{"busybox.tar", "", Conformance, Image{Name: busyboxImage, Cmd: []string{"sh"}, Base: c.image("base.tar")}},
		{"iptables.tar", "", Conformance, Image{Name: iptablesImage, Cmd: []string{"sh"}, Base: c.image("base.tar")}},
		{metallbController + ".tar", metallbController, MetalLB, Image{
			Name: metallbRegistry + "controller:" + MetalLBVersion, Entrypoint: []string{"/" + metallbController},
		}},
		{metallbSpeaker + ".tar", metallbSpeaker, MetalLB, Image{
			Name: metallbRegistry + "speaker:" + MetalLBVersion, Entrypoint: []string{"/" + metallbSpeaker},
		}},
		{"frr-k8s.tar", "frr-k8s statuscleaner frr-metrics frr-status", FRRK8s, Image{
			Name: frrK8sImage, Base: c.image("base.tar"), Files: map[string]string{"/" + frrReloader: c.path("manifests", frrReloader)},
		}},
		{"frr.tar", "", FRRK8s, Image{
			Name: frrImage, Base: c.image(frrBase),
			// As in FRR's own image.
			Texts: map[string]string{frrDir + "/docker-start": "#!/bin/bash\nsource " + frrDir + "/frrcommon.sh\n" + frrDir + "/watchfrr $(daemon_list)\n"},
			Links: map[string]string{"/usr/sbin/tini": "/usr/bin/tini"},
		}},
	}
	var steps []step
	for _, a := range archives {
		if !wanted(a.part, parts) {
			continue
		}
		programs := strings.Fields(a.programs)
		if a.image.Files == nil && len(programs) > 0 {
			a.image.Files = map[string]string{}
		}
		for _, program := range programs {
			a.image.Files["/"+program] = c.bin(program)
		}
		inputs := []string{fmt.Sprint(a.image), stamps[strings.Join(programs[:min(1, len(programs))], "")]}
		for _, program := range programs[min(1, len(programs)):] {
			inputs = append(inputs, stamps[program])
		}
		if a.image.Base != "" {
			inputs = append(inputs, stamps[filepath.Base(a.image.Base)])
		}
		steps = append(steps, step{
			name: a.name, output: c.image(a.name), stamp: hash(inputs...),
			run: func(context.Context) error { return a.image.Write(c.image(a.name)) },
		})
		stamps[a.name] = steps[len(steps)-1].stamp
	}
	return append(steps, storeStep(c, stamps))
}

// hash gives a short name to a list of strings.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// runQuietly runs a command and shows its output only in an error.
func runQuietly(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err), errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}
