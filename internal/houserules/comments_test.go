package houserules_test

import (
	"go/ast"
	"go/token"
	"iter"
	"regexp"
	"strings"
	"testing"
)

// unread are directories whose comments are not held to these rules.
var unread = []string{"speaker/pulse"}

// persons are words for people, where a node, a router, a process or the kernel acts. Quoted names,
// such as that of a command, are left out.
var (
	persons = regexp.MustCompile(`(?i)\b(who|whom|whoever|nobody|somebody)\b`)
	quoted  = regexp.MustCompile("\"[^\"]*\"|`[^`]*`")
)

func TestCommentsNameNoPersons(t *testing.T) {
	for p, s := range products(t) {
		if underAny(p.name(), unread) {
			continue
		}
		for _, group := range s.Comments {
			for _, comment := range group.List {
				if word := persons.FindString(quoted.ReplaceAllString(comment.Text, "")); word != "" {
					t.Errorf("%s: a comment says %q: name the node, the router, the process or the kernel that acts", s.lines.Position(comment.Pos()), word)
				}
			}
		}
	}
}

// failures are the words by which a doc comment tells of errors.
var failures = regexp.MustCompile(`\b[Ee]rrors?\b|\bErr[A-Z]|\w+Error\b`)

func TestDocumentationTellsOfErrors(t *testing.T) {
	for p, s := range products(t) {
		if s.Name.Name == "main" || underAny(p.name(), unread) {
			continue
		}
		for _, declaration := range s.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && exported(function) && function.Name.Name != "Unwrap" && fails(function.Type) && !failures.MatchString(function.Doc.Text()) {
				t.Errorf("%s: the comment of %s does not say which error it returns, or when", s.lines.Position(function.Pos()), function.Name.Name)
			}
		}
	}
}

// products gives the files that people write and that are no tests.
func products(t *testing.T) iter.Seq2[goPackage, source] {
	return func(yield func(goPackage, source) bool) {
		for _, p := range packages(t) {
			for _, s := range sources(t, p) {
				if !strings.HasSuffix(s.path, "_test.go") && !yield(p, s) {
					return
				}
			}
		}
	}
}

// exported reports whether other packages can call the function: a method's type is exported, too.
func exported(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return f.Name.IsExported()
	}
	of := f.Recv.List[0].Type
	for {
		switch x := of.(type) {
		case *ast.StarExpr:
			of = x.X
		case *ast.IndexExpr:
			of = x.X
		case *ast.IndexListExpr:
			of = x.X
		default:
			name, ok := of.(*ast.Ident)
			return ok && f.Name.IsExported() && token.IsExported(name.Name)
		}
	}
}

// fails reports whether one of the results is an error.
func fails(f *ast.FuncType) bool {
	if f.Results != nil {
		for _, result := range f.Results.List {
			if name, ok := result.Type.(*ast.Ident); ok && name.Name == "error" {
				return true
			}
		}
	}
	return false
}
