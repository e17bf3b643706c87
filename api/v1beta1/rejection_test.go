package v1beta1_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/admission"
	"fairlead.dev/fairlead/internal/testenv/malformed"
)

// TestMalformed admits every object of the table, as the API server would. One that is to
// be refused must be refused for the one reason given, so that no message stands beside
// one that misleads.
func TestMalformed(t *testing.T) {
	t.Parallel()
	admissions := map[string]*admission.Admission{}
	for kind := range definitions(t) {
		admissions[kind] = admissionOf(t, kind)
	}
	for _, c := range malformed.Cases(t) {
		if c.Kind == "Service" {
			continue // is Kubernetes' own
		}
		t.Run(c.Kind+"/"+c.Name, func(t *testing.T) {
			object := admission.Parse(t, "{apiVersion: fairlead.dev/v1beta1, kind: "+c.Kind+", metadata: {name: x}, spec: "+c.Spec+"}")
			errs, unknown := admissions[c.Kind].Admit(t, object)
			if len(unknown) > 0 {
				t.Errorf("unknown fields: %q", unknown)
			}
			switch {
			case c.Refused == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case c.Refused != "" && len(errs) == 0:
				t.Errorf("admitted, want %s", c.Refused)
			case c.Refused != "" && !strings.Contains(errs.ToAggregate().Error(), c.Refused):
				t.Errorf("refused for\n\t%v\nwant\n\t%s", errs.ToAggregate(), c.Refused)
			case len(errs) > 1:
				t.Errorf("more to say than needed: %v", errs.ToAggregate())
			case c.Refused == "":
				checkDecodes(t, c.Kind, object)
			}
		})
	}
}

// TestNoFieldIsMissing holds that the table has every field of the spec of every kind
// that can be malformed, and every annotation. A field of true or false is malformed in
// its type only, which TestTypes tries with all.
func TestNoFieldIsMissing(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, c := range malformed.Cases(t) {
		if c.Refused != "" || c.Reason != "" {
			known[c.Kind+" "+c.Field] = true
		}
	}
	for kind, d := range definitions(t) {
		spec := d.Schema.Properties["spec"]
		eachLeaf(&spec, "spec", func(path string, s *apiextensions.JSONSchemaProps) {
			if s.Type != "boolean" && !known[kind+" "+path] {
				t.Errorf("%s: package malformed has no case of %s", kind, path)
			}
		})
	}
	text, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	anyText := []string{v1beta1.AnnotationShareKey, v1beta1.MetalLBShareKey, v1beta1.MetalLBAllocatedFrom} // no text is malformed
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^\t(Annotation|MetalLB)\w+ = (GroupName \+ )?"(.*)"`).FindAllStringSubmatch(string(text), -1) {
		found++
		names := []string{v1beta1.GroupName + m[3]}
		if m[1] == "MetalLB" {
			names = nil
			for _, prefix := range v1beta1.MetalLBPrefixes() {
				names = append(names, prefix+m[3])
			}
		}
		for _, name := range names {
			if !slices.Contains(anyText, name) && !slices.Contains(anyText, m[3]) && !known["Service metadata.annotations["+name+"]"] {
				t.Errorf("package malformed has no case of the annotation %s", name)
			}
		}
	}
	if found < 6 || !known["Service spec.loadBalancerIP"] {
		t.Errorf("%d annotations were looked for, and spec.loadBalancerIP is known: %t", found, known["Service spec.loadBalancerIP"])
	}
}

// TestTypes gives every field of every spec, lists and their entries included, a value of
// another type: the API server names the field.
func TestTypes(t *testing.T) {
	t.Parallel()
	for kind, d := range definitions(t) {
		a := d.Admission(t)
		spec := d.Schema.Properties["spec"]
		eachField(&spec, "spec", func(path, _ string, s *apiextensions.JSONSchemaProps) {
			var wrong any = "text"
			if s.Type == "string" {
				wrong = int64(7)
			}
			object := map[string]any{"apiVersion": "fairlead.dev/v1beta1", "kind": kind, "metadata": map[string]any{"name": "x"}}
			put(object, strings.Split(path, "."), wrong)
			errs, _ := a.Admit(t, object)
			want := strings.ReplaceAll(strings.ReplaceAll(path, "[]", "[0]"), "[*]", "[x]")
			if !slices.ContainsFunc(errs.ToAggregate().Errors(), func(err error) bool { return strings.HasPrefix(err.Error(), want+": ") }) {
				t.Errorf("%s: %s may be %v: %v", kind, path, wrong, errs.ToAggregate())
			}
		})
	}
}

// put sets the value at a path in which name[] is the first entry of a list.
func put(object map[string]any, path []string, value any) {
	name, list := strings.CutSuffix(path[0], "[]")
	if len(path) > 1 {
		inner := map[string]any{}
		put(inner, path[1:], value)
		value = inner
	}
	if list {
		value = []any{value}
	}
	object[name] = value
}

// eachLeaf visits the fields that have no fields inside, lists and label selectors among
// them.
func eachLeaf(s *apiextensions.JSONSchemaProps, path string, visit func(path string, s *apiextensions.JSONSchemaProps)) {
	inner := s
	if s.Items != nil && s.Items.Schema != nil {
		inner = s.Items.Schema
	}
	if _, selects := inner.Properties["matchExpressions"]; selects || len(inner.Properties) == 0 {
		visit(path, s)
		return
	}
	for name, property := range inner.Properties {
		eachLeaf(&property, path+"."+name, visit)
	}
}

// checkDecodes holds that what the API server stores can be read in Go: a client
// that lists a kind gets nothing at all while one object of it cannot be.
func checkDecodes(t *testing.T, kind string, object map[string]any) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	typed, err := scheme.New(v1beta1.GroupVersion.WithKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true); err != nil {
		t.Errorf("admitted, but Go cannot read it: %v", err)
	}
}
