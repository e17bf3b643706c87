package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatsAreTried: each test by which the threat model says that a threat is tried exists.
func TestThreatsAreTried(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z][A-Za-z0-9]+)\(`)
	there := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, f := range function.FindAllSubmatch(code, -1) {
			there[string(f[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named {
		if !there[name[1]] {
			t.Errorf("no test is called %s", name[1])
		}
	}
	if len(named) < 40 {
		t.Errorf("the page names %d tests: the pattern is out of date", len(named))
	}
}
