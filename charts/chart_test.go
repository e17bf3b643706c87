// Package charts_test renders the chart with Helm 3 and Helm 4 and checks what
// comes out against what the documentation promises.
package charts_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"fairlead.dev/fairlead/api/v1beta1"
)

const (
	chart     = "fairlead"
	namespace = "fairlead-system"
	// kubeVersion is what `helm template` takes the cluster's version to be.
	kubeVersion = "1.37.0"
)

// values are what a user would write into a values file.
type values map[string]any

// helms are the programs of both major versions. They are built along with the
// lab, into the directory that FAIRLEAD_TEST_BIN names.
func helms(t *testing.T) map[string]string {
	t.Helper()
	dir := os.Getenv("FAIRLEAD_TEST_BIN")
	if dir == "" {
		t.Skip("needs FAIRLEAD_TEST_BIN, the directory of helm3 and helm4: run `make test`")
	}
	found := map[string]string{}
	for _, name := range []string{"helm4", "helm3"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			t.Skipf("needs %s in FAIRLEAD_TEST_BIN: %v", name, err)
		}
		found[name] = path
	}
	return found
}

// helm runs one Helm command with v as its values file and returns its output.
func helm(t *testing.T, program string, v values, args ...string) (string, error) {
	t.Helper()
	file, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, append(args, "--values", "-", "--kube-version", kubeVersion)...)
	cmd.Stdin = bytes.NewReader(file)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// render is what `helm template` makes of v.
func render(t *testing.T, program string, v values) string {
	t.Helper()
	out, err := helm(t, program, v, "template", "fairlead", chart, "--namespace", namespace)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objects renders v with Helm 4 and decodes the result; see decode.
func objects(t *testing.T, v values) []client.Object {
	t.Helper()
	return decode(t, render(t, helms(t)["helm4"], v))
}

// decode reads every object of a rendered chart as the Kubernetes type that it
// claims to be, and fails the test on a field that the type does not have.
// The objects are shared: a test only reads them.
func decode(t *testing.T, rendered string) []client.Object {
	t.Helper()
	var all []client.Object
	for doc := range strings.SplitSeq(rendered, "\n---\n") {
		if doc = strings.TrimPrefix(doc, "---\n"); isBlank(doc) {
			continue
		}
		object, known := decoded.Load(doc)
		if !known {
			read, _, err := decoder().Decode([]byte(doc), nil, nil)
			if err != nil {
				t.Fatalf("decode:\n%s\n%v", doc, err)
			}
			object, _ = decoded.LoadOrStore(doc, read)
		}
		all = append(all, object.(client.Object))
	}
	return all
}

// decoded has what each document is. Most are the same whatever the values: the CRDs are, and take longest.
var decoded sync.Map

var decoder = sync.OnceValue(func() runtime.Decoder {
	return serializer.NewCodecFactory(kinds(), serializer.EnableStrict).UniversalDeserializer()
})

// isBlank reports whether a YAML document holds comments at most.
func isBlank(doc string) bool {
	for line := range strings.Lines(doc) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// one is the only object of type T with this name.
func one[T client.Object](t *testing.T, objects []client.Object, name string) T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if typed, ok := object.(T); ok && typed.GetName() == name {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T are named %q, want one", len(found), *new(T), name)
	}
	return found[0]
}

// kinds are those that the chart installs, and those of Fairlead.
var kinds = sync.OnceValue(func() *runtime.Scheme {
	types := runtime.NewScheme()
	utilruntime.Must(errors.Join(scheme.AddToScheme(types), apiextensionsv1.AddToScheme(types), v1beta1.AddToScheme(types)))
	return types
})

func unstructuredOf(fields map[string]any) client.Object {
	return &unstructured.Unstructured{Object: fields}
}
