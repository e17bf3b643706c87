// Command configschema writes the schema of the values of the chart fairlead-config, made from the CRDs in a folder.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// values are the names of the values, by the plurals of the kinds.
func values() map[string]string {
	return map[string]string{
		"ipaddresspools": "ipAddressPools", "l2advertisements": "l2Advertisements", "bgppeers": "bgpPeers",
		"bgpadvertisements": "bgpAdvertisements", "bfdprofiles": "bfdProfiles", "communities": "communities",
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: configschema FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "configschema:", err)
		os.Exit(1)
	}
}

// write writes the schema to standard output.
func write(folder string) error {
	properties := map[string]any{"global": map[string]any{"type": "object", "description": "Set by Helm when the chart is part of another; not used."}}
	for plural, value := range values() {
		text, err := os.ReadFile(filepath.Join(folder, "fairlead.dev_"+plural+".yaml"))
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			return fmt.Errorf("%s: %w", plural, err)
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		properties[value] = map[string]any{
			"type": "object", "description": "Specs of " + crd.Spec.Names.Kind + "s by name.",
			"propertyNames":        map[string]any{"pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
			"additionalProperties": schemaOf(spec),
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart fairlead-config",
		"type": "object", "additionalProperties": false, "properties": properties,
	})
}

// schemaOf returns what the API server says of a field, as JSON Schema has it: without the rules in CEL, and
// closed.
func schemaOf(of apiextensionsv1.JSONSchemaProps) map[string]any {
	s := map[string]any{"type": of.Type, "description": strings.ReplaceAll(of.Description, "\n", " ")}
	if of.XIntOrString {
		s["type"] = []string{"integer", "string"}
	}
	for _, e := range of.Enum {
		enum, _ := s["enum"].([]json.RawMessage)
		s["enum"] = append(enum, json.RawMessage(e.Raw))
	}
	bounds := map[string]*int64{"minLength": of.MinLength, "maxLength": of.MaxLength, "minItems": of.MinItems, "maxItems": of.MaxItems}
	for name, bound := range bounds {
		if bound != nil {
			s[name] = *bound
		}
	}
	for name, bound := range map[string]*float64{"minimum": of.Minimum, "maximum": of.Maximum} {
		if bound != nil {
			s[name] = *bound
		}
	}
	if of.Pattern != "" {
		s["pattern"] = of.Pattern
	}
	if of.Items != nil {
		s["items"] = schemaOf(*of.Items.Schema)
	}
	if len(of.Required) > 0 {
		s["required"] = of.Required
	}
	if len(of.Properties) > 0 || of.Type == "object" {
		fields := map[string]any{}
		for name, field := range of.Properties {
			fields[name] = schemaOf(field)
		}
		s["properties"], s["additionalProperties"] = fields, false
		if of.AdditionalProperties != nil && of.AdditionalProperties.Schema != nil {
			s["additionalProperties"] = schemaOf(*of.AdditionalProperties.Schema)
		}
	}
	return s
}
