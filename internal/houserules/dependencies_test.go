package houserules_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestEveryDependencyIsExplained(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace, Exclude []any
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	explained, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, require := range file.Require {
		named := strings.Contains(string(explained), "`"+require.Path+"`")
		switch {
		case !require.Indirect && !named:
			t.Errorf("docs/dependencies.md does not say what `%s` is for", require.Path)
		case require.Indirect && named:
			t.Errorf("docs/dependencies.md explains `%s`, on which we do not depend directly", require.Path)
		}
	}
	if len(file.Replace) > 0 || len(file.Exclude) > 0 {
		t.Error("go.mod replaces or excludes modules, which those who import the API would not")
	}
}
