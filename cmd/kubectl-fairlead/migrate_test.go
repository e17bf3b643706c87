package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"fairlead.dev/fairlead/internal/metallb"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// inputs are the files that the translation is tested with.
func inputs(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../internal/metallb/testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	return paths
}

// runs runs the command and returns what it prints.
func runs(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, told bytes.Buffer
	err = command(t.Context(), args, strings.NewReader(stdin), &out, &told)
	return out.String(), told.String(), err
}

func TestCommand(t *testing.T) {
	t.Parallel()
	const lossy = "{apiVersion: metallb.io/v1beta1, kind: BGPAdvertisement, metadata: {name: x}, spec: {aggregationLength: 33}}"
	for _, c := range []struct {
		stdin, args, stdout, stderr, err string
	}{
		{args: "", stderr: "Usage:", err: "no command given"},
		{args: "help", stdout: "kubectl fairlead migrate"},
		{args: "version -client", stdout: "dev\n"},
		{args: "version -kubeconfig nowhere", err: "or ask with -client for this program's version (dev) alone"},
		{args: "fly", stderr: "Usage:", err: `unknown command "fly"`},
		{args: "migrate -h", stderr: "-metallb-namespace namespace", err: "help requested"},
		{args: "migrate x.yaml", err: "give files with -f"},
		{args: "migrate -f nowhere.yaml", err: "nowhere.yaml: no such file"},
		{args: "migrate -f -", stdin: "7", err: "-: document 1: it is not an object"},
		{args: "migrate -f -", stdin: lossy, stdout: "kind: BGPAdvertisement\n", stderr: "LOST    BGPAdvertisement/x spec.aggregationLength=33"},
		{args: "migrate -f - --strict", stdin: lossy, stderr: "LOST    BGPAdvertisement/x", err: "lost: 1"},
		{args: "migrate -f - --strict", stdin: strings.ReplaceAll(lossy, "33", "32"), stdout: "kind: BGPAdvertisement\n"},
		{args: "migrate -f - --kinds BGPPeer,BGPAdvertisement", stdin: lossy, stdout: "kind: BGPAdvertisement\n", stderr: "LOST    BGPAdvertisement/x"},
		{args: "migrate -f - --kinds IPAddressPool,BGPPeer", stdin: lossy, stderr: "LOST    BGPAdvertisement/x"},
		{args: "migrate -f - --kinds bgppeers", stdin: lossy, stderr: "Usage:", err: `"bgppeers" is none of IPAddressPool, BFDProfile, BGPPeer, Community, L2Advertisement, BGPAdvertisement`},
		{args: "migrate --kubeconfig nowhere", err: "find the API server"},
	} {
		stdout, stderr, err := runs(t, c.stdin, strings.Fields(c.args)...)
		text := ""
		if err != nil {
			text = err.Error()
		}
		for _, part := range []struct{ what, got, want string }{{"stdout", stdout, c.stdout}, {"stderr", stderr, c.stderr}, {"error", text, c.err}} {
			if !strings.Contains(part.got, part.want) || (part.want == "") != (part.got == "") {
				t.Errorf("%s: %s is %q, want %q", c.args, part.what, part.got, part.want)
			}
		}
	}
}

// TestOnAnAPIServer has kubectl apply what is printed for every input, and reads the
// same objects live.
func TestOnAnAPIServer(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	api, err := dynamic.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := writeKubeconfig(t, server.Config)
	if _, _, err := runs(t, "", "migrate", "--kubeconfig", kubeconfig); err == nil || !strings.Contains(err.Error(), "the cluster knows no kind of metallb.io") {
		t.Errorf("without MetalLB: %v", err)
	}
	if out, _, err := runs(t, "", "version", "--kubeconfig", kubeconfig); err != nil || !strings.Contains(out, "Fairlead is not installed") {
		t.Errorf("version without Fairlead: %v\n%s", err, out)
	}
	clients := installMetalLB(t, server.Config)
	files := []string{"migrate"}
	for _, path := range inputs(t) {
		stdout, _, err := runs(t, "", "migrate", "-f", path)
		if err != nil {
			t.Fatal(err)
		}
		if got := shell(t, kubeconfig, stdout, "kubectl apply -f -"); strings.Count(got, " created\n") != strings.Count(stdout, "kind: ") || got == "" {
			t.Errorf("%s: kubectl apply says\n%s", path, got)
		}
		store(t, api, path)
		files = append(files, "-f", path)
	}
	wantOut, wantTold, err := runs(t, "", files...)
	if err != nil {
		t.Fatal(err)
	}
	gotOut, gotTold, err := runs(t, "", "migrate", "--kubeconfig", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if gotOut != wantOut {
		t.Errorf("live:\n%s\nfrom files:\n%s", gotOut, wantOut)
	}
	if out, _, err := runs(t, "", "migrate", "--kubeconfig", kubeconfig, "--metallb-namespace", "shop"); err == nil || !strings.Contains(err.Error(), "the namespace shop has no object of metallb.io") {
		t.Errorf("of a namespace in which MetalLB has nothing: %v\n%s", err, out)
	}
	checkSecret(t, clients, kubeconfig, gotTold)
	// No object of another namespace is asked for; all else is told of alike.
	for line := range strings.Lines(wantTold) {
		if !strings.Contains(gotTold, line) && !strings.Contains(line, "IPAddressPool/elsewhere") {
			t.Errorf("live, there is nothing told of this: %s", line)
		}
	}
}

// shell runs a command as users do, and returns what it prints.
func shell(t *testing.T, kubeconfig, stdin, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+os.Getenv(apiserver.BinEnv)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// checkSecret runs the command that is proposed for the Secret of a password.
func checkSecret(t *testing.T, clients kubernetes.Interface, kubeconfig, told string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "tor"}, Type: corev1.SecretTypeBasicAuth,
		Data: map[string][]byte{corev1.BasicAuthPasswordKey: []byte("hunter2")},
	}
	if _, err := clients.CoreV1().Secrets("metallb-system").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(told, "copy the Secret, without which there is no session: ")
	line, _, _ = strings.Cut(line, "\n")
	shell(t, kubeconfig, "", line)
	got, err := clients.CoreV1().Secrets("fairlead-system").Get(t.Context(), "tor", metav1.GetOptions{})
	if err != nil || got.Type != secret.Type || string(got.Data[corev1.BasicAuthPasswordKey]) != "hunter2" {
		t.Errorf("after %q: %+v, %v", line, got, err)
	}
}

// store creates the objects of a file in the namespaces that they name.
func store(t *testing.T, api dynamic.Interface, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metallb.ReadDocuments(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range objects {
		if u.GetKind() == "ServiceL2Status" {
			continue // MetalLB's own, which nobody asks for
		}
		if _, err := api.Resource(resourceOf(u)).Namespace(u.GetNamespace()).Create(t.Context(), &u, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

func resourceOf(u unstructured.Unstructured) schema.GroupVersionResource {
	plural := strings.ToLower(u.GetKind()) + "s"
	if u.GetKind() == "Community" {
		plural = "communities"
	}
	return u.GroupVersionKind().GroupVersion().WithResource(plural)
}

// installMetalLB makes its kinds known, with any content, and the namespaces.
func installMetalLB(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{"testdata/metallb-kinds.yaml"}, ErrorIfPathMissing: true, MaxTime: 2 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"metallb-system", "frr-k8s-system", "fairlead-system", "shop", "mail"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := clients.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return clients
}

// writeKubeconfig writes a file by which kubectl would find the API server.
func writeKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
