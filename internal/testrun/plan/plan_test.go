package plan

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheSharesAreEverything: each test that there is, and each BGP script, is in a share, with
// the race detector and not shortened. So it is in the gate, but what this leaves out by name.
func TestTheSharesAreEverything(t *testing.T) {
	t.Chdir("../../..")
	var whole, merge []Group
	for _, s := range shares() {
		whole = append(whole, s.Groups()...)
	}
	for _, p := range gate() {
		merge = append(merge, p.Groups()...)
	}
	wholeHas, mergeHas := having(t, whole), having(t, merge)
	left := map[string]bool{}
	for _, name := range allTests(t) {
		if !wholeHas(name, func(flags string) bool {
			return strings.Contains(flags, "-race") && !strings.Contains(flags, "-short")
		}) {
			t.Errorf("%s is in no share", name)
		}
		if regexp.MustCompile(later).MatchString(name.test) {
			left[name.test] = true
		} else if !mergeHas(name, func(string) bool { return true }) {
			t.Errorf("the gate leaves out %s", name)
		}
	}
	if len(left) != 23 {
		t.Errorf("the gate leaves out %v", left)
	}
}

// testName is a test of a package, or a BGP script.
type testName struct{ pkg, test string }

func (n testName) String() string { return n.pkg + "." + n.test }

// having tells which tests are in one of the groups, with flags that are right.
func having(t *testing.T, groups []Group) func(testName, func(flags string) bool) bool {
	t.Helper()
	packages := make([][]string, len(groups))
	for i, g := range groups {
		patterns, err := g.Listed(t.Context())
		if err == nil {
			packages[i], err = goList(t.Context(), patterns...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return func(name testName, right func(string) bool) bool {
		for i, g := range groups {
			if slices.Contains(packages[i], name.pkg) && g.picks(name.test) && right(g.Flags) {
				return true
			}
		}
		return false
	}
}

// picks tells whether -run and -skip of the group let the test run, as package testing does.
func (g Group) picks(test string) bool {
	elements := strings.Split(test, "/")
	for flag := range strings.FieldsSeq(g.Flags) {
		name, pattern, _ := strings.Cut(flag, "=")
		patterns := strings.Split(pattern, "/")
		n := min(len(elements), len(patterns))
		matches := true
		for i := range n {
			matches = matches && regexp.MustCompile(patterns[i]).MatchString(elements[i])
		}
		if name == "-run" && !matches || name == "-skip" && matches && n == len(patterns) {
			return false
		}
	}
	return true
}

// allTests are those that go test finds in the module.
func allTests(t *testing.T) (all []testName) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir, ImportPath           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				f, ok := d.(*ast.FuncDecl)
				if ok && f.Recv == nil && regexp.MustCompile(`^(Test|Fuzz|Example)`).MatchString(f.Name.Name) && f.Name.Name != "TestMain" {
					all = append(all, testName{p.ImportPath, f.Name.Name})
				}
			}
		}
	}
	scripts, err := filepath.Glob("speaker/bgp/testdata/scenarios/*.txt")
	if err != nil || len(scripts) == 0 || len(all) < 1000 {
		t.Fatalf("%d tests and %d scripts were found: %v", len(all), len(scripts), err)
	}
	for _, s := range scripts {
		all = append(all, testName{"fairlead.dev/fairlead/speaker/bgp", "TestScenarios/" + strings.TrimSuffix(filepath.Base(s), ".txt")})
	}
	return all
}

func TestAWordChoosesWhatToRun(t *testing.T) {
	n := len(shares())
	for word, want := range map[string]int{
		"gate": len(gate()), "all": n, "1": 1, "3": 1, "dcb938f17b7f6ac5fb1b7f4a7a1f7a0a6b3e5a11": 1,
		"0": 0, "99": 0, "dcb938f": 0, "share": 0, "": 0,
	} {
		phases, err := Of([]string{word}, io.Discard)
		if len(phases) != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d phases, %v", word, len(phases), err)
		}
	}
	if phases, err := Of([]string{"gate", "2"}, io.Discard); len(phases) != len(gate())+1 || err != nil {
		t.Errorf("%v, %v", phases, err)
	}
	if _, err := Of(nil, io.Discard); err == nil {
		t.Error("nothing is a plan")
	}
}

// TestCommitsReachEveryShare: hashes that differ in their last digit alone do.
func TestCommitsReachEveryShare(t *testing.T) {
	reached := map[string]bool{}
	for last := range 16 {
		var out strings.Builder
		if _, err := Of([]string{strings.Repeat("0", 39) + string("0123456789abcdef"[last])}, &out); err != nil {
			t.Fatal(err)
		}
		reached[out.String()] = true
	}
	if len(reached) != len(shares()) {
		t.Errorf("only %d of %d are reached", len(reached), len(shares()))
	}
}
