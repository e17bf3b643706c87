package metallb

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// breaks makes all that YAML takes for the end of a line into one, so that nothing
// is a separator of documents to the parser alone.
var breaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// ReadDocuments reads the objects of a YAML or JSON text, of one document or several;
// those in lists come one by one. An error names the document, from 1 on, and the fix.
func ReadDocuments(text []byte) ([]unstructured.Unstructured, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(breaks.Replace(string(text)))))
	var all []unstructured.Unstructured
	for i := 1; ; i++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		found, err := readDocument(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		all = append(all, found...)
	}
}

func readDocument(document []byte) ([]unstructured.Unstructured, error) {
	if err := refuseEnd(document); err != nil {
		return nil, err
	}
	encoded, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(encoded, []byte("null")) {
		return nil, nil // nothing but comments
	}
	var content map[string]any
	if err := utiljson.Unmarshal(encoded, &content); err != nil {
		return nil, errors.New("it is not an object: it must have apiVersion, kind and metadata")
	}
	return flatten(content)
}

// refuseEnd refuses the marker that ends a document, behind which the parser reads
// nothing, so that what is there would be dropped in silence.
func refuseEnd(document []byte) error {
	for line := range strings.Lines(string(document)) {
		if rest, ok := strings.CutPrefix(line, "..."); ok && (rest == "" || strings.ContainsAny(rest[:1], " \t\n")) {
			return errors.New("it has a line that begins with \"...\": separate documents by --- on a line of its own")
		}
	}
	return nil
}

// flatten takes lists apart. What a list of one kind leaves out in its items is
// filled in.
func flatten(content map[string]any) ([]unstructured.Unstructured, error) {
	u := unstructured.Unstructured{Object: content}
	kind, version := u.GetKind(), u.GetAPIVersion()
	if kind == "" || version == "" {
		return nil, errors.New("an object has no apiVersion or no kind")
	}
	if !strings.HasSuffix(kind, "List") {
		return []unstructured.Unstructured{u}, nil
	}
	items, ok := content["items"].([]any)
	if !ok && content["items"] != nil {
		return nil, fmt.Errorf("items of the %s are not a list", kind)
	}
	var all []unstructured.Unstructured
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("items[%d] of the %s is not an object", i, kind)
		}
		if of := strings.TrimSuffix(kind, "List"); of != "" && object["kind"] == nil && object["apiVersion"] == nil {
			object["kind"], object["apiVersion"] = of, version
		}
		found, err := flatten(object)
		if err != nil {
			return nil, fmt.Errorf("items[%d] of the %s: %w", i, kind, err)
		}
		all = append(all, found...)
	}
	return all, nil
}
