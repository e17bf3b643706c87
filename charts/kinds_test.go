package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// Kinds outlive the release that they were installed by. Another one is refused by a sentence with the value to set, and with a
// command that has it take them.
func testKindsOfAnotherRelease(t *testing.T, config *rest.Config) {
	a, program := asAdmin(t, config), helms(t)["helm4"]
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(a.config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	run := func(program string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), program, append(args, "--kubeconfig", kubeconfig)...).CombinedOutput()
		return string(out), err
	}
	must := func(program string, args ...string) {
		t.Helper()
		if out, err := run(program, args...); err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, out)
		}
	}
	a.dropKinds()
	must(program, "install", "kinds", "fairlead-crds", "--namespace", namespace)
	must(program, "uninstall", "kinds", "--namespace", namespace)
	for chart, leave := range map[string]string{"fairlead-crds": "upgrade that one", chart: "leave them to it by crds.install=false"} {
		out, err := run(program, "install", "fairlead", chart, "--namespace", namespace)
		want := "is of release kinds in namespace " + namespace + ", which keeps it when it is uninstalled: " + leave + ", or give all of them to this release by kubectl "
		_, take, told := strings.Cut(out, want)
		if err == nil || !told {
			t.Fatalf("install of %s: %v\n%s\nwant %s", chart, err, out, want)
		}
		take, _, _ = strings.Cut(take, "\n")
		must(filepath.Join(os.Getenv("FAIRLEAD_TEST_BIN"), "kubectl"), strings.Fields(take)...)
		must(program, "install", "fairlead", chart, "--namespace", namespace)
		must(program, "uninstall", "fairlead", "--namespace", namespace, "--no-hooks")
		must(filepath.Join(os.Getenv("FAIRLEAD_TEST_BIN"), "kubectl"), "annotate", "--overwrite", "crd", "--all", "meta.helm.sh/release-name=kinds")
	}
}
