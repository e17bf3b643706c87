package charts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

const poolsCRD = "ipaddresspools.fairlead.dev"

// tomorrow is a copy of a chart as it may be in a year: pools and their serviceAllocation have another field.
func tomorrow(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(name)); err != nil {
		t.Fatal(err)
	}
	crd := filepath.Join(dir, "files/crds/fairlead.dev_ipaddresspools.yaml")
	text, err := os.ReadFile(crd)
	if err != nil {
		t.Fatal(err)
	}
	newer := string(text)
	for _, old := range []string{"\n              onPoolChange:\n", "\n                  namespaces:\n"} {
		if strings.Count(newer, old) != 1 {
			t.Fatalf("%q is not once in\n%s", old, newer)
		}
		indent := old[:strings.Index(old, strings.TrimSpace(old))]
		newer = strings.Replace(newer, old, indent+"tomorrow:"+indent+"  type: string"+old, 1)
	}
	if err := os.WriteFile(crd, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A chart whose kinds lack fields that objects have is refused, by one sentence, before anything has changed. Where none has them, or
// when it is asked for, it is not.
func testADowngradeThatWouldLoseFields(t *testing.T, config *rest.Config) {
	a, programs := asAdmin(t, config), helms(t)
	for _, c := range []struct{ program, chart, value string }{ // the templates are the same
		{programs["helm3"], "fairlead-crds", "dropFields"}, {programs["helm4"], "fairlead", "crds.dropFields"},
	} {
		if testing.Short() && c.chart != chart {
			continue
		}
		admin := a.admin(c.program)
		run := func(args ...string) (string, error) { return admin(append(args, "--namespace", namespace)...) }
		a.dropKinds()
		a.must(run, "install", c.chart, tomorrow(t, c.chart))
		a.established()
		pool := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"addresses": []any{"192.0.2.1/32"}, "tomorrow": "a", "serviceAllocation": map[string]any{
				"namespaceSelectors": []any{map[string]any{"matchLabels": map[string]any{"any": "key"}}}, "tomorrow": "b",
			},
		}}}
		pool.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("IPAddressPool"))
		pool.SetName("lan")
		a.create(pool)
		want := "IPAddressPool lan has spec.serviceAllocation.tomorrow and spec.tomorrow, which Fairlead dev does not have, " +
			"so that they would be lost: upgrade to a newer version, or take them away first, or set " + c.value + "=true"
		if out, err := run("upgrade", c.chart, c.chart); err == nil || !strings.Contains(out, want) {
			t.Errorf("upgrade %s: %v\n%s\nwant %s", c.chart, err, out, want)
		}
		if err := a.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil || tomorrowOf(pool) != "a" {
			t.Errorf("a refused downgrade of %s left %v (%v)", c.chart, pool, err)
		}
		a.must(run, "upgrade", c.chart, c.chart, "--set", c.value+"=true")
		until(a, "of the older kinds", "lan", pool, func() bool { return tomorrowOf(pool) == "" })
		a.must(run, "upgrade", c.chart, c.chart) // nothing is left to lose
		if err := a.Delete(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
}

func tomorrowOf(pool *unstructured.Unstructured) string {
	field, _, _ := unstructured.NestedString(pool.Object, "spec", "tomorrow")
	return field
}

// dropKinds deletes all CRDs, and waits until they are gone.
func (a *authority) dropKinds() {
	a.t.Helper()
	if err := a.DeleteAllOf(a.t.Context(), &apiextensionsv1.CustomResourceDefinition{}); err != nil {
		a.t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	until(a, "that kinds are gone", poolsCRD, crd, func() bool { return crd.Name == "" })
}

// established waits until the API server serves pools.
func (a *authority) established() {
	a.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	until(a, "of pools", poolsCRD, crd, func() bool {
		return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
	})
}
