package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Kinds outlive the release that they were installed by. Another one is refused by a sentence with the value to set, and with a
// command that has it take them.
func testKindsOfAnotherRelease(t *testing.T, config *rest.Config) {
	a := asAdmin(t, config)
	helm := a.admin(helms(t)["helm4"])
	kubectl := a.admin(filepath.Join(os.Getenv("FAIRLEAD_TEST_BIN"), "kubectl"))
	a.dropKinds()
	a.must(helm, "install", "kinds", "fairlead-crds", "--namespace", namespace)
	a.must(helm, "uninstall", "kinds", "--namespace", namespace)
	for chart, leave := range map[string]string{"fairlead-crds": "upgrade that one", chart: "leave them to it by crds.install=false"} {
		out, err := helm("install", "fairlead", chart, "--namespace", namespace)
		want := "is of release kinds in namespace " + namespace + ", which keeps it when it is uninstalled: " + leave + ", or give all of them to this release by kubectl "
		_, take, told := strings.Cut(out, want)
		if err == nil || !told {
			t.Fatalf("install of %s: %v\n%s\nwant %s", chart, err, out, want)
		}
		take, _, _ = strings.Cut(take, "\n")
		a.must(kubectl, strings.Fields(take)...)
		a.must(helm, "install", "fairlead", chart, "--namespace", namespace)
		a.must(helm, "uninstall", "fairlead", "--namespace", namespace, "--no-hooks")
		a.must(kubectl, "annotate", "--overwrite", "crd", "--all", "meta.helm.sh/release-name=kinds")
	}
}
