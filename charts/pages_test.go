package charts_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// value tells whether the chart has a value, given by its names.
func (s *schema) value(root *schema, names []string) bool {
	if s == nil || len(names) == 0 {
		return s != nil
	}
	if name, is := strings.CutPrefix(s.Ref, "#/definitions/"); is {
		return root.Definitions[name].value(root, names)
	}
	for _, part := range append(s.AllOf, s.AnyOf...) {
		if part.value(root, names) {
			return true
		}
	}
	if s.Properties == nil && s.Type == "object" {
		return true // it is as Kubernetes has it
	}
	return s.Properties[names[0]].value(root, names[1:])
}

// TestValuesOnPagesAreThere: whatever --set a page shows is a value of the chart.
func TestValuesOnPagesAreThere(t *testing.T) {
	t.Parallel()
	root, found := readSchema(t), 0
	set := regexp.MustCompile(`--set(?:-string|-json)?[ =]'?([A-Za-z.]+)=`)
	look := func(name string) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range set.FindAllStringSubmatch(string(text), -1) {
			found++
			if !root.value(root, strings.Split(match[1], ".")) {
				t.Errorf("%s sets %s, which the chart does not have", name, match[1])
			}
		}
	}
	look("../README.md")
	look("fairlead/README.md")
	err := filepath.WalkDir("../docs", func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".md" && !strings.Contains(name, "/adr/") {
			look(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 30 {
		t.Errorf("only %d values found: the pattern is out of date", found)
	}
}
