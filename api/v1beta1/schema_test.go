package v1beta1_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/admission"
	"fairlead.dev/fairlead/internal/testenv/malformed"
)

// definitions are the generated CRDs by kind, as they are shipped.
func definitions(t *testing.T) map[string]admission.Definition {
	t.Helper()
	found := admission.Definitions(t, "../../config/crd")
	if len(found) != 10 {
		t.Fatalf("there are CRDs of %d kinds, want 10", len(found))
	}
	return found
}

// admissionOf takes objects of the kind as the API server would.
func admissionOf(t *testing.T, kind string) *admission.Admission {
	t.Helper()
	d, ok := definitions(t)[kind]
	if !ok {
		t.Fatalf("there is no CRD of kind %q", kind)
	}
	return d.Admission(t)
}

// TestDefinitionsAreAccepted validates the CRDs as the API server does when they
// are created, the estimated cost of every rule included.
func TestDefinitionsAreAccepted(t *testing.T) {
	t.Parallel()
	for kind, d := range definitions(t) {
		d.CRD.Status.StoredVersions = []string{"v1beta1"} // as the API server sets it
		if errs := validation.ValidateCustomResourceDefinition(t.Context(), d.CRD); len(errs) > 0 {
			t.Errorf("%s: %v", kind, errs.ToAggregate())
		}
	}
}

// TestRulesNeedNoNewerKubernetes compiles each rule with what CEL had in
// Kubernetes 1.30: an API server of 1.31, the oldest supported, lets new rules use
// no more, so that it can be rolled back.
func TestRulesNeedNoNewerKubernetes(t *testing.T) {
	t.Parallel()
	env := environment.MustBaseEnvSet(version.MajorMinor(1, 30))
	for kind, d := range definitions(t) {
		rules := 0
		eachSchema(d.Structural, kind, func(path string, s *structuralschema.Structural) {
			root := path == kind
			compiled, err := cel.Compile(s, model.SchemaDeclType(s, root), celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			for i, c := range compiled {
				rules++
				if c.Error != nil || c.MessageExpressionError != nil {
					t.Errorf("%s: rule %q: %v, %v", path, s.XValidations[i].Rule, c.Error, c.MessageExpressionError)
				}
				if s.XValidations[i].Message == "" {
					t.Errorf("%s: rule %q has no message", path, s.XValidations[i].Rule)
				}
			}
		})
		if rules == 0 {
			t.Errorf("%s: found no rules", kind)
		}
	}
}

// TestEveryFieldIsDescribed holds what kubectl explain shows: each field has a
// description, and it begins with the name of the field as users write it.
func TestEveryFieldIsDescribed(t *testing.T) {
	t.Parallel()
	for kind, d := range definitions(t) {
		eachField(d.Schema, kind, func(path, name string, s *apiextensions.JSONSchemaProps) {
			switch {
			case path == kind+".metadata": // kubectl explain describes it itself
			case s.Description == "":
				t.Errorf("%s has no description", path)
			case !strings.EqualFold(name, strings.FieldsFunc(s.Description, notLetterOrDigit)[0]):
				t.Errorf("%s: the description begins %q, not with the name of the field", path, firstLine(s.Description))
			}
		})
	}
}

func notLetterOrDigit(r rune) bool {
	return r == ' ' || r == '\n' || r == '.' || r == ','
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// TestDefaults fills in what a spec leaves out.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		spec string
		want map[string]any
	}{
		"IPAddressPool": {"{addresses: [192.0.2.0/24]}", map[string]any{"autoAssign": true, "onPoolChange": "Keep"}},
		"BGPPeer": {"{myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.1}", map[string]any{
			"peerPort": int64(179), "holdTime": "90s", "connectTime": "10s", "enableGracefulRestart": true, "dualStackAddressFamily": true,
		}},
		"IPReservation":    {"{count: 1}", map[string]any{}},
		"L2Advertisement":  {"{}", map[string]any{"announceInterval": "1m", "preempt": "Always"}},
		"BGPAdvertisement": {"{}", map[string]any{}},
	} {
		given := admission.Parse(t, c.spec)
		object := admission.Parse(t, "{apiVersion: fairlead.dev/v1beta1, kind: "+kind+", metadata: {name: x}, spec: "+c.spec+"}")
		if errs, _ := admissionOf(t, kind).Admit(t, object); len(errs) > 0 {
			t.Errorf("%s: %v", kind, errs.ToAggregate())
		}
		maps.Copy(c.want, given)
		if got := object["spec"]; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", kind, got, c.want)
		}
	}
}

// TestSchemeHasEveryDefinition ties the Go types to the CRDs.
func TestSchemeHasEveryDefinition(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	called := map[string]string{} // the kind of each name that kubectl takes: the API server serves no second
	for kind, d := range definitions(t) {
		names := d.CRD.Spec.Names
		for _, name := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
			if other := called[name]; other != "" {
				t.Errorf("both %s and %s are called %s", other, kind, name)
			}
			called[name] = kind
		}
		for _, k := range []string{names.Kind, names.ListKind} {
			if !scheme.Recognizes(v1beta1.GroupVersion.WithKind(k)) {
				t.Errorf("the scheme does not know %s", k)
			}
		}
		scope := apiextensions.ClusterScoped
		if kind == "IPReservation" {
			scope = apiextensions.NamespaceScoped // it belongs to who owns the namespace
		}
		if d.CRD.Spec.Group != v1beta1.GroupName || d.CRD.Spec.Scope != scope || d.CRD.Spec.Subresources.Status == nil {
			t.Errorf("%s: want group %s, scope %s and a status subresource", kind, v1beta1.GroupName, scope)
		}
		users := !slices.Contains([]string{"BGPSession", "L2Address", "NodeForwarding"}, kind) // there are many, which would bury the others
		if slices.Contains(names.Categories, "fairlead") != users || len(names.ShortNames) != 1 {
			t.Errorf("%s: want the category fairlead where users write the kind, and a short name, have %v, %v", kind, names.Categories, names.ShortNames)
		}
	}
}

// eachSchema visits a schema and all those inside it.
func eachSchema(s *structuralschema.Structural, path string, visit func(path string, s *structuralschema.Structural)) {
	visit(path, s)
	for name, property := range s.Properties {
		eachSchema(&property, path+"."+name, visit)
	}
	if s.Items != nil {
		eachSchema(s.Items, path+"[]", visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		eachSchema(s.AdditionalProperties.Structural, path+"[*]", visit)
	}
}

// eachField visits every named field inside a schema.
func eachField(s *apiextensions.JSONSchemaProps, path string, visit func(path, name string, s *apiextensions.JSONSchemaProps)) {
	for name, property := range s.Properties {
		visit(path+"."+name, name, &property)
		eachField(&property, path+"."+name, visit)
	}
	if s.Items != nil && s.Items.Schema != nil {
		eachField(s.Items.Schema, path+"[]", visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		eachField(s.AdditionalProperties.Schema, path+"[*]", visit)
	}
}

// TestNoFieldOfMetalLBIsPassedOver: a field that the schema does not know is dropped without a
// word for clients that do not ask for validation. So each of MetalLB's is known, and means
// the same or is refused.
func TestNoFieldOfMetalLBIsPassedOver(t *testing.T) {
	t.Parallel()
	known := definitions(t)["BGPPeer"].Schema.Properties["spec"].Properties
	for _, field := range malformed.PeerFieldsOfMetalLB() {
		if _, ok := known[field]; !ok {
			t.Errorf("a BGPPeer with spec.%s of MetalLB loses it", field)
		}
	}
}
