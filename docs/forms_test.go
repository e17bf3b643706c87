package docs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// form is an issue form, as far as GitHub asks for its fields: it leaves a form out, without a word, that lacks one or has a
// field that it does not know.
type form struct {
	Name, Description string
	Labels            []string
	Body              []struct {
		Type, ID   string
		Attributes struct {
			Label, Description, Placeholder, Value, Render string
			Options                                        []string
		}
		Validations struct{ Required bool }
	}
}

func TestIssueFormsAreWhole(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(paths) < 3 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) == "config.yml" {
			continue
		}
		var f form
		if err := yaml.UnmarshalStrict(text, &f); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		ids := map[string]bool{}
		for _, field := range f.Body {
			a := field.Attributes
			good := slices.Contains([]string{"input", "textarea"}, field.Type) && a.Label != "" || field.Type == "dropdown" && len(a.Options) > 0 || field.Type == "markdown" && a.Value != ""
			if !good || ids[field.ID] {
				t.Errorf("%s: the field %+v lacks something, or another one has its id", path, field)
			}
			ids[field.ID] = true
		}
		if f.Name == "" || f.Description == "" || len(ids) < 2 {
			t.Errorf("%s lacks a name, a description or fields", path)
		}
	}
}

// Each path that has an owner of its own is there.
func TestCodeOwnersOwnWhatIsThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../.github/CODEOWNERS")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		path, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(path, "/") {
			if _, err := os.Stat(filepath.Join("..", path)); err != nil {
				t.Error(err)
			}
		}
	}
}
