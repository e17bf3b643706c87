package pages

import (
	"bytes"
	"fmt"
	"html/template"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// page is one Markdown file.
type page struct {
	source   string // its path in the repository
	Title    string
	Body     template.HTML
	Sections []*section
	targets  []target // what it links to in the repository
}

// section is a heading with what is below it.
type section struct {
	Title, Anchor, Text string
	Level               int
}

// target is where a link leads in the repository, and its words.
type target struct {
	path, words, below string // below is the heading that the link is under
}

// markdown takes HTML as it stands: all texts are the project's own.
func markdown() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(html.WithUnsafe()))
}

// parse reads a page. An error names the link that leads out of the repository or cannot be read.
func parse(source string, src []byte) (*page, error) {
	md := markdown()
	doc := md.Parser().Parse(text.NewReader(src))
	p := &page{source: source, Title: source}
	here, names := &section{}, map[string]int{}
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				here.Text += " "
			}
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Heading:
			here = &section{Title: plain(n, src), Level: n.Level}
			here.Anchor = anchor(here.Title, names)
			n.SetAttributeString("id", []byte(here.Anchor))
			p.Sections = append(p.Sections, here)
			if n.Level == 1 {
				p.Title = here.Title
			}
		case *ast.Link:
			n.Destination, err = p.follow(n.Destination, plain(n, src), here.Title)
		case *ast.Image:
			n.Destination, err = p.follow(n.Destination, plain(n, src), here.Title)
		}
		here.Text += own(n, src)
		return ast.WalkContinue, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, src, doc); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	p.Body = template.HTML(out.String())
	return p, nil
}

// follow is the destination of a link within the site: pages lie as their sources do.
func (p *page) follow(destination []byte, words, below string) ([]byte, error) {
	u, err := url.Parse(string(destination))
	if err != nil || u.IsAbs() || u.Path == "" {
		return destination, err
	}
	to := path.Join(path.Dir(p.source), u.Path)
	if strings.HasPrefix(to, "..") {
		return nil, fmt.Errorf("the link to %s leads out of the repository", destination)
	}
	p.targets = append(p.targets, target{to, words, below})
	u.Path = address(u.Path)
	return []byte(u.String()), nil
}

// address is the path in the site of a file in the repository. Go's files get a name that browsers show, and that
// is no part of this module where the site is below it.
func address(source string) string {
	if dir, name := path.Split(source); name == "README.md" {
		return dir + "index.html"
	}
	if source, is := strings.CutSuffix(source, ".md"); is {
		return source + ".html"
	}
	if path.Ext(source) == ".go" {
		return source + ".txt"
	}
	return source
}

var unnamed = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchor names a heading as GitHub does, and counts names that are there.
func anchor(heading string, names map[string]int) string {
	name := strings.ReplaceAll(unnamed.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
	n := names[name]
	names[name]++
	if n > 0 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

// plain is the text below a node.
func plain(n ast.Node, src []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b.WriteString(own(c, src))
		b.WriteString(plain(c, src))
	}
	return b.String()
}

// own is the text of a node itself.
func own(n ast.Node, src []byte) string {
	switch n := n.(type) {
	case *ast.Text:
		if n.SoftLineBreak() {
			return string(n.Segment.Value(src)) + " "
		}
		return string(n.Segment.Value(src))
	case *ast.String:
		return string(n.Value)
	case *ast.CodeBlock, *ast.FencedCodeBlock:
		return string(n.Lines().Value(src))
	}
	return ""
}
