// Package admission validates and defaults objects of custom kinds in-process, as an API
// server does when they are created: for tests of what users write.
package admission

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Definition is one CRD, in the form that the API server works on.
type Definition struct {
	CRD        *apiextensions.CustomResourceDefinition
	Schema     *apiextensions.JSONSchemaProps
	Structural *structuralschema.Structural
}

// Definitions reads the CRDs in the files *.yaml of a directory, by kind.
func Definitions(tb testing.TB, dir string) map[string]Definition {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("there is no CRD in %s: %v", dir, err)
	}
	found := map[string]Definition{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		var v1 apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &v1); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
		crd := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, crd, nil); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		// With a single version, the conversion moves its schema up.
		schema := crd.Spec.Validation.OpenAPIV3Schema
		structural, err := structuralschema.NewStructural(schema)
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		found[crd.Spec.Names.Kind] = Definition{CRD: crd, Schema: schema, Structural: structural}
	}
	return found
}

// Admission takes objects of one kind: it drops unknown fields, fills in
// defaults, and validates by schema, list types and CEL.
type Admission struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// Admission makes the admission of this kind.
func (d Definition) Admission(tb testing.TB) *Admission {
	tb.Helper()
	schema, _, err := validation.NewSchemaValidator(d.Schema)
	if err != nil {
		tb.Fatal(err)
	}
	return &Admission{
		structural: d.Structural,
		schema:     schema,
		rules:      cel.NewValidator(d.Structural, true, celconfig.PerCallLimit),
	}
}

// Admit returns what is wrong with the object, which it changes into what would be
// stored, and the fields that it dropped.
func (a *Admission) Admit(tb testing.TB, object map[string]any) (field.ErrorList, []string) {
	tb.Helper()
	unknown := pruning.PruneWithOptions(object, a.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.Default(object, a.structural)
	errs := validation.ValidateCustomResource(nil, object, a.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, a.structural, object)...)
	if slices.ContainsFunc(errs, keepsRulesFromRunning) {
		return errs, unknown
	}
	found, _ := a.rules.Validate(tb.Context(), nil, a.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, found...), unknown
}

// keepsRulesFromRunning tells the errors after which the API server runs no CEL.
func keepsRulesFromRunning(err *field.Error) bool {
	return slices.Contains([]field.ErrorType{
		field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong,
		field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
	}, err.Type)
}

// Parse reads one YAML object into the form that the API server works on, where
// whole numbers are int64.
func Parse(tb testing.TB, text string) map[string]any {
	tb.Helper()
	encoded, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(encoded, &object); err != nil {
		tb.Fatal(err)
	}
	return object
}
