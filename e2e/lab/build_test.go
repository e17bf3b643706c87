package lab

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every program must be a tool of its module, or "go mod tidy" there would drop
// what it needs; and what programs are told of their version must be true.
func TestModulesPinWhatIsBuilt(t *testing.T) {
	root, err := Checkout()
	if err != nil {
		t.Fatal(err)
	}
	pins := func(module string) string {
		text, err := os.ReadFile(filepath.Join(root, "e2e", "lab", "modules", module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, p := range programs() {
		if p.module != "" && !strings.Contains(pins(p.module), p.pkg+"\n") {
			t.Errorf("modules/%s/go.mod has no tool %s", p.module, p.pkg)
		}
	}
	for module, want := range map[string]string{
		"kubernetes":            "k8s.io/kubernetes " + KubernetesVersion,
		string(OlderKubernetes): "k8s.io/kubernetes " + OlderKubernetesVersion,
		"containerd":            "github.com/containerd/containerd/v2 " + ContainerdVersion,
		"metallb":               metallbModule + " " + MetalLBVersion,
		"frr-k8s":               frrK8sModule + " " + FRRK8sVersion,
		"coredns":               "github.com/coredns/coredns v" + strings.Split(CoreDNSImage, ":")[1],
	} {
		if !strings.Contains(pins(module), want+" ") {
			t.Errorf("modules/%s/go.mod does not pin %s", module, want)
		}
	}
}

func TestBuildStepIsDoneOnlyWithItsStampAndOutput(t *testing.T) {
	c := cache(t.TempDir())
	s := step{name: "cni/bridge", output: c.path("output"), stamp: hash("one")}
	write := func(name, text string) {
		t.Helper()
		if err := writeFiles("/", map[string][]byte{name: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	if s.done(c) {
		t.Error("done with nothing there")
	}
	write(c.stamp("cni-bridge"), s.stamp)
	if s.done(c) {
		t.Error("done without its output")
	}
	write(s.output, "")
	if !s.done(c) {
		t.Error("not done with its stamp and output")
	}
	s.stamp = hash("two")
	if s.done(c) {
		t.Error("done with the stamp of other inputs")
	}
	if hash("a", "b") == hash("ab") || hash("a", "b") == hash("b", "a") {
		t.Error("hash does not tell lists apart")
	}
}

func TestListsRelease(t *testing.T) {
	for text, want := range map[string]bool{
		"deb http://deb.debian.org/debian bookworm main\n":                 true,
		"deb [signed-by=/k.gpg] http://a/debian bookworm main\n":           true,
		"Types: deb\nSuites: bookworm bookworm-updates\n":                  true,
		"Types: deb\nSuites: bookworm-updates bookworm\n":                  true,
		"deb http://packages.example.com cloud-sdk-bookworm main\n":        false,
		"# deb http://deb.debian.org/debian bookworm main\n":               false,
		"deb http://deb.debian.org/debian trixie main\nSuites: trixie\n":   false,
		"deb http://security.debian.org bookworm-security main\n":          false,
		"Types: deb\nURIs: https://example.com/bookworm\nSuites: stable\n": false,
	} {
		if got := listsRelease(text, "bookworm"); got != want {
			t.Errorf("listsRelease(%q) = %t", text, got)
		}
	}
}

func TestImageArchive(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base.tar")
	program := filepath.Join(dir, "program")
	err := writeFiles(dir, map[string][]byte{"base.tar": []byte("a base"), "program": []byte("a program")})
	if err != nil {
		t.Fatal(err)
	}
	image := Image{
		Name: "lab.local/test:1", Base: base, Files: map[string]string{"/bin/run": program},
		Links: map[string]string{"/run": "bin/run"}, Entrypoint: []string{"/run"},
	}
	archive := filepath.Join(dir, "image.tar")
	if err := image.Write(archive); err != nil {
		t.Fatal(err)
	}
	entries := readTar(t, archive)

	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(entries["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || manifest[0].RepoTags[0] != image.Name || len(manifest[0].Layers) != 2 {
		t.Fatalf("manifest = %s", entries["manifest.json"])
	}
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(entries[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	for i, layer := range manifest[0].Layers {
		if entries[layer] == nil || config.RootFS.DiffIDs[i] != "sha256:"+strings.TrimSuffix(layer, ".tar") {
			t.Errorf("layer %d is %s, in the configuration %s", i, layer, config.RootFS.DiffIDs[i])
		}
	}
	if got := string(entries[manifest[0].Layers[0]]); got != "a base" {
		t.Errorf("base layer = %q", got)
	}
	top := filepath.Join(dir, "top.tar")
	if err := os.WriteFile(top, entries[manifest[0].Layers[1]], 0o600); err != nil {
		t.Fatal(err)
	}
	if got := string(readTar(t, top)["bin/run"]); got != "a program" {
		t.Errorf("bin/run = %q", got)
	}
	if config.Config.Entrypoint[0] != "/run" {
		t.Errorf("entry point = %q", config.Config.Entrypoint)
	}
}

func readTar(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries := make(map[string][]byte)
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		if entries[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
