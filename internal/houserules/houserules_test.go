// Package houserules_test holds the rules of this repository that a compiler
// cannot: who may import whom and why, and how long things may get.
package houserules_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// module is the path of this module.
const module = "fairlead.dev/fairlead"

// goPackage is the part of `go list -json` that the rules look at.
type goPackage struct {
	Dir          string
	ImportPath   string
	Standard     bool
	GoFiles      []string
	CgoFiles     []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	Module       *struct {
		Path string
		Main bool
	}
}

// name is the import path below the module's.
func (p goPackage) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// files are all Go files of the package, tests included.
func (p goPackage) files() []string {
	var all []string
	for _, names := range [][]string{p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles} {
		for _, name := range names {
			all = append(all, filepath.Join(p.Dir, name))
		}
	}
	return all
}

// list runs `go list` over the whole module, once.
var list = sync.OnceValues(func() ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-json", "-deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	var all []goPackage
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

// packages are those of this module.
func packages(t *testing.T) []goPackage {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	var ours []goPackage
	for _, p := range all {
		if p.Module != nil && p.Module.Main {
			ours = append(ours, p)
		}
	}
	if len(ours) == 0 {
		t.Fatal("go list finds no package of this module")
	}
	return ours
}
