package houserules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"slices"
	"strings"
	"testing"
)

// limits are hard ones, in lines. What comes near one of them has more than one purpose.
type limits struct{ file, function int }

// limitsOf returns those of a file: tests may be longer, as they list cases and steps, and so may
// pulse for as long as its parts are not apart.
func limitsOf(path string) limits {
	if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/speaker/pulse/") {
		return limits{file: 600, function: 100}
	}
	return limits{file: 400, function: 60}
}

// source is one parsed file.
type source struct {
	*ast.File
	path  string
	lines *token.FileSet
}

// span is how many lines a node takes.
func (s source) span(n ast.Node) int {
	return s.lines.Position(n.End()).Line - s.lines.Position(n.Pos()).Line + 1
}

// sources parses the files of a package that people write.
func sources(t *testing.T, p goPackage) []source {
	t.Helper()
	var all []source
	for _, path := range p.files() {
		lines := token.NewFileSet()
		file, err := parser.ParseFile(lines, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.IsGenerated(file) {
			all = append(all, source{File: file, path: path, lines: lines})
		}
	}
	return all
}

func TestEveryPackageSaysOnceWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		var where []string
		for _, s := range sources(t, p) {
			if s.Doc != nil {
				where = append(where, s.path)
			}
			if s.Doc != nil && !slices.ContainsFunc([]string{"Package " + s.Name.Name + " ", "Command ", strings.ToUpper(last(p)[:1]) + last(p)[1:] + " "},
				func(start string) bool { return strings.HasPrefix(s.Doc.Text(), start) }) {
				t.Errorf("%s: the package comment begins %.40q, want \"Package %s \"", s.path, s.Doc.Text(), s.Name.Name)
			}
		}
		if len(where) != 1 {
			t.Errorf("%s has %d package comments, want one: %q", p.ImportPath, len(where), where)
		}
	}
}

// last is the last element of the import path, by which a command is called.
func last(p goPackage) string {
	return p.ImportPath[strings.LastIndexByte(p.ImportPath, '/')+1:]
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, p := range packages(t) {
		for _, s := range sources(t, p) {
			most := limitsOf(s.path)
			if got := s.span(s.File); got > most.file {
				t.Errorf("%s has %d lines, want at most %d", s.path, got, most.file)
			}
			for _, declaration := range s.Decls {
				function, ok := declaration.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if got := s.span(function) - s.tables(function); got > most.function {
					t.Errorf("%s: %s has %d lines, want at most %d", s.path, function.Name.Name, got, most.function)
				}
			}
		}
	}
}

// tables is how many lines of a function are literals: test cases, not steps.
func (s source) tables(function *ast.FuncDecl) int {
	lines := 0
	ast.Inspect(function, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if ok {
			lines += s.span(literal) - 1
		}
		return !ok
	})
	return lines
}

// longestMain is how many lines the files of a program may have: flags, wiring and run.
const longestMain = 300

func TestProgramsOnlyBegin(t *testing.T) {
	lines := map[string]int{}
	for p, s := range products(t) {
		if s.Name.Name != "main" {
			continue
		}
		lines[p.name()] += s.span(s.File)
		for _, declaration := range s.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv != nil {
				t.Errorf("%s: %s is a method: what a program does is in packages, which others can test and use",
					s.lines.Position(function.Pos()), function.Name.Name)
			}
		}
	}
	for program, n := range lines {
		if n > longestMain {
			t.Errorf("%s has %d lines, want at most %d: move what it does into packages", program, n, longestMain)
		}
	}
	if len(lines) == 0 {
		t.Error("there is no program")
	}
}

// vague are names that say nothing of what is inside.
var vague = []string{"base", "common", "helper", "helpers", "lib", "manager", "misc", "shared", "types", "util", "utils"}

func TestPackagesHaveTellingNames(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(vague, last(p)) {
			t.Errorf("%s: name the package after what it does", p.ImportPath)
		}
	}
}

// TestGeneratorsAreNobodysElse: rapid writes a generator's name when it is first asked for and reads
// it without a lock, so one that parallel tests share is a data race, seen once in hundreds of runs.
func TestGeneratorsAreNobodysElse(t *testing.T) {
	for _, p := range packages(t) {
		all := sources(t, p)
		makers := map[string]bool{} // functions that give generators
		for _, s := range all {
			for _, declaration := range s.Decls {
				if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil && function.Type.Results != nil {
					makers[function.Name.Name] = hasGenerators(function.Type.Results, nil)
				}
			}
		}
		for _, s := range all {
			for _, declaration := range s.Decls {
				if variables, ok := declaration.(*ast.GenDecl); ok && variables.Tok == token.VAR && hasGenerators(variables, makers) {
					t.Errorf("%s: a variable of the package holds generators of rapid: make them in a function", s.lines.Position(variables.Pos()))
				}
			}
		}
	}
}

// hasGenerators tells whether rapid is named below n, or one of the makers called.
func hasGenerators(n ast.Node, makers map[string]bool) bool {
	for below := range ast.Preorder(n) {
		switch x := below.(type) {
		case *ast.SelectorExpr:
			if of, ok := x.X.(*ast.Ident); ok && of.Name == "rapid" {
				return true
			}
		case *ast.CallExpr:
			if called, ok := x.Fun.(*ast.Ident); ok && makers[called.Name] {
				return true
			}
		}
	}
	return false
}

// clocks are the functions of package time that do not give the same answer twice.
var clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

func TestPurePackagesAskNoClock(t *testing.T) {
	for _, p := range packages(t) {
		if !underAny(p.name(), pure) || underAny(p.name(), impure) {
			continue
		}
		for at, call := range selected(t, p) {
			if of, ok := call.X.(*ast.Ident); ok && of.Name == "time" && slices.Contains(clocks, call.Sel.Name) {
				t.Errorf("%s asks for the time: hand it in, in the snapshot", at)
			}
		}
	}
}

// wallClock are the functions and methods of package time that give or take what a clock on the
// wall shows, and lose how long something lasts.
var wallClock = []string{"Date", "ParseInLocation", "UTC", "Unix", "UnixMicro", "UnixMilli", "UnixNano"}

// TestPulseMindsNoClockOnTheWall: who is alive and who answers follows from what has passed. A
// clock that is set, by an hour forth or back, changes nothing of that.
func TestPulseMindsNoClockOnTheWall(t *testing.T) {
	for _, p := range packages(t) {
		if !underAny(p.name(), []string{"speaker/pulse"}) {
			continue
		}
		for at, call := range selected(t, p) {
			if slices.Contains(wallClock, call.Sel.Name) {
				t.Errorf("%s: %s has to do with the clock on the wall", at, call.Sel.Name)
			}
		}
	}
}

// selected gives all x.y in the code of a package, without its tests, and where they are.
func selected(t *testing.T, p goPackage) iter.Seq2[token.Position, *ast.SelectorExpr] {
	return func(yield func(token.Position, *ast.SelectorExpr) bool) {
		for _, s := range sources(t, p) {
			if strings.HasSuffix(s.path, "_test.go") {
				continue
			}
			for n := range ast.Preorder(s.File) {
				if call, ok := n.(*ast.SelectorExpr); ok && !yield(s.lines.Position(call.Pos()), call) {
					return
				}
			}
		}
	}
}
